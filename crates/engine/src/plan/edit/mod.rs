//! Edits: the typed steps of a proposal, one file per kind.
//!
//! An edit states what a person wants, not what follows from it. The client that creates an edit
//! mints the ids of new things and stores them in the edit. Resolving it again therefore gives the
//! same result.
//!
//! A new kind needs a file with its fields and its [`EditKind`], its lines in this file, an example
//! in `docs/edits.md`, and the OpenAPI document written again. A new effect that sets a value needs
//! an entry in [`Effects`](super::Effects) and its [`SetValue`](super::set_values) in the file of
//! the edit. A new setting needs an entry in [`ClashSubject`](super::conflicts::ClashSubject).

mod activate_jig;
mod add_role;
mod bind;
mod bind_nodes;
mod create_deployment;
mod expunge_node;
mod inherit_barclamp;
mod move_deployment;
mod move_node;
mod remove_deployment;
mod remove_role;
mod rerun;
mod rerun_slice;
mod set_connection;
mod set_hints;
mod set_noderole_data;
mod set_policy;
mod set_role_data;
mod unbind;
mod unbind_nodes;
mod use_barclamp;

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::conflicts::Conflicts;
use super::draft::Draft;
pub use super::names::EditNames;
use super::refusal::EditError;
use super::restore_goals::{Goal, State};
use crate::cluster::NoderoleKey;
use crate::ids::{DeploymentId, NodeId};
use crate::text::{deceptive_character, number};

/// The knowledge about one kind of edit.
pub(super) trait EditKind {
    /// Checks the edit by itself. [`Edit::check`] checks reasons and lists of every kind.
    fn check(&self) -> Result<(), EditError> {
        Ok(())
    }

    /// The edit's reason, for kinds that have one.
    fn reason(&self) -> Option<&str> {
        None
    }

    /// The nodes of a list edit.
    fn listed(&self) -> Option<&BTreeSet<NodeId>> {
        None
    }

    /// The single edits of a list edit, in order.
    fn each(&self) -> Option<Vec<Edit>> {
        None
    }

    /// Applies the edit with this number to the draft. The caller rolls it back on an error.
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError>;

    /// Records the settings that the edit changes, to find conflicts between authors.
    fn record(&self, conflicts: &mut Conflicts<'_>);

    /// The deployment that the edit writes. A proposal's scope must cover it.
    fn written(&self) -> Written<'_>;

    /// The node of an edit that may be part of a proposal on a node.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// The conditions of an earlier state that the edit can restore.
    fn goals(&self, _earlier: &State) -> Vec<Goal> {
        Vec::new()
    }

    /// The edit as text, in the imperative.
    fn text(&self, names: &dyn EditNames) -> String;
}

/// The deployment that an edit writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Written<'e> {
    Deployment(DeploymentId),
    /// The deployment of a node.
    Node(NodeId),
    /// The deployment in which a noderole is bound.
    Noderole(NodeId, &'e NoderoleKey),
    /// Every scope covers the edit.
    Any,
}

/// Declares the enum of all kinds and passes every method on to the kind.
macro_rules! kinds {
    ($($module:ident: $kind:ident,)+) => {
        $(pub use $module::$kind;)+

        /// One edit of a proposal.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "edit", rename_all = "snake_case")]
        pub enum Edit {
            $($kind($kind),)+
        }

        $(impl From<$kind> for Edit {
            fn from(edit: $kind) -> Self {
                Self::$kind(edit)
            }
        })+

        impl EditKind for Edit {
            fn check(&self) -> Result<(), EditError> {
                match self { $(Self::$kind(edit) => EditKind::check(edit),)+ }
            }

            fn reason(&self) -> Option<&str> {
                match self { $(Self::$kind(edit) => edit.reason(),)+ }
            }

            fn listed(&self) -> Option<&BTreeSet<NodeId>> {
                match self { $(Self::$kind(edit) => edit.listed(),)+ }
            }

            fn each(&self) -> Option<Vec<Edit>> {
                match self { $(Self::$kind(edit) => edit.each(),)+ }
            }

            fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
                match self { $(Self::$kind(edit) => edit.apply(draft, seq),)+ }
            }

            fn record(&self, conflicts: &mut Conflicts<'_>) {
                match self { $(Self::$kind(edit) => edit.record(conflicts),)+ }
            }

            fn written(&self) -> Written<'_> {
                match self { $(Self::$kind(edit) => edit.written(),)+ }
            }

            fn node(&self) -> Option<NodeId> {
                match self { $(Self::$kind(edit) => edit.node(),)+ }
            }

            fn goals(&self, earlier: &State) -> Vec<Goal> {
                match self { $(Self::$kind(edit) => edit.goals(earlier),)+ }
            }

            fn text(&self, names: &dyn EditNames) -> String {
                match self { $(Self::$kind(edit) => edit.text(names),)+ }
            }
        }
    };
}

// The order is that of the OpenAPI document.
kinds! {
    create_deployment: CreateDeployment,
    remove_deployment: RemoveDeployment,
    move_deployment: MoveDeployment,
    use_barclamp: UseBarclamp,
    inherit_barclamp: InheritBarclamp,
    add_role: AddRole,
    remove_role: RemoveRole,
    set_role_data: SetRoleData,
    bind: Bind,
    bind_nodes: BindNodes,
    unbind: Unbind,
    unbind_nodes: UnbindNodes,
    set_noderole_data: SetNoderoleData,
    move_node: MoveNode,
    set_connection: SetConnection,
    set_hints: SetHints,
    expunge_node: ExpungeNode,
    rerun: Rerun,
    rerun_slice: RerunSlice,
    activate_jig: ActivateJig,
    set_policy: SetPolicy,
}

pub use super::limits::{MAX_LEVELS, MAX_LISTED, MAX_REASON};
pub use set_hints::MAX_HINTS;
pub use set_policy::sign_in_demands;

impl Edit {
    /// The edit's reason, for edits that have one.
    pub fn reason(&self) -> Option<&str> {
        EditKind::reason(self)
    }

    /// The edit as text, in the imperative.
    pub fn text(&self, names: &impl EditNames) -> String {
        EditKind::text(self, names)
    }

    /// The single edits of a list edit, in order. Any other edit is its own single edit. Rules are
    /// checked on single edits, so list edits have no rules of their own.
    pub fn each(&self) -> Cow<'_, [Self]> {
        EditKind::each(self).map_or_else(|| Cow::Borrowed(std::slice::from_ref(self)), Cow::Owned)
    }

    /// The number of single edits.
    pub fn singles(&self) -> usize {
        self.listed().map_or(1, BTreeSet::len)
    }

    /// Checks an edit by itself, before it is resolved or stored.
    ///
    /// # Errors
    /// [`EditError`] if the reason, the node list or a new id is invalid.
    pub fn check(&self) -> Result<(), EditError> {
        EditKind::check(self)?;
        let length = self.reason().map_or(0, |reason| reason.chars().count());
        if length > MAX_REASON {
            return Err(EditError::LongReason { length });
        }
        if let Some(c) = self.reason().and_then(deceptive_character) {
            return Err(EditError::DeceptiveReason { number: number(c) });
        }
        match self.listed().map(BTreeSet::len) {
            Some(0) => Err(EditError::NoNodes),
            Some(length) if length > MAX_LISTED => Err(EditError::LongList { length }),
            _ => Ok(()),
        }
    }
}

/// An edit with its number in the proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NumberedEdit {
    /// Numbers start at 1 and rise by one. Numbers of undone edits are not reused.
    pub seq: u32,
    /// The edit.
    pub edit: Edit,
}
