//! The desired state of the cluster: deployments, nodes, and the noderoles that bind roles to
//! nodes.
//!
//! The documents ([`document`]) are the source of truth for intent; a blueprint stores them by
//! hash. The skeleton ([`skeleton`]) is the part of them that planning needs. It has no data, is
//! small enough for a browser, and is indexed for binding. [`change`] lists
//! the documents that differ. The graph ([`graph`]) shows the same
//! noderoles folded into vertices, and a marked path ([`marked_path`]) is a selected part of it.
//!
//! Invariants of documents and skeleton:
//!
//! * Deployments form one tree under *system*.
//! * A node belongs to exactly one deployment and has noderoles of it and of its ancestors only.
//! * There is one noderole per node, role and instance, and its id is derived from these three.
//! * Every edge of a noderole leads to an existing one. Ranks rise along edges, so there is no
//!   cycle.

pub mod change;
pub mod connection;
pub mod document;
pub mod graph;
pub mod marked_path;
pub mod naming;
pub mod phantom;
pub mod skeleton;

pub use connection::{Connection, ConnectionChange, ConnectionError, Ssh};
pub use document::{
    Blueprint, BlueprintError, DeploymentDoc, DeploymentRoleDoc, EdgeDoc, EdgeKind, NodeDoc,
    NoderoleDoc, NoderoleKey, RootDoc,
};
pub use naming::{Hardware, NamingError, derive_node_name, mac_address};
pub use skeleton::{Skeleton, SkeletonDeployment, SkeletonNode, SkeletonNoderole};
