//! A graph as a standalone SVG file, with text and without a style sheet.
//!
//! Colors are attributes of the shapes and not in a `style` element. The content security policy
//! for files from this server forbids styles and scripts. The colors are those of the light theme,
//! since files are printed. A test keeps them equal to the tokens of the style sheet.
//!
//! The size is bounded by the limits of a picture: see `control::deployments::graph`.

use std::fmt::Write as _;

use api::views::graph::{GraphEdge, GraphVertex, GraphView};
use engine::cluster::EdgeKind;
use engine::counting::many;

use super::address::ColorBy;
use super::boxes::{bar, box_title, members, short};
use super::colors::Scale;
use super::edges::{arrow, curve};
use super::layout::{Layout, lay_out};
use super::{MEASURES, worst_state};

const TEXT: &str = "#141920";
const MUTED: &str = "#56606d";
const LINE: &str = "#7f8998";
const FRAME: &str = "#c3cad4";
const SURFACE: &str = "#ffffff";
/// Height of the title and the legend, in pixels.
const HEADER_HEIGHT: f64 = 64.0;
/// Maximum width of a character of the legend, in pixels.
const CHAR_WIDTH: f64 = 7.5;

/// The color of a `data-state`.
fn ink(tone: &str) -> &'static str {
    match tone {
        "proposed" | "tone-4" => "#6a3fd1",
        "blocked" => "#616a77",
        "todo" | "transition" | "tone-1" => "#1f63c6",
        "active" | "tone-2" => "#15794a",
        "error" => "#bf2b2b",
        "warn" | "tone-3" => "#8a5a00",
        "tone-5" => "#0b6e7a",
        "tone-6" => "#a8326e",
        _ => LINE,
    }
}

/// Renders a graph as an SVG document.
pub fn svg(view: &GraphView, color: ColorBy) -> String {
    let ends: Vec<(usize, usize)> = view.edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let layout = lay_out(view.vertices.len(), &ends, MEASURES);
    let scale = Scale::of(view, color);
    let legend = legend(&scale, view);
    let (width, height) = (layout.width.max(legend.1).max(320.0), layout.height + HEADER_HEIGHT);
    let mut out = String::with_capacity(1_024 + view.vertices.len() * 900 + view.edges.len() * 160);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
         width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Inter, system-ui, sans-serif\" font-size=\"13\" fill=\"{TEXT}\">\n\
         <title>Graph of {name}</title>\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"#f6f7f9\"/>\n\
         <text x=\"20\" y=\"26\" font-size=\"16\" font-weight=\"600\">{heading}</text>\n{legend}<g transform=\"translate(0 {HEADER_HEIGHT})\">\n",
        name = escaped(view.name()),
        heading = escaped(&heading(view)),
        legend = legend.0,
    );
    for (edge, path) in view.edges.iter().zip(&layout.paths).filter(|(_, path)| !path.is_empty()) {
        wire(&mut out, edge, path);
    }
    for (at, vertex) in view.vertices.iter().enumerate() {
        boxed(&mut out, &layout, at, (vertex, view.deployment.is_none()), &scale);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn heading(view: &GraphView) -> String {
    let marked_path = view
        .marked_path
        .as_ref()
        .map(|marked_path| format!(" · {}", marked_path.summary))
        .unwrap_or_default();
    format!(
        "{}: {}, {}{marked_path}",
        view.name(),
        many(view.noderoles, "noderole"),
        many(view.total_edges, "edge")
    )
}

/// The legend and its width.
fn legend(scale: &Scale, view: &GraphView) -> (String, f64) {
    let mut out = String::new();
    let mut x = 20.0;
    for entry in scale.legend() {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"41\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/><text \
             x=\"{}\" y=\"51\" fill=\"{MUTED}\">{}</text>",
            ink(entry.tone),
            x + 18.0,
            escaped(&entry.words),
        );
        x += 18.0 + entry.words.chars().count() as f64 * CHAR_WIDTH + 16.0;
    }
    for (class, words) in super::changes(view) {
        let (color, dashes) = drawn(class);
        let _ = writeln!(
            out,
            "<path d=\"M{x} 47h24\" stroke=\"{color}\" stroke-width=\"2\"{dashes}/><text x=\"{}\" \
             y=\"51\" fill=\"{MUTED}\">{words}</text>",
            x + 30.0,
        );
        x += 30.0 + words.chars().count() as f64 * CHAR_WIDTH + 16.0;
    }
    (out, x)
}

fn wire(out: &mut String, edge: &GraphEdge, path: &[(f64, f64)]) {
    let changed = super::rewired(edge);
    let soft = if edge.kind == EdgeKind::Hard { "" } else { " stroke-dasharray=\"4 4\"" };
    let (color, width, dashes) = match &changed {
        Some((class, _)) => {
            let (color, dashes) = drawn(class);
            (color, "2", dashes)
        }
        None if edge.on_path > 0 => (TEXT, "3", soft),
        None => (LINE, "1.5", soft),
    };
    let title = changed.map(|(_, words)| format!("<title>{words}</title>")).unwrap_or_default();
    let _ = writeln!(
        out,
        "<path d=\"{}\" fill=\"none\" stroke=\"{color}\" \
         stroke-width=\"{width}\"{dashes}>{title}</path><path d=\"{}\" fill=\"{color}\"/>",
        curve(path),
        arrow(path),
    );
}

/// Color and dash pattern of an edge that a change adds, removes or retypes.
fn drawn(class: &str) -> (&'static str, &'static str) {
    match class {
        "removed" => (ink("error"), " stroke-dasharray=\"2 5\""),
        "added" => (ink("proposed"), ""),
        _ => (ink("warn"), " stroke-dasharray=\"10 3\""),
    }
}

fn boxed(
    out: &mut String,
    layout: &Layout,
    at: usize,
    (vertex, with_owner): (&GraphVertex, bool),
    scale: &Scale,
) {
    let (x, y) = layout.places.get(at).copied().unwrap_or_default();
    let (width, height) = (MEASURES.width, MEASURES.height);
    let (frame, thick) =
        match worst_state(vertex).map(|appearance| super::state_style(appearance).0) {
            _ if vertex.on_path > 0 => (TEXT, "3"),
            Some(tone @ ("error" | "proposed" | "warn")) => (ink(tone), "1.5"),
            _ => (FRAME, "1"),
        };
    let text = scale.box_text(vertex);
    let _ = write!(
        out,
        "<g transform=\"translate({x} {y})\"><title>{}</title><rect width=\"{width}\" \
         height=\"{height}\" rx=\"6\" fill=\"{SURFACE}\" \
         stroke=\"{frame}\" stroke-width=\"{thick}\"/><text x=\"12\" y=\"23\" font-weight=\"600\">{}</text>",
        escaped(&format!("{} in {}: {text}", super::named(vertex), vertex.deployment)),
        escaped(&short(&box_title(vertex, with_owner))),
    );
    if let Some(members) = members(vertex) {
        let right = width - 12.0;
        let _ = write!(
            out,
            "<text x=\"{right}\" y=\"23\" text-anchor=\"end\" fill=\"{MUTED}\">{members}</text>"
        );
    }
    for (tone, x, width) in bar(&scale.parts(vertex)) {
        let ink = ink(tone);
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"31\" width=\"{width}\" height=\"7\" rx=\"2\" fill=\"{ink}\"/>"
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"12\" y=\"52\" font-size=\"12\" fill=\"{MUTED}\">{}</text></g>",
        escaped(&short(&text))
    );
}

/// Escapes a text for content and attributes. Characters that XML forbids are dropped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() && letter != '\n' && letter != '\t' => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::colors::tests::view;

    #[test]
    fn svg_colors_match_light_theme() {
        let tokens = include_str!("../../../style/tokens.css");
        let states = ["proposed", "blocked", "todo", "transition", "active", "error", "warn"];
        let tones = ["tone-1", "tone-2", "tone-3", "tone-4", "tone-5", "tone-6"];
        for (name, ink) in states.iter().chain(&tones).map(|name| (*name, ink(name))).chain([
            ("text", TEXT),
            ("muted", MUTED),
            ("line-field", LINE),
            ("line-strong", FRAME),
            ("surface", SURFACE),
        ]) {
            assert!(
                tokens.contains(&format!("--{name}: light-dark({ink},")),
                "the style sheet does not define {name} as {ink}"
            );
        }
    }

    #[test]
    fn svg_has_text_without_styles_or_scripts() {
        let mut view = view(&["web", "db"]);
        view.edges = vec![GraphEdge {
            from: 0,
            to: 1,
            count: 2,
            kind: EdgeKind::Soft,
            on_path: 1,
            added: 0,
            removed: 0,
        }];
        let file = svg(&view, ColorBy::Wave);
        for part in [
            "<title>Graph of web</title>",
            ">wave 2<",
            "r1 in db: wave 2",
            "stroke-dasharray",
            "stroke-width=\"3\"",
        ] {
            assert!(file.contains(part), "{part} is missing in {file}");
        }
        for part in ["<style", "style=", "<script", "href", "class="] {
            assert!(!file.contains(part), "{part} must not be in {file}");
        }
        assert_eq!(file.matches("<g ").count(), file.matches("</g>").count());
    }

    #[test]
    fn added_and_removed_edges_differ() {
        let mut view = view(&["web", "db", "edge"]);
        let edge = |from, to, count, added, gone| GraphEdge {
            from,
            to,
            count,
            kind: EdgeKind::Hard,
            on_path: 0,
            added,
            removed: gone,
        };
        view.edges = vec![edge(0, 1, 0, 0, 1), edge(0, 2, 2, 2, 0), edge(1, 2, 5, 0, 0)];
        let file = svg(&view, ColorBy::State);
        for part in
            ["<title>removed</title>", "<title>new</title>", ">removed edge<", ">new edge<", "2 5"]
        {
            assert!(file.contains(part), "{part} is missing in {file}");
        }
        view.edges[1].removed = 3;
        assert!(svg(&view, ColorBy::State).contains("<title>2 new, 3 removed</title>"));
        view.edges = vec![edge(0, 1, 2, 0, 0)];
        assert!(
            !svg(&view, ColorBy::State).contains("edge<"),
            "a graph without changes has no legend for changes"
        );
    }

    #[test]
    fn invalid_xml_characters_are_dropped() {
        assert_eq!(escaped("a<b> & \"c\"\u{0}\u{1b}"), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
