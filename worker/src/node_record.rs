//! The connection of a node, from its document.
//!
//! A worker hands out secrets only to the machine that was reviewed. So the connection comes from the node's document, which is read
//! by its hash, and a row that differs from the document stops whatever asked. Only a node in no blueprint, where no run starts, is
//! reached as its row says.

use engine::Hash;
use engine::cluster::NodeDoc;
use serde_json::{Map, Value};

use crate::objects::{ObjectError, Objects};

/// Why a node is not reached.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The row says something else than the document.
    #[error(
        "the row of node {node} differs from its document ({fields}): gantry verify shows both; restore the row, or propose the change \
         with gantry node edit {node} --propose"
    )]
    Differs {
        /// The node's name.
        node: String,
        /// The fields that differ.
        fields: String,
    },
    /// The document is from before connections were part of it.
    #[error("the document of node {node} has no connection: propose it with gantry node edit {node} --propose")]
    NoConnection {
        /// The node's name.
        node: String,
    },
    /// The document can't be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// The connection that a document has, in JSON; null for a phantom.
///
/// # Errors
/// When the row says something else, or the document has none.
pub fn connection(doc: &NodeDoc, row: Option<&Value>) -> Result<Value, RecordError> {
    if doc.phantom {
        return Ok(Value::Null);
    }
    let node = || doc.fqdn.to_string();
    let reviewed = doc.connection.as_ref().and_then(|connection| serde_json::to_value(connection).ok());
    let Some(reviewed) = reviewed else { return Err(RecordError::NoConnection { node: node() }) };
    match differing(&reviewed, row.unwrap_or(&Value::Null)) {
        fields if fields.is_empty() => Ok(reviewed),
        fields => Err(RecordError::Differs { node: node(), fields: fields.join(", ") }),
    }
}

/// Refuses a row whose hints are not those of the document.
///
/// # Errors
/// When they differ.
pub fn check_hints(doc: &NodeDoc, row: &Value) -> Result<(), RecordError> {
    if doc.phantom || row.as_object().is_some_and(|hints| *hints == doc.hints) {
        return Ok(());
    }
    Err(RecordError::Differs { node: doc.fqdn.to_string(), fields: "hints".to_owned() })
}

/// The connection of a node by the hash of its document; of a node without one, what its row says.
///
/// # Errors
/// As [`connection`], and when the document can't be read.
pub async fn connection_of(objects: &Objects, doc: Option<Hash>, row: &Value) -> Result<Value, RecordError> {
    match doc {
        Some(hash) => connection(&*objects.node(hash).await?, Some(row)),
        None => Ok(row.clone()),
    }
}

/// The keys of which two connections have different values.
fn differing(reviewed: &Value, row: &Value) -> Vec<String> {
    let empty = Map::new();
    let (reviewed, row) = (reviewed.as_object().unwrap_or(&empty), row.as_object().unwrap_or(&empty));
    let mut keys: Vec<&String> = reviewed.keys().chain(row.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().filter(|key| reviewed.get(*key) != row.get(*key)).cloned().collect()
}
