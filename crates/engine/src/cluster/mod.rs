//! The cluster as people mean it: deployments, nodes, and the noderoles that bind roles to nodes.
//!
//! Two shapes of one thing. The **documents** ([`document`]) are the truth of intent: what a blueprint stores under its hashes.
//! The **skeleton** ([`skeleton`]) is what planning needs of them, without data, small enough for a browser, and indexed for the
//! questions that binding asks. The **graph** ([`graph`]) is the same noderoles, folded for people to look at; a **trail** ([`trail`])
//! is a part of it that somebody asked for.
//!
//! Invariants of both:
//! * deployments form one tree under *system*;
//! * a node belongs to exactly one deployment and carries noderoles of it and of its ancestors only;
//! * there is one noderole for a node, role and instance, and its id is derived from these three;
//! * every edge of a noderole leads to one that exists, and ranks rise along edges, so the graph has no cycle.

pub mod connection;
pub mod document;
pub mod graph;
pub mod naming;
pub mod phantom;
pub mod skeleton;
pub mod trail;

pub use connection::{Connection, ConnectionChange, ConnectionError, Ssh};
pub use document::{
    Blueprint, BlueprintError, DeploymentDoc, DeploymentRoleDoc, EdgeDoc, EdgeKind, NodeDoc,
    NoderoleDoc, NoderoleKey, RootDoc,
};
pub use naming::{Hardware, NamingError, derived_name, mac_address};
pub use skeleton::{Skeleton, SkeletonDeployment, SkeletonNode, SkeletonNoderole};
