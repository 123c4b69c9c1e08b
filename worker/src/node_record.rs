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
    #[error(
        "the document of node {node} has no connection: propose it with gantry node edit {node} --propose"
    )]
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
    let reviewed =
        doc.connection.as_ref().and_then(|connection| serde_json::to_value(connection).ok());
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

/// Refuses the row of another node that a run sees when it differs from its document. A document without a connection says nothing
/// of addresses.
///
/// # Errors
/// When they differ.
pub fn check_seen(
    doc: &NodeDoc,
    fqdn: &str,
    phantom: bool,
    addresses: &[String],
) -> Result<(), RecordError> {
    let reviewed = doc.connection.as_ref().filter(|_| !doc.phantom);
    let compared = [
        ("fqdn", doc.fqdn.as_str() == fqdn),
        ("phantom", doc.phantom == phantom),
        ("addresses", reviewed.is_none_or(|connection| connection.addresses() == addresses)),
    ];
    let fields: Vec<_> =
        compared.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect();
    match fields.is_empty() {
        true => Ok(()),
        false => {
            Err(RecordError::Differs { node: doc.fqdn.to_string(), fields: fields.join(", ") })
        }
    }
}

/// The addresses that a document has; none of a phantom.
///
/// # Errors
/// When it has no connection: a run is not given fewer addresses than there are, nor those of a row that nobody reviewed.
pub fn addresses(doc: &NodeDoc) -> Result<&[String], RecordError> {
    match &doc.connection {
        _ if doc.phantom => Ok(&[]),
        Some(connection) => Ok(connection.addresses()),
        None => Err(RecordError::NoConnection { node: doc.fqdn.to_string() }),
    }
}

/// The connection of a node by the hash of its document; of a node without one, what its row says.
///
/// # Errors
/// As [`connection`], and when the document can't be read.
pub async fn connection_of(
    objects: &Objects,
    doc: Option<Hash>,
    row: &Value,
) -> Result<Value, RecordError> {
    match doc {
        Some(hash) => connection(&*objects.node(hash).await?, Some(row)),
        None => Ok(row.clone()),
    }
}

/// The keys of which two connections have different values.
fn differing(reviewed: &Value, row: &Value) -> Vec<String> {
    let empty = Map::new();
    let (reviewed, row) =
        (reviewed.as_object().unwrap_or(&empty), row.as_object().unwrap_or(&empty));
    let mut keys: Vec<&String> = reviewed.keys().chain(row.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().filter(|key| reviewed.get(*key) != row.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use engine::cluster::NodeDoc;
    use serde_json::{Value, json};

    use super::{addresses, check_seen};

    fn doc(phantom: bool, connection: Option<Value>) -> NodeDoc {
        let id = "00000000-0000-0000-0000-000000000001";
        let doc = json!({"id": id, "fqdn": "n0.test.gantry", "deployment": id, "phantom": phantom, "connection": connection, "noderoles": {}});
        serde_json::from_value(doc).expect("a document")
    }

    #[test]
    fn document_without_connection_gives_no_addresses() {
        let (old, row) = (doc(false, None), ["10.0.0.1".to_owned()]);
        assert!(check_seen(&old, "n0.test.gantry", false, &row).is_ok());
        let error = addresses(&old).expect_err("nothing was reviewed").to_string();
        assert!(error.contains("the document of node n0.test.gantry has no connection"), "{error}");
        assert_eq!(addresses(&doc(true, None)).expect("a phantom has none"), [""; 0]);
        let local = doc(false, Some(json!({"transport": "local", "root": "/"})));
        assert_eq!(addresses(&local).expect("a local node has none"), [""; 0]);
    }
}
