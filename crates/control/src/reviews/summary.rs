//! The data that a submission stores for its review page.

use std::collections::BTreeMap;

use api::proposals::{ClashView, NotRestored};
use api::reviews::WaveView;
use engine::blueprint::impact::Impact;
use engine::blueprint::text::NamedNoderole;
use engine::ids::{DeploymentId, DeploymentName, NoderoleId};
use serde::{Deserialize, Serialize};

/// Data that a submission stores for its review page, so that the page never changes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The text for lists. Empty in old submissions; then lists show the first of `lines`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub short: String,
    pub lines: Vec<String>,
    /// How many of the first lines are severe. `None` in old submissions.
    #[serde(default)]
    pub severe_count: Option<usize>,
    /// The subset of `lines` that describes the edits, without their impact.
    #[serde(default)]
    pub requested: Vec<String>,
    pub waves: Vec<WaveView>,
    #[serde(default)]
    pub impact: Impact,
    #[serde(default)]
    pub findings: Vec<engine::lint::Finding>,
    pub brought: BTreeMap<NoderoleId, String>,
    pub deployments: BTreeMap<DeploymentId, DeploymentName>,
    /// Parents of changed noderoles that the difference itself does not contain.
    #[serde(default)]
    pub noderoles: BTreeMap<NoderoleId, NamedNoderole>,
    /// Parts of the restored state that the proposal leaves out.
    #[serde(default)]
    pub not_restored: Option<NotRestored>,
    /// Edits of one author that override another author's.
    #[serde(default)]
    pub clashes: Vec<ClashView>,
}
