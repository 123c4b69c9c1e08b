//! The graph of the cluster, of a deployment or of a review, folded for display.

use engine::cluster::EdgeKind;
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, NoderoleId, RoleName};
use serde::{Deserialize, Serialize};

use crate::runs::StepState;

/// Appearance of a vertex in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Appearance {
    /// The state of its step.
    State(StepState),
    /// The change adds it.
    Added,
    /// The change removes it.
    Removed,
    /// The change modifies it or runs it again.
    Changed,
    /// It depends on something that the change runs again or removes, and stays unchanged itself:
    /// the blast radius.
    Downstream,
    /// It is a neighbor of the change and stays unchanged.
    Around,
}

/// A graph of noderoles, folded as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphView {
    /// Name of the deployment. Absent in the graph of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    /// Id of the deployment, for live stream topics. Absent in the graph of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<DeploymentId>,
    /// The blueprint whose graph is shown, if it is not the current one. Such a graph has no
    /// states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blueprint: Option<BlueprintNumber>,
    /// Vertices in a fixed order, so positions are stable between views.
    pub vertices: Vec<GraphVertex>,
    /// Edges from a dependency to its dependent, as indexes of `vertices`.
    pub edges: Vec<GraphEdge>,
    /// Number of noderoles in the whole graph.
    pub noderoles: usize,
    /// Number of edges in the whole graph.
    pub total_edges: usize,
    /// Number of the last wave of the whole graph.
    pub waves: u32,
    /// Set if the requested graph is too large: the parts that stay folded or are left out, and
    /// advice.
    pub cut: Option<String>,
    /// The marked path, if one was requested.
    pub marked_path: Option<GraphPath>,
    /// Journal position of this view.
    pub cursor: i64,
}

/// The marked path of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphPath {
    /// Description and size of the path, or the reason for its absence.
    pub summary: String,
    /// Number of noderoles on the path.
    pub noderoles: usize,
    /// For the longest path: its noderoles in order, at most 100.
    pub path: Vec<GraphWaypoint>,
}

/// Maximum number of noderoles of a path that are listed.
pub const MAX_PATH_NODEROLES: usize = 100;

/// A noderole of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphWaypoint {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// Name, for example `app on n1`.
    pub name: String,
    /// Duration of its last successful run in milliseconds, if requested and available.
    pub duration_ms: Option<u64>,
}

/// A vertex: a role, or a single noderole of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphVertex {
    /// Key of the vertex in URLs: `web:app`, or the id of a noderole.
    pub key: String,
    /// Name of the role.
    pub role: RoleName,
    /// The deployment that the role is bound in.
    pub deployment: DeploymentName,
    /// Set for a single noderole.
    pub noderole: Option<GraphNoderole>,
    /// Number of noderoles that the vertex represents.
    pub members: usize,
    /// Number of noderoles by appearance, without zeros.
    pub appearances: Vec<AppearanceCount>,
    /// Waves of its noderoles. Null if all of them are in a cycle or after one.
    pub waves: Option<WaveRange>,
    /// Number of its noderoles on the marked path.
    pub on_path: usize,
}

/// Number of noderoles with an appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppearanceCount {
    /// The appearance.
    pub appearance: Appearance,
    /// Number of noderoles.
    pub count: usize,
}

/// A range of waves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveRange {
    /// Number of the first wave.
    pub first: u32,
    /// Number of the last wave.
    pub last: u32,
}

/// A noderole of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphNoderole {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// First label of the node's name, with the instance number unless it is the first.
    pub short: String,
    /// Full name of the node.
    pub fqdn: String,
    /// Whether it has a page. A noderole that a change adds has none yet.
    pub has_page: bool,
}

/// An edge of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphEdge {
    /// Index of the dependency.
    pub from: usize,
    /// Index of the dependent.
    pub to: usize,
    /// Number of edges between noderoles that it represents. In the graph of a change: after the
    /// change.
    pub count: usize,
    /// The strongest kind of these edges.
    pub kind: EdgeKind,
    /// Number of these edges on the marked path.
    pub on_path: usize,
    /// Number of these edges that the change adds.
    #[serde(default)]
    pub added: usize,
    /// Number of edges that the change removes.
    #[serde(default)]
    pub removed: usize,
}

/// Options of a graph. The URL of the page contains all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GraphOptions {
    /// Roles to unfold into single noderoles.
    pub roles: Vec<RoleName>,
    /// Nodes whose noderoles are shown individually, by full or short name.
    pub nodes: Vec<String>,
    /// Key of a vertex. Only the vertex, its dependencies and its dependents are shown.
    pub focus: Option<String>,
    /// Direction from `focus`. Default: both.
    pub direction: GraphDirection,
    /// Maximum distance from `focus`, in edges. Default: no limit.
    pub steps: Option<u32>,
    /// The path to mark.
    pub marked_path: Option<PathOptions>,
    /// Whether to show only the noderoles of the marked path, individually.
    pub only_path: bool,
    /// Blueprint number. The graph of the cluster or of a deployment is shown as of this
    /// blueprint. Default: the newest one that has the deployment.
    pub blueprint: Option<BlueprintNumber>,
}

impl GraphView {
    /// The name of the graph: the deployment's, or `cluster`.
    pub fn name(&self) -> &str {
        self.deployment.as_ref().map_or("cluster", DeploymentName::as_str)
    }
}

impl GraphOptions {
    /// Query parameters of the options, for pages and the API. Lists are separated by commas;
    /// defaults are left out.
    pub fn query_params(&self) -> Vec<(&'static str, String)> {
        let has_focus = self.focus.is_some();
        let direction = match self.direction {
            GraphDirection::Both => None,
            GraphDirection::Up => Some("up"),
            GraphDirection::Down => Some("down"),
        };
        let (from, to, longest) = match &self.marked_path {
            None => (None, None, None),
            Some(PathOptions::From(from)) => (Some(from.clone()), None, None),
            Some(PathOptions::Between(from, to)) => (Some(from.clone()), Some(to.clone()), None),
            Some(PathOptions::Longest(Length::Count)) => (None, None, Some("count")),
            Some(PathOptions::Longest(Length::Time)) => (None, None, Some("time")),
        };
        let roles: Vec<&str> = self.roles.iter().map(RoleName::as_str).collect();
        let all = [
            ("roles", Some(roles.join(",")).filter(|list| !list.is_empty())),
            ("nodes", Some(self.nodes.join(",")).filter(|list| !list.is_empty())),
            ("focus", self.focus.clone()),
            ("direction", direction.filter(|_| has_focus).map(str::to_owned)),
            ("steps", self.steps.filter(|_| has_focus).map(|steps| steps.to_string())),
            ("from", from),
            ("to", to),
            ("longest", longest.map(str::to_owned)),
            ("blueprint", self.blueprint.map(|target| target.to_string())),
            ("only", self.only_path.then(|| "path".to_owned())),
        ];
        all.into_iter().filter_map(|(word, text)| Some((word, text?))).collect()
    }
}

/// A path to mark in a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathOptions {
    /// Start of a path whose end is not chosen yet. Nothing is marked.
    From(String),
    /// All paths between two vertices, by key.
    Between(String, String),
    /// The longest path.
    Longest(Length),
}

/// Measure of a path's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// Number of noderoles.
    Count,
    /// Total duration of their last successful runs.
    Time,
}

/// Direction from the focused vertex.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GraphDirection {
    /// Dependencies and dependents.
    #[default]
    Both,
    /// Dependencies.
    Up,
    /// Dependents.
    Down,
}
