//! Reads the connection of a node from its document.
//!
//! A worker sends secrets only to the machine that was reviewed. It therefore takes the connection
//! from the node's document, read by hash. If the row differs from the document, the operation
//! fails. A node outside of all blueprints has no document. It is reached as its row says, and no
//! run starts there.

use engine::Hash;
use engine::cluster::NodeDoc;
use serde_json::{Map, Value};

use crate::database::objects::{ObjectError, Objects};

/// Why a node can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The row differs from the document.
    #[error(
        "The record of node {node} differs from its document ({fields}). `gantry verify` shows \
         both. Restore the row, or propose the change with `gantry node edit {node} --propose`."
    )]
    Differs {
        node: String,
        /// Names of the fields that differ.
        fields: String,
    },
    /// The document is older than the connection field.
    #[error(
        "The document of node {node} has no connection. Propose one with `gantry node edit {node} \
         --propose`."
    )]
    NoConnection { node: String },
    /// The document can't be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Returns the connection of a document as JSON; null for a phantom node.
///
/// # Errors
/// If the row differs, or the document has no connection.
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

/// Checks that the hints of a row equal those of the document.
///
/// # Errors
/// If they differ.
pub fn check_hints(doc: &NodeDoc, row: &Value) -> Result<(), RecordError> {
    if doc.phantom || row.as_object().is_some_and(|hints| *hints == doc.hints) {
        return Ok(());
    }
    Err(RecordError::Differs { node: doc.fqdn.to_string(), fields: "hints".to_owned() })
}

/// Checks the row of another node that a run sees against that node's document. Ignores addresses
/// if the document has no connection.
///
/// # Errors
/// If they differ.
pub fn check_visible(
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
        compared.into_iter().filter(|(_, is_equal)| !is_equal).map(|(field, _)| field).collect();
    match fields.is_empty() {
        true => Ok(()),
        false => {
            Err(RecordError::Differs { node: doc.fqdn.to_string(), fields: fields.join(", ") })
        }
    }
}

/// Returns the addresses of a document; none for a phantom node.
///
/// # Errors
/// If the document has no connection. An empty list would be wrong, and the row's addresses are not
/// reviewed.
pub fn addresses(doc: &NodeDoc) -> Result<&[String], RecordError> {
    match &doc.connection {
        _ if doc.phantom => Ok(&[]),
        Some(connection) => Ok(connection.addresses()),
        None => Err(RecordError::NoConnection { node: doc.fqdn.to_string() }),
    }
}

/// Returns the connection of a node from the document with this hash. Without a hash, returns the
/// row's connection.
///
/// # Errors
/// As for [`connection`], and if the document can't be read.
pub async fn load_connection(
    objects: &Objects,
    doc: Option<Hash>,
    row: &Value,
) -> Result<Value, RecordError> {
    match doc {
        Some(hash) => connection(&*objects.node(hash).await?, Some(row)),
        None => Ok(row.clone()),
    }
}

/// Keys whose values differ between two connections.
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

    use super::{addresses, check_visible};

    fn doc(phantom: bool, connection: Option<Value>) -> NodeDoc {
        let id = "00000000-0000-0000-0000-000000000001";
        let doc = json!(
            {
                "id": id, "fqdn": "n0.test.gantry", "deployment": id, "phantom": phantom,
                "connection": connection, "noderoles": {}
            }
        );
        serde_json::from_value(doc).expect("a document")
    }

    #[test]
    fn document_without_connection_gives_no_addresses() {
        let (old, row) = (doc(false, None), ["10.0.0.1".to_owned()]);
        assert!(check_visible(&old, "n0.test.gantry", false, &row).is_ok());
        let error = addresses(&old).expect_err("a node without a reviewed connection").to_string();
        assert!(error.contains("The document of node n0.test.gantry has no connection"), "{error}");
        assert_eq!(addresses(&doc(true, None)).expect("no addresses for a phantom node"), [""; 0]);
        let local = doc(false, Some(json!({"transport": "local", "root": "/"})));
        assert_eq!(addresses(&local).expect("no addresses for a local node"), [""; 0]);
    }
}
