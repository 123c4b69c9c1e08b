//! Layers: merges the data of a noderole and of a run, with the source of each value.
//!
//! A noderole's own data has five live layers, low to high:
//!
//! ```text
//! role template < profiles < deployment role < system < user
//! ```
//!
//! A step's output is merged directly below *user*. A value that the last run determined overrides
//! a default, such as a template's port that was in use. It never overrides a value that a user set
//! for this noderole.
//!
//! A run sees, low to high ([`visible`]):
//!
//! 1. Data and outputs of the ACTIVE steps on its node, in topological order, then by id.
//! 2. Data and outputs of its ancestors, from far to near, so that the nearest overrides the
//!    others.
//! 3. Its own data, without its own last output (for the reason, see [`super::output`]).
//!
//! References to secrets are effective only in reviewed data. In outputs and system data they are
//! masked text. Data that no reviewer saw must not name secrets for a run to receive.
//!
//! Every value has a [`Source`]. OpenCrowbar shows no sources, so users cannot see that a higher
//! layer overrides their edit.

use std::collections::BTreeMap;

use petgraph::algo::dijkstra;
use petgraph::graphmap::DiGraphMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DataError, check_depth, escaped, merge, ordered, secret};
use crate::ids::{RunId, StepId};

/// The layer that contains a value.
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
    /// Data that Gantry and its hooks write.
    System,
    /// The output of the step's last successful run.
    Output,
    /// Data that a user entered for this noderole.
    User,
}

impl Layer {
    fn name(&self) -> String {
        match self {
            Self::Template => "The role's template".into(),
            Self::Profile(name) => format!("Profile {name}"),
            Self::DeploymentRole => "The data of the deployment role".into(),
            Self::System => "The system data".into(),
            Self::Output => "The output".into(),
            Self::User => "The user data".into(),
        }
    }
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Source {
    /// The step whose data contains the value.
    pub step: StepId,
    /// The layer of that step's data.
    pub layer: Layer,
    /// For outputs, the run that returned the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

/// The output of a step's last successful run.
#[derive(Debug, Clone, Copy)]
pub struct StepOutput<'a> {
    /// The document, or `null` for a step without output.
    pub value: &'a Value,
    /// The run that returned it.
    pub run: Option<RunId>,
}

impl StepOutput<'static> {
    /// A step without output.
    pub const NONE: Self = StepOutput { value: &Value::Null, run: None };
}

/// A merged document with the source of every value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layered {
    pub value: Value,
    /// The source of each value by JSON pointer. Objects have no source of their own, except empty
    /// objects and references to secrets.
    pub sources: BTreeMap<String, Source>,
}

/// A noderole's own data by layer. `null` means an empty layer.
#[derive(Debug, Clone, Copy)]
pub struct OwnData<'a> {
    pub template: &'a Value,
    /// Named sets of values, low to high. The caller puts a deployment's own after those of its
    /// ancestors.
    pub profiles: &'a [(String, Value)],
    pub deployment_role: &'a Value,
    pub system: &'a Value,
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

/// The data of one step that other steps can see.
#[derive(Debug, Clone, Copy)]
pub struct Contribution<'a> {
    pub step: StepId,
    /// Length of the longest path from a root of the graph.
    pub rank: u32,
    pub own: OwnData<'a>,
    pub output: StepOutput<'a>,
}

/// The inputs that determine what a run of one step sees.
#[derive(Debug, Clone)]
pub struct RunSources<'a> {
    /// The ACTIVE steps on its node, in any order. The step itself is ignored.
    pub on_node: Vec<Contribution<'a>>,
    /// Its ancestors over hard edges, each with its distance (fewest edges), in any order.
    pub ancestors: Vec<(u32, Contribution<'a>)>,
    pub step: StepId,
    pub own: OwnData<'a>,
}

/// The distance of each ancestor of a step, in edges of the shortest path. `edges` are (child,
/// parent) pairs and must include all edges above the step.
pub fn ancestor_distances(step: StepId, edges: &[(StepId, StepId)]) -> BTreeMap<StepId, u32> {
    let graph = DiGraphMap::<StepId, ()>::from_edges(edges);
    let mut found: BTreeMap<StepId, u32> =
        dijkstra(&graph, step, None, |_| 1).into_iter().collect();
    found.remove(&step);
    found
}

/// A noderole's own data, all layers merged. With an output, the data that other steps see.
///
/// # Errors
/// [`DataError::NotAnObject`] with the layer, or [`DataError::TooDeep`].
pub fn layers(
    step: StepId,
    own: OwnData<'_>,
    output: Option<StepOutput<'_>>,
) -> Result<Layered, DataError> {
    let mut layered = Layered::empty();
    layered.add(step, own, output)?;
    Ok(layered)
}

/// The data that a run sees, in the order that the module describes.
///
/// A run gets stored results and the `nodes` document under separate keys, which never hide a
/// setting.
///
/// # Errors
/// [`DataError::NotAnObject`] with the layer, or [`DataError::TooDeep`].
pub fn visible(sources: &RunSources<'_>) -> Result<Layered, DataError> {
    let mut layered = Layered::empty();
    let mut on_node: Vec<_> = sources.on_node.iter().filter(|c| c.step != sources.step).collect();
    on_node.sort_by_key(|c| (c.rank, c.step));
    let mut ancestors: Vec<_> = sources.ancestors.iter().collect();
    ancestors.sort_by_key(|(distance, c)| (std::cmp::Reverse(*distance), c.rank, c.step));

    for seen in on_node.into_iter().chain(ancestors.into_iter().map(|(_, c)| c)) {
        layered.add(seen.step, seen.own, Some(seen.output))?;
    }
    layered.add(sources.step, sources.own, None)?;
    Ok(layered)
}

/// Whether a layer decides the value at a JSON pointer, so that layers below it do not: it has a
/// value there, or a value that is no object on the way to it.
pub fn decides(layer: &Value, pointer: &str) -> bool {
    let mut at = layer;
    // A layer that is `null` is empty.
    if !at.is_object() {
        return false;
    }
    for key in pointer.split('/').skip(1) {
        let Some(object) = at.as_object().filter(|_| !secret::is_reference(at)) else {
            return true;
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        let Some(inner) = object.get(&key) else { return false };
        at = inner;
    }
    true
}

impl Layered {
    fn empty() -> Self {
        Self { value: Value::Object(Map::new()), sources: BTreeMap::new() }
    }

    /// The source of the value at a JSON pointer. `None` for an object with content, whose values
    /// have sources of their own.
    pub fn source(&self, pointer: &str) -> Option<&Source> {
        self.sources.get(pointer)
    }

    /// Every well-formed reference to a secret, with the source of its value.
    pub fn references(&self) -> Vec<(secret::SecretRef, &Source)> {
        let sources = self.sources.iter();
        let found = sources.filter_map(|(at, source)| Some((self.value.pointer(at)?, source)));
        found
            .flat_map(|(value, source)| {
                secret::references(value).into_iter().map(move |found| (found, source))
            })
            .collect()
    }

    fn add(
        &mut self,
        step: StepId,
        own: OwnData<'_>,
        output: Option<StepOutput<'_>>,
    ) -> Result<(), DataError> {
        let masked = |value: &Value| secret::contains_reference(value).then(|| secret::mask(value));
        let (masked_output, masked_system) =
            (output.and_then(|output| masked(output.value)), masked(own.system));
        let output = output.map(|output| StepOutput {
            value: masked_output.as_ref().unwrap_or(output.value),
            ..output
        });
        let system = masked_system.as_ref().unwrap_or(own.system);
        let profiles =
            own.profiles.iter().map(|(name, value)| (Layer::Profile(name.clone()), value));
        let low_to_high = std::iter::once((Layer::Template, own.template))
            .chain(profiles)
            .chain([(Layer::DeploymentRole, own.deployment_role), (Layer::System, system)])
            .chain(output.map(|output| (Layer::Output, output.value)))
            .chain([(Layer::User, own.user)]);
        for (layer, value) in low_to_high {
            if value.is_null() {
                continue;
            }
            super::object(value, || layer.name())?;
            check_depth(value)?;
            apply_layer(
                &mut self.value,
                value,
                &mut self.sources,
                "",
                &Source {
                    step,
                    run: output.filter(|_| layer == Layer::Output).and_then(|output| output.run),
                    layer,
                },
            );
        }
        Ok(())
    }
}

fn apply_layer(
    base: &mut Value,
    over: &Value,
    sources: &mut BTreeMap<String, Source>,
    at: &str,
    source: &Source,
) {
    if !merge::joins(base, over) {
        remove_sources(sources, at);
        record_sources(over, sources, at, source);
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
            Some(below) => apply_layer(below, value, sources, &at, source),
            None => {
                record_sources(value, sources, &at, source);
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Removes the sources of a value and of everything in it.
fn remove_sources(sources: &mut BTreeMap<String, Source>, at: &str) {
    sources.remove(at);
    // '0' is the character after '/', so this range contains exactly the pointers below `at`.
    let inside: Vec<String> = sources
        .range(format!("{at}/")..format!("{at}0"))
        .map(|(pointer, _)| pointer.clone())
        .collect();
    for pointer in inside {
        sources.remove(&pointer);
    }
}

fn record_sources(
    value: &Value,
    sources: &mut BTreeMap<String, Source>,
    at: &str,
    source: &Source,
) {
    match value {
        Value::Object(map) if !map.is_empty() && !secret::is_reference(value) => {
            for (key, value) in ordered(map) {
                record_sources(value, sources, &format!("{at}/{}", escaped(key)), source);
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
    fn higher_layer_overrides_lower_layers() {
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
        let (output, user) = (value("wall", &["w", "u"]), value("user", &["u"]));
        let own = OwnData {
            template: &template,
            profiles: &profiles,
            deployment_role: &role,
            system: &system,
            user: &user,
        };
        let layered =
            layers(step(1), own, Some(StepOutput { value: &output, run: Some(RunId(9)) })).unwrap();
        assert_eq!(
            layered.value,
            json!({"t": "template", "p": "low", "q": "high", "d": "role", "s": "system", "w": "wall", "u": "user"})
        );
        assert_eq!(layered.source("/q").unwrap().layer, Layer::Profile("high".into()));
        assert_eq!(layered.source("/w").unwrap().layer, Layer::Output);
        assert_eq!(
            layered.source("/w").unwrap().run,
            Some(RunId(9)),
            "the source names the run that returned the value"
        );
        assert_eq!(layered.source("/u").unwrap().run, None);
        assert_eq!(layers(step(1), own, None).unwrap().value["w"], json!("system"));
    }

    #[test]
    fn only_reviewed_data_references_secrets() {
        let output = json!({"a": {"$secret": "deploy/ssh", "version": 1}, "b": [{"$secret": "half"}], "c": 1});
        let user = json!({"mine": {"$secret": "app/key", "version": 1}});
        let system = json!({"s": {"$secret": "deploy/ssh", "version": 1}});
        let own = OwnData { user: &user, system: &system, ..OwnData::NONE };
        let layered = layers(step(1), own, Some(StepOutput { value: &output, run: None })).unwrap();
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
    fn sources_follow_values_of_changed_kind() {
        let template = json!({"a": {"b": {"c": 1, "d": 2}, "e": {}}, "ab": 1, "a0": 1, "x": 1, "s": {"$secret": "k", "version": 1}});
        let role = json!({"a": {"b": 5, "e": {"f": 1}}, "x": {"y": {}}});
        let user = json!({"a": {"e": {"f": 1}}, "s": {"plain": 1}});
        let own =
            OwnData { template: &template, deployment_role: &role, user: &user, ..OwnData::NONE };
        let layered = layers(step(1), own, None).unwrap();
        let listed: Vec<(String, Layer)> =
            layered.sources.into_iter().map(|(at, source)| (at, source.layer)).collect();
        let expected = [
            ("/a/b", Layer::DeploymentRole),
            ("/a/e/f", Layer::User),
            ("/a0", Layer::Template),
            ("/ab", Layer::Template),
            ("/s/plain", Layer::User),
            ("/x/y", Layer::DeploymentRole),
        ];
        assert_eq!(listed, expected.map(|(at, layer)| (at.to_owned(), layer)));
    }

    #[test]
    fn visible_data_orders_node_ancestors_own() {
        let data = |n: i64| json!({"last": n, format!("only{n}"): true});
        let values: Vec<Value> = (0..6).map(data).collect();
        let seen = |n: usize, rank| Contribution {
            step: step(n as u128),
            rank,
            own: OwnData::NONE,
            output: StepOutput { value: &values[n], run: None },
        };
        let own = OwnData { user: &json!({"mine": 1}), ..OwnData::NONE };
        let mut sources = RunSources {
            on_node: vec![seen(1, 7), seen(2, 3), seen(5, 9)],
            ancestors: vec![(1, seen(3, 0)), (2, seen(4, 5))],
            step: step(5),
            own,
        };
        let run = visible(&sources).unwrap();
        assert_eq!(
            run.value["last"],
            json!(3),
            "the nearest ancestor overrides the others, regardless of rank"
        );
        assert_eq!(run.value["mine"], json!(1));
        assert_eq!(run.value.get("only5"), None, "the step's own last output is left out");
        sources.ancestors.clear();
        assert_eq!(
            visible(&sources).unwrap().value["last"],
            json!(1),
            "on a node, the highest rank overrides the others"
        );
        sources.on_node.reverse();
        assert_eq!(
            visible(&sources).unwrap().value["last"],
            json!(1),
            "the order of the sources does not matter"
        );
    }

    #[test]
    fn ancestor_distance_is_shortest_path() {
        // Step 1 waits for 2 and 3, 2 for 3, and 3 for 4. Step 5 waits for 1, so it is not an
        // ancestor.
        let edges: Vec<_> = [(1, 2), (1, 3), (2, 3), (3, 4), (5, 1)]
            .map(|(child, parent)| (step(child), step(parent)))
            .into();
        let expected = BTreeMap::from([(step(2), 1), (step(3), 1), (step(4), 2)]);
        assert_eq!(ancestor_distances(step(1), &edges), expected);
        assert!(ancestor_distances(step(4), &edges).is_empty());
    }

    #[test]
    fn non_object_layer_is_named() {
        let own = OwnData { system: &json!([1]), ..OwnData::NONE };
        let error = layers(step(1), own, None).unwrap_err();
        assert_eq!(error.to_string(), "The system data must be a JSON object, but is an array");
    }

    proptest::proptest! {
        #[test]
        fn every_value_has_correct_source(documents in proptest::collection::vec(merge::tests::document(), 4)) {
            let mut objects: Vec<Value> = documents.into_iter().map(|d| json!({ "k": d })).collect();
            // References are effective in reviewed data only.
            if secret::contains_reference(&objects[2]) {
                objects[2] = secret::mask(&objects[2]);
            }
            let own = OwnData { template: &objects[0], profiles: &[], deployment_role: &objects[1], system: &objects[2], user: &objects[3] };
            let layered = layers(step(1), own, None).unwrap();
            let plain = objects.iter().fold(json!({}), |base, over| merge(&base, over).unwrap());
            proptest::prop_assert_eq!(&layered.value, &plain);
            let mut expected = BTreeMap::new();
            let anyone = Source { step: step(1), layer: Layer::User, run: None };
            record_sources(&plain, &mut expected, "", &anyone);
            proptest::prop_assert!(layered.sources.keys().eq(expected.keys()));
            for (at, source) in &layered.sources {
                let layer = match source.layer {
                    Layer::Template => 0,
                    Layer::DeploymentRole => 1,
                    Layer::System => 2,
                    _ => 3,
                };
                // The source's layer has this value, and no higher layer has a value there.
                proptest::prop_assert_eq!(objects[layer].pointer(at), plain.pointer(at));
            }
        }
    }

    #[test]
    fn layer_decides_its_values_and_those_below_them() {
        let layer = json!({"a": {"b": 1}, "s": {"$secret": "db", "version": 1}, "x/y": null});
        for path in ["/a", "/a/b", "/a/b/c", "/s", "/s/deeper", "/x~1y"] {
            assert!(decides(&layer, path), "{path}");
        }
        for path in ["/a/c", "/b", "/x"] {
            assert!(!decides(&layer, path), "{path}");
        }
        assert!(!decides(&Value::Null, "/a") && !decides(&json!({}), "/a"));
    }
}
