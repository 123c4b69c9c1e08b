//! The planner's report, with four lists for each stage: results, effects, waiting on, blocked by.
//!
//! The report answers "why is nothing happening?" even if the plan changes nothing. Every stage
//! therefore always reports something, with the relevant ids and the evidence. Long lists of lines,
//! edits and ids are cut, with a count of the rest.
//!
//! [Lint](crate::lint) is the last stage, because a change can take effect and still not work.
//!
//! The report is a function of skeleton, catalog, edits, effects and findings, so it is the same
//! everywhere. It is not part of the effects: a change of its wording does not void a review.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::canonical::Hash;
use crate::catalog::Catalog;
use crate::cluster::{NoderoleKey, Skeleton, phantom};
use crate::counting::{many, some_of};
use crate::ids::{DeploymentId, NodeId, NoderoleId, RoleName};
use crate::lint::{Finding, Level, LintCheck};
use crate::plan::effects::{Bound, EffectCause, Effects, Refusal};
use crate::plan::set_values::{ValueOwner, value_lines};
use crate::plan::{EditNames, NumberedEdit};

/// Maximum number of ids and of edits in one line.
pub const MAX_NAMED: usize = 50;
/// Maximum number of lines in a list. One more line counts the rest.
pub const MAX_LINES: usize = 50;

/// The result of planning, stage by stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The stages in the order of planning. All stages are always present.
    pub stages: Vec<StageReport>,
}

/// A stage of planning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The roles and versions that can be bound.
    Catalog,
    /// The edits that take effect.
    Edits,
    /// The noderoles that are added, removed or re-run.
    Bind,
    /// The deployments of nodes.
    Move,
    /// The edges between noderoles.
    Order,
    /// Whether the proposal can be submitted.
    Check,
    /// Problems of a change whose edits all take effect.
    Lint,
}

/// The report of one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// The checks of the stage and their results. Never empty.
    pub results: Vec<Line>,
    /// The effects of a commit.
    pub effects: Vec<Line>,
    /// Actions that the stage would take once something else is available.
    pub waiting_on: Vec<Line>,
    /// The reasons that prevent edits from taking effect.
    pub blocked_by: Vec<Line>,
}

/// One statement of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// The statement as text.
    pub text: String,
    /// The evidence as text.
    pub evidence: String,
    /// Numbers of the edits that caused it, at most 50.
    pub edits: BTreeSet<u32>,
    /// Number of further edits.
    #[serde(default)]
    pub more_edits: usize,
    /// The objects that it concerns, at most 50.
    pub subjects: Vec<Subject>,
    /// Number of further objects.
    pub more: usize,
}

/// An object that a line concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A deployment.
    Deployment(DeploymentId),
    /// A node.
    Node(NodeId),
    /// A noderole.
    Noderole(NoderoleId),
    /// The content hash of a barclamp or role.
    Content(Hash),
}

impl Line {
    fn new(text: impl Into<String>, evidence: impl Into<String>) -> Self {
        let (edits, about) = (BTreeSet::new(), Vec::new());
        Self {
            text: text.into(),
            evidence: evidence.into(),
            edits,
            more_edits: 0,
            subjects: about,
            more: 0,
        }
    }

    fn about(mut self, subjects: impl IntoIterator<Item = Subject>) -> Self {
        self.subjects = subjects.into_iter().collect();
        self.more = self.subjects.len().saturating_sub(MAX_NAMED);
        self.subjects.truncate(MAX_NAMED);
        self
    }

    fn by(mut self, edits: impl IntoIterator<Item = u32>) -> Self {
        let mut all: BTreeSet<u32> = edits.into_iter().collect();
        self.more_edits = all.len().saturating_sub(MAX_NAMED);
        if let Some(first_left_out) = all.iter().nth(MAX_NAMED).copied() {
            all.split_off(&first_left_out);
        }
        self.edits = all;
        self
    }
}

impl StageReport {
    fn new(stage: Stage) -> Self {
        Self {
            stage,
            results: Vec::new(),
            effects: Vec::new(),
            waiting_on: Vec::new(),
            blocked_by: Vec::new(),
        }
    }

    fn bounded(mut self) -> Self {
        for lines in
            [&mut self.results, &mut self.effects, &mut self.waiting_on, &mut self.blocked_by]
        {
            let more = lines.len().saturating_sub(MAX_LINES);
            if more > 0 {
                lines.truncate(MAX_LINES);
                lines.push(Line::new(
                    format!("{more} more like these"),
                    format!("only the first {MAX_LINES} are listed"),
                ));
            }
        }
        self
    }
}

/// Builds the report on these edits. `findings` are those of lint. `None`: the effects cannot be
/// materialized, so lint could not run.
pub fn report(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
    effects: &Effects,
    findings: Option<&[Finding]>,
) -> Report {
    let input = ReportInput { skeleton, catalog, edits, effects };
    let mut stages = vec![
        input.catalog(),
        input.edits(),
        input.bind(),
        input.moves(),
        input.order(),
        input.check(),
        lint(findings),
    ];
    for (stage, line) in input.set_values() {
        if let Some(report) = stages.iter_mut().find(|report| report.stage == stage) {
            report.effects.push(line);
        }
    }
    for refusal in &effects.refused {
        let stage = stage_of(&refusal.code);
        if let Some(report) = stages.iter_mut().find(|report| report.stage == stage) {
            report.blocked_by.push(refused(refusal));
        }
    }
    Report { stages: stages.into_iter().map(StageReport::bounded).collect() }
}

fn lint(findings: Option<&[Finding]>) -> StageReport {
    let mut report = StageReport::new(Stage::Lint);
    let Some(findings) = findings else {
        report
            .results
            .push(Line::new("Lint did not run", "the plan cannot be written as documents"));
        report
            .waiting_on
            .push(Line::new("A plan that can be written as documents", "lint checks documents"));
        return report;
    };
    let is = |level: Level| findings.iter().filter(move |finding| finding.level == level);
    let (errors, warnings) = (is(Level::Error).count(), is(Level::Warning).count());
    let text = format!("{} and {}", many(errors, "error"), many(warnings, "warning"));
    report.results.push(Line::new(
        text,
        format!("{} ran on the planned documents", many(LintCheck::ALL.len(), "check")),
    ));
    let line = |finding: &Finding| {
        let about = finding.noderole.map(Subject::Noderole);
        Line::new(finding.to_string(), format!("check {}", finding.check.id())).about(about)
    };
    report.blocked_by.extend(is(Level::Error).map(line));
    report.results.extend(is(Level::Warning).map(line));
    report
}

fn refused(refusal: &Refusal) -> Line {
    Line::new(
        refusal.reason.clone(),
        format!("edit {} was rejected: {}", refusal.edit, refusal.code),
    )
    .by([refusal.edit])
}

/// The stage that refuses edits with this error code.
fn stage_of(code: &str) -> Stage {
    match code {
        "catalog"
        | "unknown_role"
        | "unresolved_require"
        | "other_barclamp"
        | "no_such_jig"
        | "inactive_jig"
        | "unknown_jig"
        | "jig_state_unchanged"
        | "version_unfit"
        | "duplicate_role"
        | "no_own_version"
        | "barclamp_in_use"
        | "served_by_other_version" => Stage::Catalog,
        "abstract"
        | "conflict"
        | "name_already_provided"
        | "already_bound"
        | "too_deep"
        | "needed"
        | "barrier"
        | "barrier_is_automatic"
        | "role_in_use"
        | "nothing_to_rerun" => Stage::Bind,
        "sibling" | "phantom" | "would_leave_behind" | "already_there" | "node_needed"
        | "not_empty" | "root_deployment" | "tree_too_deep" => Stage::Move,
        "role_cycle" | "noderole_cycle" => Stage::Order,
        "policy" => Stage::Check,
        _ => Stage::Edits,
    }
}

struct ReportInput<'a> {
    skeleton: &'a Skeleton,
    catalog: &'a Catalog,
    edits: &'a [NumberedEdit],
    effects: &'a Effects,
}

impl ReportInput<'_> {
    fn deployment(&self, id: DeploymentId) -> String {
        let new = self.effects.deployments.iter().find(|d| d.id == id).map(|d| d.name.to_string());
        let known = self.skeleton.deployments.get(&id).map(|d| d.name.to_string());
        known.or(new).unwrap_or_else(|| id.to_string())
    }

    fn catalog(&self) -> StageReport {
        let mut report = StageReport::new(Stage::Catalog);
        let used: BTreeSet<Hash> = self
            .skeleton
            .deployments
            .values()
            .flat_map(|d| d.barclamps.values().copied())
            .collect();
        let roles: usize = used
            .iter()
            .filter_map(|pin| self.catalog.barclamp(*pin).ok())
            .map(|b| b.roles.len())
            .sum();
        let text =
            format!("{} and {} are in use", many(used.len(), "barclamp"), many(roles, "role"));
        report.results.push(
            Line::new(text, "pinned by deployments")
                .about(used.iter().map(|pin| Subject::Content(*pin))),
        );
        for pin in &self.effects.barclamps {
            let text = format!(
                "Deployment {} uses {} {}",
                self.deployment(pin.deployment),
                pin.barclamp,
                pin.version.short()
            );
            let about = [Subject::Deployment(pin.deployment), Subject::Content(pin.version)];
            report
                .effects
                .push(Line::new(text, cause_text(&pin.cause)).about(about).by([pin.cause.edit()]));
        }
        for gone in &self.effects.unpinned {
            let text = match gone.to {
                Some(to) => {
                    let place = self.deployment(gone.deployment);
                    format!("Deployment {place} inherits {} {}", gone.barclamp, to.short())
                }
                None => {
                    format!(
                        "Deployment {} no longer uses {}",
                        self.deployment(gone.deployment),
                        gone.barclamp
                    )
                }
            };
            let about = [Subject::Deployment(gone.deployment)];
            let about = about.into_iter().chain(gone.to.map(Subject::Content));
            report.effects.push(
                Line::new(text, cause_text(&gone.cause)).about(about).by([gone.cause.edit()]),
            );
        }
        let coming: BTreeSet<Hash> = self.effects.barclamps.iter().map(|pin| pin.version).collect();
        for (hash, barclamp) in self.catalog.barclamps() {
            if !used.contains(&hash) && !coming.contains(&hash) {
                let text = format!(
                    "Barclamp {} {} is imported but not used",
                    barclamp.name, barclamp.version
                );
                let evidence = "no deployment pins it yet";
                report.waiting_on.push(Line::new(text, evidence).about([Subject::Content(hash)]));
            }
        }
        report
    }

    /// The values that edits set, each with its stage.
    fn set_values(&self) -> impl Iterator<Item = (Stage, Line)> {
        value_lines(self.effects, self).map(|(cause, text, owner)| {
            let line = Line::new(text, cause_text(cause)).by([cause.edit()]);
            match owner {
                ValueOwner::Deployment(id) => (Stage::Edits, line.about([Subject::Deployment(id)])),
                ValueOwner::Node(id) => (Stage::Edits, line.about([Subject::Node(id)])),
                ValueOwner::Noderole(id) => (Stage::Edits, line.about([Subject::Noderole(id)])),
                ValueOwner::Catalog => (Stage::Catalog, line),
                ValueOwner::Policy => (Stage::Check, line),
            }
        })
    }

    fn edits(&self) -> StageReport {
        let mut report = StageReport::new(Stage::Edits);
        let refused: BTreeSet<u32> = self.effects.refused.iter().map(|r| r.edit).collect();
        let taken: BTreeSet<u32> =
            self.edits.iter().map(|e| e.seq).filter(|seq| !refused.contains(seq)).collect();
        let take = if self.edits.len() == 1 { "takes" } else { "take" };
        let text = format!("{} of {} {take} effect", taken.len(), many(self.edits.len(), "edit"));
        report
            .results
            .push(Line::new(text, "each edit applies on top of the previous ones").by(taken));
        if self.edits.is_empty() {
            report.waiting_on.push(Line::new("An edit", "the proposal has none"));
        }
        report
    }

    fn node(&self, id: NodeId) -> String {
        let new = || {
            self.effects
                .deployments
                .iter()
                .find(|new| new.phantom == id)
                .map(|new| &new.phantom_fqdn)
        };
        let fqdn = self.skeleton.nodes.get(&id).map(|node| &node.fqdn).or_else(new);
        let name = |deployment| Some(self.deployment(deployment));
        fqdn.map_or_else(|| id.to_string(), |fqdn| phantom::short_name(fqdn, name).into_owned())
    }

    /// Why something happens on a node. A phantom node is not named.
    fn evidence(&self, node: NodeId, cause: &EffectCause) -> String {
        let known = self.skeleton.nodes.get(&node).map(|found| found.phantom);
        let phantom =
            known.unwrap_or_else(|| self.effects.deployments.iter().any(|new| new.phantom == node));
        match cause {
            EffectCause::Required { by, implicit: true, .. } if phantom => {
                format!("required by {by} for {}", self.node(node))
            }
            _ => cause_text(cause),
        }
    }

    fn bind(&self) -> StageReport {
        let mut report = StageReport::new(Stage::Bind);
        let bound_count: usize =
            self.skeleton.nodes.values().map(|node| node.noderoles.len()).sum();
        let machines = self.skeleton.nodes.values().filter(|node| !node.phantom);
        let carriers = machines.filter(|node| !node.noderoles.is_empty()).count();
        let text =
            format!("{} on {} are bound", many(bound_count, "noderole"), many(carriers, "node"));
        report.results.push(Line::new(text, "the blueprint that the plan is based on"));
        let thing = |noderole: &NoderoleKey, node: NodeId, cause: &EffectCause| ChangedNoderole {
            role: noderole.role.clone(),
            id: noderole.id(node),
            evidence: self.evidence(node, cause),
            edit: cause.edit(),
        };
        let bound = self.effects.bound.iter().map(|b| thing(&b.noderole, b.node, &b.cause));
        report.effects.extend(lines_by_role("Bind", bound));
        let unbound = self.effects.unbound.iter().map(|u| thing(&u.noderole, u.node, &u.cause));
        report.effects.extend(lines_by_role("Unbind", unbound));
        let reruns = self.effects.reruns.iter().map(|r| thing(&r.noderole, r.node, &r.cause));
        report.effects.extend(lines_by_role("Run again", reruns));
        let repinned: Vec<Subject> = self
            .effects
            .repinned
            .iter()
            .filter_map(|r| r.node.map(|node| Subject::Noderole(r.noderole.id(node))))
            .collect();
        if !repinned.is_empty() {
            let text =
                format!("{} get another version of their role", many(repinned.len(), "noderole"));
            report.effects.push(
                Line::new(text, "their deployment uses another version of the barclamp")
                    .about(repinned),
            );
        }
        report
    }

    fn moves(&self) -> StageReport {
        let mut report = StageReport::new(Stage::Move);
        let machines = self.skeleton.nodes.values().filter(|node| !node.phantom).count();
        let deployments = many(self.skeleton.deployments.len(), "deployment");
        report.results.push(Line::new(
            format!("{} in {deployments}", many(machines, "node")),
            "the deployments of the nodes",
        ));
        for new in &self.effects.deployments {
            let text =
                format!("Deployment {} is created below {}", new.name, self.deployment(new.parent));
            let line = Line::new(text, cause_text(&new.cause)).about([Subject::Deployment(new.id)]);
            report.effects.push(line.by([new.cause.edit()]));
        }
        for gone in &self.effects.removed_deployments {
            let line = Line::new(format!("Deployment {} is removed", gone.name), "it is empty");
            report.effects.push(line.about([Subject::Deployment(gone.id)]).by([gone.cause.edit()]));
        }
        for moved in &self.effects.moved_deployments {
            let [deployment, from, to] =
                [moved.deployment, moved.from, moved.to].map(|id| self.deployment(id));
            let text = format!("Deployment {deployment} moves from {from} to {to}");
            let line = Line::new(text, cause_text(&moved.cause));
            let about = [Subject::Deployment(moved.deployment)];
            report.effects.push(line.about(about).by([moved.cause.edit()]));
        }
        for moved in &self.effects.moved {
            let (from, to) = (self.deployment(moved.from), self.deployment(moved.to));
            let text = format!("Node {} moves from {from} to {to}", self.node(moved.node));
            let line = Line::new(text, cause_text(&moved.cause)).about([Subject::Node(moved.node)]);
            report.effects.push(line.by([moved.cause.edit()]));
        }
        for gone in &self.effects.expunged {
            let line =
                Line::new(format!("Node {} is expunged", gone.fqdn.short()), gone.reason.clone());
            report.effects.push(line.about([Subject::Node(gone.node)]).by([gone.cause.edit()]));
        }
        let touched: BTreeSet<NodeId> = self.effects.bound.iter().map(|b| b.node).collect();
        let idle: Vec<Subject> = self
            .skeleton
            .nodes
            .iter()
            .filter(|(id, node)| {
                !node.phantom && node.noderoles.is_empty() && !touched.contains(id)
            })
            .map(|(id, _)| Subject::Node(*id))
            .collect();
        if !idle.is_empty() {
            let text = format!("A role for {}", many(idle.len(), "node"));
            report.waiting_on.push(Line::new(text, "they have no noderole").about(idle));
        }
        report
    }

    fn order(&self) -> StageReport {
        let mut report = StageReport::new(Stage::Order);
        let ranks =
            self.skeleton.nodes.values().flat_map(|node| &node.noderoles).map(|(_, n)| n.rank + 1);
        let text = format!(
            "The longest path through the graph has {}",
            many(ranks.max().unwrap_or(0) as usize, "step")
        );
        report.results.push(Line::new(text, "ranks of the existing noderoles"));
        // The number of waves is part of the impact and not of this report. It depends on exclusive
        // steps per node and on re-runs.
        if let Some(lowest) = self.effects.bound.iter().map(|b| b.rank).min() {
            let first: Vec<&Bound> =
                self.effects.bound.iter().filter(|b| b.rank == lowest).collect();
            let text = format!("New work begins with {}", many(first.len(), "noderole"));
            let line = Line::new(text, "no other new noderole precedes them in the graph");
            let line = line.by(self.effects.bound.iter().map(|b: &Bound| b.cause.edit()));
            report.effects.push(line.about(first.into_iter().map(|b| Subject::Noderole(b.id))));
        }
        if !self.effects.rewired.is_empty() {
            let text =
                format!("{} get other parents", many(self.effects.rewired.len(), "noderole"));
            let about =
                self.effects.rewired.iter().map(|r| Subject::Noderole(r.noderole.id(r.node)));
            report
                .effects
                .push(Line::new(text, "their parents were added or removed").about(about));
        }
        report
    }

    fn check(&self) -> StageReport {
        let mut report = StageReport::new(Stage::Check);
        let hash =
            self.effects.hash().map(|hash| hash.short()).unwrap_or_else(|error| error.to_string());
        report.results.push(Line::new("The effects are identified by their hash", hash));
        if self.effects.is_empty() {
            report.waiting_on.push(Line::new("A change to review", "the edits change nothing"));
        } else if self.effects.refused.is_empty() {
            report.waiting_on.push(Line::new(
                "A review and the verdicts of other people",
                "every edit takes effect",
            ));
        }
        if !self.effects.refused.is_empty() {
            let text = format!(
                "{} must be undone first",
                many(self.effects.refused.len(), "rejected edit")
            );
            let line = Line::new(text, "all edits of a review must take effect");
            report.blocked_by.push(line.by(self.effects.refused.iter().map(|r| r.edit)));
        }
        report
    }
}

impl EditNames for ReportInput<'_> {
    fn deployment(&self, id: DeploymentId) -> String {
        ReportInput::deployment(self, id)
    }

    fn in_deployment(&self, deployment: DeploymentId) -> String {
        format!(" in {}", self.deployment(deployment))
    }

    fn version(&self, hash: Hash) -> String {
        hash.short()
    }

    fn node(&self, id: NodeId) -> String {
        ReportInput::node(self, id)
    }

    fn nodes(&self, nodes: &BTreeSet<NodeId>) -> String {
        some_of(&nodes.iter().map(|node| self.node(*node)).collect::<Vec<_>>())
    }
}

/// A noderole that the plan changes.
struct ChangedNoderole {
    role: RoleName,
    id: NoderoleId,
    evidence: String,
    edit: u32,
}

/// One line for each role and reason.
fn lines_by_role<'a>(
    verb: &'a str,
    changes: impl Iterator<Item = ChangedNoderole>,
) -> impl Iterator<Item = Line> + 'a {
    let mut grouped: BTreeMap<(RoleName, String), (Vec<Subject>, BTreeSet<u32>)> = BTreeMap::new();
    for ChangedNoderole { role, id, evidence, edit } in changes {
        let (ids, edits) = grouped.entry((role, evidence)).or_default();
        ids.push(Subject::Noderole(id));
        edits.insert(edit);
    }
    grouped.into_iter().map(move |((role, evidence), (ids, edits))| {
        Line::new(format!("{verb} {role}: {}", many(ids.len(), "noderole")), evidence)
            .by(edits)
            .about(ids)
    })
}

fn cause_text(cause: &EffectCause) -> String {
    match cause {
        EffectCause::Requested { .. } => "requested by an edit".into(),
        EffectCause::Required { by, implicit: true, .. } => {
            format!("required by {by} on its own node")
        }
        EffectCause::Required { by, implicit: false, .. } => format!("because of {by}"),
    }
}
