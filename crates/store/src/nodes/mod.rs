//! Nodes: their records, health checks, reports and tokens.

mod health_checks;
mod list;
mod node;
mod records;
mod reports;
mod tokens;

pub use health_checks::{
    AsOf, DueNode, HealthCheckResult, due_nodes, orphaned_attempts, reached_addresses,
    record_health_check,
};
#[cfg(test)]
pub(crate) use list::node_query;
pub use list::{
    NodeFilter, NodeModel, NodeRow, local_nodes, node_liveness, node_step_counts, nodes, unreached,
};
pub use node::{
    FactRow, HealthCheckFilter, HealthCheckRow, MAX_NODE_NODEROLES, NodeDetailRow,
    NodeNoderoleFilter, NodeNoderoleRow, ReportRow, any_node_detail, facts, health_checks,
    node_detail, node_detail_by_name, noderoles_of_node, reports,
};
pub use records::{
    NewNode, NodeRecord, UndocumentedNodeRow, insert_node, lock_node_inserts, lock_node_record,
    remove_node_record, removed_ids, set_hardware, undocumented_nodes, update_node_record,
};
pub use reports::{MAX_REPORTS, Report, ReportOutcome, Reporter, append_report};
pub use tokens::{
    MAX_TOKENS, NodeTokenRow, authenticate_node, insert_node_token, node_tokens, revoke_node_token,
};
