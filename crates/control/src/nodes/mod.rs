//! Nodes: records, connections, lists of new nodes, reports of nodes, and permitted addresses.

pub mod address_policy;
pub(crate) mod connection;
pub(crate) mod hardware;
pub(crate) mod node;
pub(crate) mod node_list;
pub(crate) mod records;
pub(crate) mod self_reports;
