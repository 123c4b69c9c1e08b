//! Layers: which values a noderole has, what a run sees, and where each value comes from.
//!
//! A noderole's **own data** is five layers, each live, low to high:
//!
//! ```text
//! role template < profiles < deployment role < system < user
//! ```
//!
//! A step's **wall** lies under *user* alone: what the last run found out beats what it was told by default (a template's port,
//! when the run took another), but never what a person insists on for this very noderole.
//!
//! A run sees, low to high ([`visible`]):
//!
//! 1. data and walls of the ACTIVE steps on its node, in topological order, then id;
//! 2. data and walls of its ancestors, from far to near, so that who is closer has the last word;
//! 3. its own data, *without* its own last wall (why: [`super::wall`]).
//!
//! References to secrets count in reviewed data only. In walls and system data they are text that says so: what no reviewer saw
//! must not name the secrets that a run receives in plain text.
//!
//! Every value keeps its [`Source`]. OpenCrowbar shows no sources, and its lasting complaint is the edit that "does not take
//! effect": a higher layer had the same key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DataError, check_depth, escaped, merge, ordered, secret};
use crate::ids::{RunId, StepId};

/// Which layer a value was found in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The role's template.
    Template,
    /// A profile, by name.
    Profile(String),
    /// The deployment's data for the role.
    DeploymentRole,
    /// What Gantry itself and its hooks write.
    System,
    /// What the step's last successful run added.
    Wall,
    /// What a person wrote for this noderole.
    User,
}

impl Layer {
    fn name(&self) -> String {
        match self {
            Self::Template => "the role's template".into(),
            Self::Profile(name) => format!("profile {name}"),
            Self::DeploymentRole => "the deployment role's data".into(),
            Self::System => "the system data".into(),
            Self::Wall => "the wall".into(),
            Self::User => "the user data".into(),
        }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Source {
    /// Whose data it is.
    pub step: StepId,
    /// Which layer of that.
    pub layer: Layer,
    /// The run that left it, of a wall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

/// What a step's last successful run added.
#[derive(Debug, Clone, Copy)]
pub struct Wall<'a> {
    /// The document, `null` when there is none.
    pub value: &'a Value,
    /// Which run that was.
    pub run: Option<RunId>,
}

impl Wall<'static> {
    /// Of a step that has none.
    pub const NONE: Self = Wall { value: &Value::Null, run: None };
}

/// A merged document in which every value is accounted for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layered {
    /// The document.
    pub value: Value,
    /// The source of each value that is no object (empty objects and references to secrets count as values), by JSON pointer.
    pub sources: BTreeMap<String, Source>,
}

/// A noderole's own data by layer. `null` stands for a layer that has nothing.
#[derive(Debug, Clone, Copy)]
pub struct OwnData<'a> {
    /// From the role.
    pub template: &'a Value,
    /// Named sets of values, low to high: the caller puts a deployment's own after those of its ancestors.
    pub profiles: &'a [(String, Value)],
    /// From the deployment.
    pub deployment_role: &'a Value,
    /// From Gantry itself.
    pub system: &'a Value,
    /// From a person.
    pub user: &'a Value,
}

impl OwnData<'static> {
    /// No data in any layer.
    pub const NONE: Self = OwnData {
        template: &Value::Null,
        profiles: &[],
        deployment_role: &Value::Null,
        system: &Value::Null,
        user: &Value::Null,
    };
}

/// What one step lets others see.
#[derive(Debug, Clone, Copy)]
pub struct Contribution<'a> {
    /// The step.
    pub step: StepId,
    /// Its place in the graph: longest way from a root.
    pub rank: u32,
    /// Its noderole's own data.
    pub own: OwnData<'a>,
    /// Its wall.
    pub wall: Wall<'a>,
}

/// Everything that decides what a run of one step sees.
#[derive(Debug, Clone)]
pub struct Sight<'a> {
    /// The ACTIVE steps on its node, in any order; it itself, if it is among them, is passed over.
    pub on_node: Vec<Contribution<'a>>,
    /// Its ancestors by hard edges, each with its distance (fewest edges), in any order.
    pub ancestors: Vec<(u32, Contribution<'a>)>,
    /// The step.
    pub step: StepId,
    /// Its noderole's own data.
    pub own: OwnData<'a>,
}

/// How far above a step each of its ancestors is, in edges by the shortest way. `edges` are (child, parent), at least all above it.
pub fn distances(step: StepId, edges: &[(StepId, StepId)]) -> BTreeMap<StepId, u32> {
    let mut above: BTreeMap<StepId, Vec<StepId>> = BTreeMap::new();
    for (child, parent) in edges {
        above.entry(*child).or_default().push(*parent);
    }
    let mut found = BTreeMap::from([(step, 0)]);
    let mut next = std::collections::VecDeque::from([(step, 0)]);
    while let Some((at, distance)) = next.pop_front() {
        for parent in above.get(&at).into_iter().flatten() {
            if !found.contains_key(parent) {
                found.insert(*parent, distance + 1);
                next.push_back((*parent, distance + 1));
            }
        }
    }
    found.remove(&step);
    found
}

/// A noderole's own data: all layers merged. With a wall, what others see of it.
///
/// # Errors
/// [`DataError::NotAnObject`] naming the layer, [`DataError::TooDeep`].
pub fn layers(
    step: StepId,
    own: OwnData<'_>,
    wall: Option<Wall<'_>>,
) -> Result<Layered, DataError> {
    let mut layered = Layered::empty();
    layered.add(step, own, wall)?;
    Ok(layered)
}

/// What a run sees; the order is in the module's theory.
///
/// The results kept for its node and the `nodes` document are handed to a run beside this, under keys of their own: no key of
/// theirs can shadow a setting.
///
/// # Errors
/// [`DataError::NotAnObject`] naming the layer, [`DataError::TooDeep`].
pub fn visible(sight: &Sight<'_>) -> Result<Layered, DataError> {
    let mut layered = Layered::empty();
    let mut on_node: Vec<_> = sight.on_node.iter().filter(|c| c.step != sight.step).collect();
    on_node.sort_by_key(|c| (c.rank, c.step));
    let mut ancestors: Vec<_> = sight.ancestors.iter().collect();
    ancestors.sort_by_key(|(distance, c)| (std::cmp::Reverse(*distance), c.rank, c.step));

    for seen in on_node.into_iter().chain(ancestors.into_iter().map(|(_, c)| c)) {
        layered.add(seen.step, seen.own, Some(seen.wall))?;
    }
    layered.add(sight.step, sight.own, None)?;
    Ok(layered)
}

impl Layered {
    fn empty() -> Self {
        Self { value: Value::Object(Map::new()), sources: BTreeMap::new() }
    }

    /// The source of the value at a JSON pointer. None for an object that holds others: these have one each.
    pub fn source(&self, pointer: &str) -> Option<&Source> {
        self.sources.get(pointer)
    }

    /// Every well-formed reference to a secret, with the source of the value that holds it.
    pub fn references(&self) -> Vec<(secret::SecretRef, &Source)> {
        let sources = self.sources.iter();
        let held = sources.filter_map(|(at, source)| Some((self.value.pointer(at)?, source)));
        held.flat_map(|(value, source)| {
            secret::references(value).into_iter().map(move |found| (found, source))
        })
        .collect()
    }

    fn add(
        &mut self,
        step: StepId,
        own: OwnData<'_>,
        wall: Option<Wall<'_>>,
    ) -> Result<(), DataError> {
        let masked = |value: &Value| secret::holds_reference(value).then(|| secret::mask(value));
        let (masked_wall, masked_system) =
            (wall.and_then(|wall| masked(wall.value)), masked(own.system));
        let wall =
            wall.map(|wall| Wall { value: masked_wall.as_ref().unwrap_or(wall.value), ..wall });
        let system = masked_system.as_ref().unwrap_or(own.system);
        let profiles =
            own.profiles.iter().map(|(name, value)| (Layer::Profile(name.clone()), value));
        let low_to_high = std::iter::once((Layer::Template, own.template))
            .chain(profiles)
            .chain([(Layer::DeploymentRole, own.deployment_role), (Layer::System, system)])
            .chain(wall.map(|wall| (Layer::Wall, wall.value)))
            .chain([(Layer::User, own.user)]);
        for (layer, value) in low_to_high {
            if value.is_null() {
                continue;
            }
            super::object(value, || layer.name())?;
            check_depth(value)?;
            lay(
                &mut self.value,
                value,
                &mut self.sources,
                "",
                &Source {
                    step,
                    run: wall.filter(|_| layer == Layer::Wall).and_then(|wall| wall.run),
                    layer,
                },
            );
        }
        Ok(())
    }
}

fn lay(
    base: &mut Value,
    over: &Value,
    sources: &mut BTreeMap<String, Source>,
    at: &str,
    source: &Source,
) {
    if !merge::joins(base, over) {
        forget(sources, at);
        note(over, sources, at, source);
        base.clone_from(over);
        return;
    }
    let (Value::Object(base), Value::Object(over)) = (base, over) else {
        return;
    };
    if base.is_empty() && !over.is_empty() {
        sources.remove(at);
    }
    for (key, value) in ordered(over) {
        let at = format!("{at}/{}", escaped(key));
        match base.get_mut(key) {
            Some(below) => lay(below, value, sources, &at, source),
            None => {
                note(value, sources, &at, source);
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Drops what is known about a value and everything in it.
fn forget(sources: &mut BTreeMap<String, Source>, at: &str) {
    sources.remove(at);
    // '0' follows '/', so this is exactly the range of pointers that lead through `at`.
    let inside: Vec<String> = sources
        .range(format!("{at}/")..format!("{at}0"))
        .map(|(pointer, _)| pointer.clone())
        .collect();
    for pointer in inside {
        sources.remove(&pointer);
    }
}

fn note(value: &Value, sources: &mut BTreeMap<String, Source>, at: &str, source: &Source) {
    match value {
        Value::Object(map) if !map.is_empty() && !secret::is_reference(value) => {
            for (key, value) in ordered(map) {
                note(value, sources, &format!("{at}/{}", escaped(key)), source);
            }
        }
        _ => {
            sources.insert(at.to_owned(), source.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn step(n: u128) -> StepId {
        StepId(Uuid::from_u128(n))
    }

    #[test]
    fn each_layer_beats_those_below_it() {
        let value = |from: &str, keys: &[&str]| -> Value {
            keys.iter().map(|k| ((*k).to_owned(), json!(from))).collect::<Map<_, _>>().into()
        };
        let template = value("template", &["t", "p", "q", "d", "s", "w", "u"]);
        let profiles = [
            ("low".to_owned(), value("low", &["p", "q", "d", "s", "w", "u"])),
            ("high".to_owned(), value("high", &["q", "d", "s", "w", "u"])),
        ];
        let (role, system) =
            (value("role", &["d", "s", "w", "u"]), value("system", &["s", "w", "u"]));
        let (wall, user) = (value("wall", &["w", "u"]), value("user", &["u"]));
        let own = OwnData {
            template: &template,
            profiles: &profiles,
            deployment_role: &role,
            system: &system,
            user: &user,
        };
        let layered =
            layers(step(1), own, Some(Wall { value: &wall, run: Some(RunId(9)) })).unwrap();
        assert_eq!(
            layered.value,
            json!({"t": "template", "p": "low", "q": "high", "d": "role", "s": "system", "w": "wall", "u": "user"})
        );
        assert_eq!(layered.source("/q").unwrap().layer, Layer::Profile("high".into()));
        assert_eq!(layered.source("/w").unwrap().layer, Layer::Wall);
        assert_eq!(
            layered.source("/w").unwrap().run,
            Some(RunId(9)),
            "and it is known which run found it out"
        );
        assert_eq!(layered.source("/u").unwrap().run, None);
        assert_eq!(layers(step(1), own, None).unwrap().value["w"], json!("system"));
    }

    #[test]
    fn only_reviewed_data_names_secrets() {
        let wall = json!({"a": {"$secret": "deploy/ssh", "version": 1}, "b": [{"$secret": "half"}], "c": 1});
        let user = json!({"mine": {"$secret": "app/key", "version": 1}});
        let system = json!({"s": {"$secret": "deploy/ssh", "version": 1}});
        let own = OwnData { user: &user, system: &system, ..OwnData::NONE };
        let layered = layers(step(1), own, Some(Wall { value: &wall, run: None })).unwrap();
        let only = secret::SecretRef { name: "app/key".into(), version: 1 };
        assert_eq!(
            secret::references(&layered.value).into_iter().collect::<Vec<_>>(),
            std::slice::from_ref(&only)
        );
        let source = Source { step: step(1), layer: Layer::User, run: None };
        assert_eq!(layered.references(), [(only, &source)]);
        assert_eq!(
            (&layered.value["a"], &layered.value["s"]),
            (&json!(secret::MASK), &json!(secret::MASK))
        );
        assert_eq!(layered.value["c"], json!(1));
    }

    #[test]
    fn sources_follow_values_that_change_their_kind() {
        let template = json!({"a": {"b": {"c": 1, "d": 2}, "e": {}}, "ab": 1, "a0": 1, "x": 1, "s": {"$secret": "k", "version": 1}});
        let role = json!({"a": {"b": 5, "e": {"f": 1}}, "x": {"y": {}}});
        let user = json!({"a": {"e": {"f": 1}}, "s": {"plain": 1}});
        let own =
            OwnData { template: &template, deployment_role: &role, user: &user, ..OwnData::NONE };
        let layered = layers(step(1), own, None).unwrap();
        let told: Vec<(String, Layer)> =
            layered.sources.into_iter().map(|(at, source)| (at, source.layer)).collect();
        let expected = [
            ("/a/b", Layer::DeploymentRole),
            ("/a/e/f", Layer::User),
            ("/a0", Layer::Template),
            ("/ab", Layer::Template),
            ("/s/plain", Layer::User),
            ("/x/y", Layer::DeploymentRole),
        ];
        assert_eq!(told, expected.map(|(at, layer)| (at.to_owned(), layer)));
    }

    #[test]
    fn a_run_sees_its_node_then_its_ancestors_then_itself() {
        let data = |n: i64| json!({"last": n, format!("only{n}"): true});
        let values: Vec<Value> = (0..6).map(data).collect();
        let seen = |n: usize, rank| Contribution {
            step: step(n as u128),
            rank,
            own: OwnData::NONE,
            wall: Wall { value: &values[n], run: None },
        };
        let own = OwnData { user: &json!({"mine": 1}), ..OwnData::NONE };
        let mut sight = Sight {
            on_node: vec![seen(1, 7), seen(2, 3), seen(5, 9)],
            ancestors: vec![(1, seen(3, 0)), (2, seen(4, 5))],
            step: step(5),
            own,
        };
        let run = visible(&sight).unwrap();
        assert_eq!(
            run.value["last"],
            json!(3),
            "the nearest ancestor has the last word, whatever its rank"
        );
        assert_eq!(run.value["mine"], json!(1));
        assert_eq!(run.value.get("only5"), None, "its own last wall is left out");
        sight.ancestors.clear();
        assert_eq!(
            visible(&sight).unwrap().value["last"],
            json!(1),
            "on the node: the highest rank"
        );
        sight.on_node.reverse();
        assert_eq!(
            visible(&sight).unwrap().value["last"],
            json!(1),
            "in whatever order they are given"
        );
    }

    #[test]
    fn an_ancestor_is_as_far_as_the_shortest_way_to_it() {
        // 1 waits for 2 and 3; 2 for 3; 3 for 4; 5 for 1, and is no ancestor.
        let edges: Vec<_> = [(1, 2), (1, 3), (2, 3), (3, 4), (5, 1)]
            .map(|(child, parent)| (step(child), step(parent)))
            .into();
        let expected = BTreeMap::from([(step(2), 1), (step(3), 1), (step(4), 2)]);
        assert_eq!(distances(step(1), &edges), expected);
        assert!(distances(step(4), &edges).is_empty());
    }

    #[test]
    fn a_layer_that_is_no_object_is_named() {
        let own = OwnData { system: &json!([1]), ..OwnData::NONE };
        let error = layers(step(1), own, None).unwrap_err();
        assert_eq!(error.to_string(), "the system data must be a JSON object, and is a list");
    }

    proptest::proptest! {
        #[test]
        fn every_value_has_the_source_that_set_it(documents in proptest::collection::vec(merge::tests::document(), 4)) {
            let mut objects: Vec<Value> = documents.into_iter().map(|d| json!({ "k": d })).collect();
            // References count in reviewed data only.
            if secret::holds_reference(&objects[2]) {
                objects[2] = secret::mask(&objects[2]);
            }
            let own = OwnData { template: &objects[0], profiles: &[], deployment_role: &objects[1], system: &objects[2], user: &objects[3] };
            let layered = layers(step(1), own, None).unwrap();
            let plain = objects.iter().fold(json!({}), |base, over| merge(&base, over).unwrap());
            proptest::prop_assert_eq!(&layered.value, &plain);
            let mut expected = BTreeMap::new();
            let anyone = Source { step: step(1), layer: Layer::User, run: None };
            note(&plain, &mut expected, "", &anyone);
            proptest::prop_assert!(layered.sources.keys().eq(expected.keys()));
            for (at, source) in &layered.sources {
                let layer = match source.layer {
                    Layer::Template => 0,
                    Layer::DeploymentRole => 1,
                    Layer::System => 2,
                    _ => 3,
                };
                // The layer named has that value, and none above it has one of its own there.
                proptest::prop_assert_eq!(objects[layer].pointer(at), plain.pointer(at));
            }
        }
    }
}
