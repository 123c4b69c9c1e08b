//! The planner in the browser: it computes the impact of a drop with the engine's own code, while
//! the nodes are dragged.
//!
//! The server has the last word. After each command, its hash of the proposal's effects is compared
//! with the predicted one. If they differ, the page stops planning and tells the user. It then
//! queries the server for each drag, which is slower but always correct.
//!
//! The planner is a separate chunk ([`crate::piece`]). It is loaded for readers who may edit
//! the open proposal. The board works without it and uses it only through [`Planning`].
//!
//! Durations are recorded in the browser's User Timing API, for profiling and for
//! `end2end/plan-speed.mjs`.

use std::fmt;
use std::sync::Arc;

use api::views::board::PlannerView;
use engine::Hash;
use engine::ids::{DeploymentId, NodeId, ProposalId};
use engine::plan::drop_preview::DropPreview;
use engine::plan::drop_preview::preview_drop;
use engine::plan::{Edit, NumberedEdit, PlanningContext};
use leptos::wasm_split::{SplitLoaderError, wasm_split};

use super::server_functions;

/// The base data for planning and its stamp.
#[derive(Debug)]
pub(super) struct PlanningBase {
    stamp: String,
    planning_data: PlanningContext,
}

/// A version of a proposal, with all data for planning on it.
pub(super) trait Planning: fmt::Debug + Send + Sync {
    fn planning_data(&self) -> &Arc<PlanningBase>;

    /// Whether it is about this version of this proposal.
    fn is_of(&self, proposal: ProposalId, version: i32) -> bool;

    fn is_at(&self, version: i32) -> bool;

    /// The valid roles for these nodes.
    fn preview_drop(&self, deployment: DeploymentId, nodes: &[NodeId]) -> DropPreview;

    /// The hash of the proposal's effects with further edits. `None` if an edit uses a new version
    /// of a barclamp, since the base data has only versions in use.
    fn effects_with(&self, edits: &[Edit]) -> Option<Hash>;

    /// The server's hash of the proposal's effects.
    fn effects(&self) -> Hash;
}

pub(super) type Planner = Arc<dyn Planning>;

/// The result of loading a planner. `None`: the proposal was closed, and the board will be
/// notified.
pub(super) type LoadResult = Option<Result<Planner, Unusable>>;

/// Fetches the data for planning the open proposal of a deployment. Reuses the last base data if
/// its stamp is current, so a request without news is cheap. Fails if the chunk cannot be loaded or
/// the server cannot be reached. Then the server is queried for each drag.
#[wasm_split(planner, fallible, wasm_split_path = ::leptos::wasm_split)]
pub(super) fn learn(
    deployment: DeploymentId,
    last: Option<Planner>,
) -> Result<LoadFuture, SplitLoaderError> {
    Ok(Box::pin(async move {
        let known = last.as_ref().map(|last| last.planning_data().stamp.clone());
        let view = server_functions::planner(deployment, known).await.ok().flatten()?;
        Some(Planned::of(view, last.as_ref()).map(|planned| Arc::new(planned) as Planner))
    }))
}

pub(super) type LoadFuture = std::pin::Pin<Box<dyn Future<Output = LoadResult>>>;

#[derive(Debug)]
struct Planned {
    stamped: Arc<PlanningBase>,
    proposal: ProposalId,
    version: i32,
    edits: Vec<NumberedEdit>,
    next: u32,
    /// The server's hash of the effects.
    effects: Hash,
}

/// Why the data from the server cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The base data is missing or incomplete and has to be sent again.
    PlanningData,
    /// The same edits have other effects here than on the server.
    EffectsDiffer,
}

impl Planned {
    /// Decodes the server's data. Uses the last base data if the server left it out.
    fn of(view: PlannerView, last: Option<&Planner>) -> Result<Self, Unusable> {
        let stamped = match view.planning_data {
            Some(sent) => {
                let planning_data = sent.open().map_err(|_| Unusable::PlanningData)?;
                Arc::new(PlanningBase { stamp: view.stamp, planning_data })
            }
            None => {
                let same =
                    last.map(|last| last.planning_data()).filter(|last| last.stamp == view.stamp);
                Arc::clone(same.ok_or(Unusable::PlanningData)?)
            }
        };
        let planned = Self {
            stamped,
            proposal: view.proposal,
            version: view.version,
            edits: view.edits,
            next: view.next,
            effects: view.effects,
        };
        // A planner with results other than the server's must not predict the impact of drops.
        match planned.effects_with(&[]) == Some(planned.effects) {
            true => Ok(planned),
            false => Err(Unusable::EffectsDiffer),
        }
    }
}

impl Planning for Planned {
    fn planning_data(&self) -> &Arc<PlanningBase> {
        &self.stamped
    }

    fn is_of(&self, proposal: ProposalId, version: i32) -> bool {
        (self.proposal, self.version) == (proposal, version)
    }

    fn is_at(&self, version: i32) -> bool {
        self.version == version
    }

    fn preview_drop(&self, deployment: DeploymentId, nodes: &[NodeId]) -> DropPreview {
        let PlanningContext { skeleton, catalog } = &self.stamped.planning_data;
        timed("gantry: drop preview", || {
            preview_drop(skeleton, catalog, &self.edits, self.next, deployment, nodes)
        })
    }

    fn effects_with(&self, edits: &[Edit]) -> Option<Hash> {
        let new =
            (self.next..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() });
        let new: Vec<NumberedEdit> = new.collect();
        timed("gantry: plan", || {
            self.stamped.planning_data.effects_with(&self.edits, &new)?.hash().ok()
        })
    }

    fn effects(&self) -> Hash {
        self.effects
    }
}

/// Runs `what` and records its duration in the browser's User Timing API.
fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let Some(timeline) = web_sys::window().and_then(|window| window.performance()) else {
        return work();
    };
    let marked = timeline.mark(name).is_ok();
    let done = work();
    if marked {
        // A full or disabled timeline must not prevent planning.
        let _ = timeline.measure_with_start_mark(name, name);
        timeline.clear_marks_with_mark_name(name);
    }
    done
}
