//! The colors of a graph: they show states, waves or deployments. A color is never the only sign:
//! the legend and each box also name it in words.

use std::collections::{BTreeMap, BTreeSet};

use api::views::graph::{Appearance, GraphVertex, GraphView};
use engine::counting::many;

use super::address::ColorBy;
use super::{state_style, state_text, worst_state};
use crate::components::Icon;

/// Colors that people can distinguish at a glance. Further values share the last one or are
/// grouped into ranges.
const TONES: [&str; 6] = ["tone-1", "tone-2", "tone-3", "tone-4", "tone-5", "tone-6"];

/// An entry of the legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The color, as a value of `data-state`.
    pub tone: &'static str,
    /// The shape. `Icon::Dot` if the property has no shapes.
    pub shape: Icon,
    pub words: String,
}

/// The colors of one picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scale {
    color: ColorBy,
    waves: u32,
    owners: Vec<String>,
    appearances: BTreeMap<Appearance, usize>,
}

impl Scale {
    pub(crate) fn of(view: &GraphView, color: ColorBy) -> Self {
        let owners: BTreeSet<&str> =
            view.vertices.iter().map(|vertex| vertex.deployment.as_str()).collect();
        let mut appearances: BTreeMap<Appearance, usize> = BTreeMap::new();
        for part in view.vertices.iter().flat_map(|vertex| &vertex.appearances) {
            *appearances.entry(part.appearance).or_default() += part.count;
        }
        Self {
            color,
            waves: view.waves,
            owners: owners.into_iter().map(str::to_owned).collect(),
            appearances,
        }
    }

    /// The segments of a vertex's bar: the number of noderoles of each color.
    pub(crate) fn parts(&self, vertex: &GraphVertex) -> Vec<(&'static str, usize)> {
        match self.color {
            ColorBy::State => vertex
                .appearances
                .iter()
                .map(|part| (state_style(part.appearance).0, part.count))
                .collect(),
            ColorBy::Wave => {
                vec![(vertex.waves.map_or("", |waves| self.wave_tone(waves.first)), vertex.members)]
            }
            ColorBy::Owner => vec![(self.owner_tone(vertex.deployment.as_str()), vertex.members)],
        }
    }

    /// The single color of a vertex when zoomed out. For states: the one that needs attention
    /// most.
    pub(crate) fn tone(&self, vertex: &GraphVertex) -> &'static str {
        match self.color {
            ColorBy::State => {
                worst_state(vertex).map_or("", |appearance| state_style(appearance).0)
            }
            ColorBy::Wave | ColorBy::Owner => {
                self.parts(vertex).first().map_or("", |(tone, _)| *tone)
            }
        }
    }

    /// The text below a box's bar.
    pub(crate) fn box_text(&self, vertex: &GraphVertex) -> String {
        let word = match self.color {
            ColorBy::State => return state_text(vertex),
            ColorBy::Wave => wave(vertex),
            ColorBy::Owner => format!("in {}", vertex.deployment),
        };
        let text = state_text(vertex);
        if text.is_empty() { word } else { format!("{word} · {text}") }
    }

    pub(crate) fn legend(&self) -> Vec<Entry> {
        match self.color {
            ColorBy::State => self
                .appearances
                .iter()
                .map(|(appearance, count)| state(*appearance, *count))
                .collect(),
            ColorBy::Wave => self.ranges(),
            ColorBy::Owner => self.names(),
        }
    }

    fn waves_per_tone(&self) -> u32 {
        self.waves.div_ceil(TONES.len() as u32).max(1)
    }

    fn wave_tone(&self, wave: u32) -> &'static str {
        TONES[((wave.max(1) - 1) / self.waves_per_tone()).min(TONES.len() as u32 - 1) as usize]
    }

    fn owner_tone(&self, name: &str) -> &'static str {
        let at = self.owners.iter().position(|owner| owner == name).unwrap_or_default();
        TONES[at.min(TONES.len() - 1)]
    }

    fn ranges(&self) -> Vec<Entry> {
        let per = self.waves_per_tone();
        let firsts = (1..=self.waves).step_by(per as usize);
        let entry = |first: u32| {
            let words = range(first, (first + per - 1).min(self.waves));
            Entry { tone: self.wave_tone(first), shape: Icon::Dot, words }
        };
        firsts.map(entry).collect()
    }

    fn names(&self) -> Vec<Entry> {
        let whole =
            if self.owners.len() > TONES.len() { TONES.len() - 1 } else { self.owners.len() };
        let (shown, others) = self.owners.split_at(whole);
        let entry = |name: &String| Entry {
            tone: self.owner_tone(name),
            shape: Icon::Dot,
            words: name.clone(),
        };
        let others = (!others.is_empty()).then(|| Entry {
            tone: TONES[TONES.len() - 1],
            shape: Icon::Dot,
            words: many(others.len(), "other"),
        });
        shown.iter().map(entry).chain(others).collect()
    }
}

fn state(appearance: Appearance, count: usize) -> Entry {
    let (tone, shape, word) = state_style(appearance);
    Entry { tone, shape, words: format!("{count} {word}") }
}

/// `wave 2`, or `waves 2–4` for noderoles that run at different times.
pub(crate) fn wave(vertex: &GraphVertex) -> String {
    vertex.waves.map_or_else(|| "in a cycle".to_owned(), |waves| range(waves.first, waves.last))
}

fn range(first: u32, last: u32) -> String {
    if first == last { format!("wave {first}") } else { format!("waves {first}–{last}") }
}

#[cfg(test)]
pub(crate) mod tests {
    use api::views::graph::{AppearanceCount, WaveRange};

    use super::*;
    use engine::ids::{DeploymentId, DeploymentName, RoleName};
    use uuid::Uuid;

    /// A picture with one vertex for each of these deployments, in consecutive waves.
    pub(crate) fn view(owners: &[&str]) -> GraphView {
        let deployment = |name: &str| DeploymentName::parse(name).unwrap();
        let vertex = |(at, owner): (usize, &&str)| GraphVertex {
            key: format!("{owner}:r{at}"),
            role: RoleName::parse(&format!("r{at}")).unwrap(),
            deployment: deployment(owner),
            noderole: None,
            members: 2,
            appearances: vec![
                AppearanceCount {
                    appearance: Appearance::State(api::runs::StepState::Active),
                    count: 1,
                },
                AppearanceCount { appearance: Appearance::Added, count: 1 },
            ],
            waves: Some(WaveRange { first: at as u32 + 1, last: at as u32 + 1 }),
            on_path: 0,
        };
        GraphView {
            deployment: Some(deployment("web")),
            deployment_id: Some(DeploymentId(Uuid::from_u128(1))),
            blueprint: None,
            vertices: owners.iter().enumerate().map(vertex).collect(),
            edges: Vec::new(),
            noderoles: owners.len() * 2,
            total_edges: 0,
            waves: owners.len() as u32,
            cut: None,
            marked_path: None,
            cursor: 0,
        }
    }

    fn legend_of(scale: &Scale) -> Vec<String> {
        scale.legend().into_iter().map(|entry| format!("{} {}", entry.tone, entry.words)).collect()
    }

    #[test]
    fn legend_contains_every_used_color() {
        for owners in [
            vec!["web"],
            vec!["web", "db", "edge"],
            vec!["a", "b", "c", "d", "e", "f", "g", "h"],
            vec!["w"; 20],
        ] {
            let view = view(&owners);
            for color in ColorBy::ALL {
                let scale = Scale::of(&view, color);
                let known: BTreeSet<&str> = scale.legend().iter().map(|entry| entry.tone).collect();
                for (tone, _) in view.vertices.iter().flat_map(|vertex| scale.parts(vertex)) {
                    assert!(
                        known.contains(tone),
                        "the legend lacks {color:?} {tone} of {owners:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn excess_waves_and_owners_share_colors() {
        let waves = Scale::of(&view(&["w"; 14]), ColorBy::Wave);
        assert_eq!(
            legend_of(&waves),
            [
                "tone-1 waves 1–3",
                "tone-2 waves 4–6",
                "tone-3 waves 7–9",
                "tone-4 waves 10–12",
                "tone-5 waves 13–14"
            ]
        );
        let owners = Scale::of(&view(&["a", "b", "c", "d", "e", "f", "g"]), ColorBy::Owner);
        assert_eq!(legend_of(&owners)[4..], ["tone-5 e", "tone-6 2 others"]);
        assert_eq!(
            legend_of(&Scale::of(&view(&["a"; 2]), ColorBy::State)),
            ["active 2 active", "proposed 2 added"]
        );
    }

    #[test]
    fn box_text_names_its_color() {
        let view = view(&["web", "db"]);
        let box_text = |color| Scale::of(&view, color).box_text(&view.vertices[1]);
        assert_eq!(box_text(ColorBy::Wave), "wave 2 · 1 active, 1 added");
        assert_eq!(box_text(ColorBy::Owner), "in db · 1 active, 1 added");
        assert_eq!(box_text(ColorBy::State), "1 active, 1 added");
    }
}
