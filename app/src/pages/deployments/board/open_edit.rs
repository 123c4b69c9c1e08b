//! The state of the edit dialog: which form is open, and on what.
//!
//! [`BoardState`](super::board_state::BoardState) holds this state. The forms themselves are in
//! [`edit_dialog`](super::edit_dialog), which uses the board.

use api::runs::StepState;
use api::views::board::{Board, BoardNoderole, BoardRole, TrayNode};
use engine::cluster::NoderoleKey;
use engine::counting::many;
use engine::ids::{DeploymentName, NodeId, NoderoleId, RoleName};

use crate::pages::proposals::{About, Named, NoderoleOnNode};

/// The content of the dialog.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OpenEdit {
    /// The menu of further edits.
    More,
    /// The menu of a node.
    Menu(Subject),
    About(About),
    /// Moves nodes to another deployment.
    Move(Vec<NodeInDeployment>),
    /// Moves nodes here. Contains the initial filter of their names.
    MoveHere(String),
    /// Changes the versions of barclamps.
    Version,
    /// Creates a child deployment.
    Child,
    /// Moves the deployment below another parent.
    MoveDeployment,
    RemoveDeployment,
    /// Enables and disables jigs.
    Jigs,
    /// The approval policy.
    Policy,
    /// The data of a role in this deployment.
    RoleData(BoardRole),
    /// Runs a role again.
    RerunRole(BoardRole),
    RemoveRole(RoleName),
    AddRole,
    /// Selects nodes for a role.
    SelectNodes(RoleName),
    /// Lists all nodes with a role.
    NodesWithRole(BoardRoleRef),
}

/// A node and its deployment, if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeInDeployment {
    pub(super) named: Named,
    pub(super) deployment: Option<DeploymentName>,
}

/// A role of a board: the deployment's own, or one of an ancestor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoardRoleRef {
    pub(super) role: RoleName,
    pub(super) of_ancestor: Option<DeploymentName>,
}

impl BoardRoleRef {
    pub(super) fn title(&self) -> String {
        format!("Nodes with {}", self.role)
    }
}

/// A node, and its role if the menu was opened on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) named: Named,
    /// Its full name and state.
    pub(super) about: String,
    /// Its deployment, if known.
    pub(super) deployment: Option<DeploymentName>,
    pub(super) of: Option<MenuNoderole>,
}

/// The noderole on which a menu was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MenuNoderole {
    pub(super) role: RoleName,
    pub(super) id: NoderoleId,
    /// Whether the noderole is only proposed.
    pub(super) proposed: bool,
    pub(super) runs_remove: bool,
}

impl Subject {
    /// A node of the tray.
    pub(super) fn in_tray(board: &Board, id: NodeId) -> Option<Self> {
        let node = board.tray.iter().find(|node| node.node == id)?;
        Some(Self {
            named: Named { node: id, short: node.short.clone() },
            about: node_summary(node),
            deployment: Some(node.deployment.clone()),
            of: None,
        })
    }

    /// A node in a role's cell.
    pub(super) fn from_cell(board: &Board, role: &RoleName, noderole: &BoardNoderole) -> Self {
        let known = Self::in_tray(board, noderole.node);
        Self {
            named: Named { node: noderole.node, short: noderole.short.clone() },
            about: known
                .as_ref()
                .map_or_else(|| noderole.fqdn.clone(), |known| known.about.clone()),
            deployment: known.and_then(|known| known.deployment),
            of: Some(MenuNoderole {
                role: role.clone(),
                id: noderole.noderole,
                proposed: noderole.state == StepState::Proposed,
                runs_remove: noderole.runs_remove,
            }),
        }
    }

    pub(super) fn title(&self) -> String {
        match &self.of {
            Some(of) => format!("{} on {}", of.role, self.named.short),
            None => self.named.short.clone(),
        }
    }

    /// The noderole, with its node.
    pub(super) fn carried(&self) -> Option<NoderoleOnNode> {
        let of = self.of.as_ref()?;
        Some(NoderoleOnNode {
            on: self.named.clone(),
            noderole: NoderoleKey::first(of.role.clone()),
            runs_remove: of.runs_remove,
        })
    }
}

/// The full name, deployment and state of a node.
pub(super) fn node_summary(node: &TrayNode) -> String {
    let alive = if node.alive { "alive" } else { "dead" };
    format!("{}\nin {}, {alive}, {}", node.fqdn, node.deployment, many(node.noderoles, "noderole"))
}
