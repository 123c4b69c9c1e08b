//! Declaration files.
//!
//! A document names a deployment, the nodes of its roles, and the data of roles and noderoles.
//! Everything else stays unchanged. With `prune: true` the node lists are complete: each named role
//! is unbound from all other nodes. Roles that the document does not name stay, because bindings
//! also add required roles. With `complete: true` the document is the complete deployment: members,
//! versions, roles and data that it does not name are removed, except roles that a named role
//! requires. [`super::edits`] computes the edits that lead there.
//!
//! Invariant: every error has the file, the position and the most similar valid name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine::catalog::read::{At, PositionedYaml, positioned_yaml};
use engine::cluster::NoderoleKey;
use engine::ids::{BarclampName, DeploymentName, RoleName};
use serde_json::Value;

use crate::names::near;

/// An error in a file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclarationError {
    pub(crate) file: String,
    pub(crate) at: At,
    pub(crate) message: String,
}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.at.line, self.at.column, self.message)
    }
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Positioned<T> {
    pub(crate) is: T,
    pub(crate) at: At,
}

/// A document: the declared state of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Declaration {
    pub(crate) file: String,
    pub(crate) deployment: Positioned<DeploymentName>,
    /// Parent of the deployment, which is created if it does not exist.
    pub(crate) parent: Option<Positioned<DeploymentName>>,
    /// Barclamp versions that the deployment pins.
    pub(crate) versions: BTreeMap<BarclampName, Positioned<String>>,
    /// Names of nodes that belong to the deployment, as written.
    pub(crate) members: Vec<Positioned<String>>,
    /// Roles of the deployment, with or without nodes.
    pub(crate) roles: BTreeMap<RoleName, At>,
    /// Node names by role, as written.
    pub(crate) bindings: BTreeMap<RoleName, Positioned<Vec<Positioned<String>>>>,
    /// Data of the deployment's roles.
    pub(crate) data: BTreeMap<RoleName, PositionedYaml>,
    /// User data of noderoles, by node name as written.
    pub(crate) node_data: BTreeMap<String, Positioned<BTreeMap<NoderoleKey, PositionedYaml>>>,
    pub(crate) prune: bool,
    /// Whether the document is the complete deployment.
    pub(crate) complete: bool,
}

impl Declaration {
    /// All named nodes, each with the position of its first mention.
    pub(crate) fn nodes(&self) -> BTreeMap<&str, At> {
        let mut all = BTreeMap::new();
        let bound = self
            .bindings
            .values()
            .flat_map(|nodes| &nodes.is)
            .map(|node| (node.is.as_str(), node.at));
        let view = self.node_data.iter().map(|(node, data)| (node.as_str(), data.at));
        let members = self.members.iter().map(|node| (node.is.as_str(), node.at));
        for (node, at) in bound.chain(view).chain(members) {
            all.entry(node).or_insert(at);
        }
        all
    }

    /// All roles with data, including data of single noderoles.
    pub(crate) fn roles_with_data(&self) -> BTreeSet<&RoleName> {
        let node_roles = self
            .node_data
            .values()
            .flat_map(|roles| roles.is.keys())
            .map(|noderole| &noderole.role);
        self.data.keys().chain(node_roles).collect()
    }

    pub(crate) fn error(&self, at: At, message: impl Into<String>) -> DeclarationError {
        DeclarationError { file: self.file.clone(), at, message: message.into() }
    }
}

const KEYS: [&str; 10] = [
    "deployment",
    "parent",
    "versions",
    "members",
    "roles",
    "bindings",
    "data",
    "node_data",
    "prune",
    "complete",
];

/// Parses the documents of a file.
pub(crate) fn read(file: &str, bytes: &[u8]) -> Result<Vec<Declaration>, Vec<DeclarationError>> {
    let documents = positioned_yaml(bytes)
        .map_err(|(at, message)| vec![DeclarationError { file: file.to_owned(), at, message }])?;
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for document in documents.iter().filter(|document| !document.value.is_null()) {
        let mut reader = Reader { file, document, wrong: &mut wrong };
        all.extend(reader.document());
    }
    if wrong.is_empty() { Ok(all) } else { Err(wrong) }
}

/// Reads a document and collects its errors.
struct Reader<'d> {
    file: &'d str,
    document: &'d PositionedYaml,
    wrong: &'d mut Vec<DeclarationError>,
}

impl<'d> Reader<'d> {
    fn add_error(&mut self, pointer: &str, message: impl Into<String>) {
        let at = self.document.position(pointer);
        self.wrong.push(DeclarationError {
            file: self.file.to_owned(),
            at,
            message: message.into(),
        });
    }

    fn document(&mut self) -> Option<Declaration> {
        let value = &self.document.value;
        let Value::Object(entries) = value else {
            self.add_error("", "A document must be a map with `deployment: NAME`.");
            return None;
        };
        for key in entries.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            let near = near(key, KEYS);
            self.add_error(
                &format!("/{}", escaped(key)),
                format!("Unknown key {key}{near}. Known keys: {}.", KEYS.join(", ")),
            );
        }
        let (prune, complete) = (self.flag("prune"), self.flag("complete"));
        let parent = self.parent();
        let versions = self.versions();
        let members = self.list("members", "`members` must be a list: `[NODE, ...]`.");
        let roles = self.roles();
        let bindings = self.bindings();
        let data = self.data();
        let node_data = self.node_data();
        let deployment = match entries
            .get("deployment")
            .and_then(Value::as_str)
            .map(DeploymentName::parse)
        {
            Some(Ok(name)) => Positioned { is: name, at: self.document.position("/deployment") },
            Some(Err(error)) => {
                self.add_error("/deployment", error.to_string());
                return None;
            }
            None => {
                let error = match entries.contains_key("deployment") {
                    true => "`deployment` must be the name of one deployment: `deployment: NAME`.",
                    false => "The deployment is missing. Add `deployment: NAME`.",
                };
                self.add_error("/deployment", error);
                return None;
            }
        };
        Some(Declaration {
            file: self.file.to_owned(),
            deployment,
            parent,
            versions,
            members,
            roles,
            bindings,
            data,
            node_data,
            prune: prune || complete,
            complete,
        })
    }

    fn flag(&mut self, key: &str) -> bool {
        match self.document.value.get(key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.add_error(&format!("/{key}"), format!("`{key}` must be true or false."));
                false
            }
        }
    }

    fn parent(&mut self) -> Option<Positioned<DeploymentName>> {
        let parent = self.document.value.get("parent")?;
        let Some(parent) = parent.as_str() else {
            self.add_error(
                "/parent",
                "`parent` must be the name of a deployment. To keep the parent, remove the key.",
            );
            return None;
        };
        let name = self.named(parent, "/parent")?;
        if self.document.value.get("deployment").and_then(Value::as_str) == Some(parent) {
            let error = format!("Deployment {parent} can't be its own parent. Name another one.");
            self.add_error("/parent", error);
            return None;
        }
        Some(Positioned { is: name, at: self.document.position("/parent") })
    }

    fn versions(&mut self) -> BTreeMap<BarclampName, Positioned<String>> {
        let mut all = BTreeMap::new();
        for (barclamp, version, pointer) in
            self.entries("/versions", "`versions` must be a map: `BARCLAMP: 'VERSION'`.")
        {
            let Some(barclamp) = self.named(barclamp, &pointer) else { continue };
            match version {
                Value::String(version) => {
                    let at = self.document.position(&pointer);
                    all.insert(barclamp, Positioned { is: version.clone(), at });
                }
                _ => self.add_error(&pointer, "A version must be a string. Write it in quotes."),
            }
        }
        all
    }

    fn roles(&mut self) -> BTreeMap<RoleName, At> {
        let roles = self.list("roles", "`roles` must be a list: `[ROLE, ...]`.");
        let mut all = BTreeMap::new();
        for (number, role) in roles.into_iter().enumerate() {
            if let Some(name) = self.named(&role.is, &format!("/roles/{number}")) {
                all.insert(name, role.at);
            }
        }
        all
    }

    /// The names in a list, or none if it is absent.
    fn list(&mut self, key: &str, message: &str) -> Vec<Positioned<String>> {
        let pointer = format!("/{key}");
        match self.document.value.get(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(names)) => self.names(names, &pointer),
            Some(_) => {
                self.add_error(&pointer, message);
                Vec::new()
            }
        }
    }

    /// The entries of a map, or none if it is absent.
    fn entries(&mut self, pointer: &str, message: &str) -> Vec<(&'d String, &'d Value, String)> {
        match self.document.value.pointer(pointer) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(entries)) => entries
                .iter()
                .map(|(key, value)| (key, value, format!("{pointer}/{}", escaped(key))))
                .collect(),
            Some(_) => {
                self.add_error(pointer, message);
                Vec::new()
            }
        }
    }

    fn named<T: std::str::FromStr<Err: fmt::Display>>(
        &mut self,
        text: &str,
        pointer: &str,
    ) -> Option<T> {
        text.parse().map_err(|error: T::Err| self.add_error(pointer, error.to_string())).ok()
    }

    fn bindings(&mut self) -> BTreeMap<RoleName, Positioned<Vec<Positioned<String>>>> {
        let mut all = BTreeMap::new();
        for (role, nodes, pointer) in
            self.entries("/bindings", "`bindings` must be a map: `ROLE: [NODE, ...]`.")
        {
            let Some(role) = self.named::<RoleName>(role, &pointer) else { continue };
            let at = self.document.position(&pointer);
            let list = match nodes {
                Value::Null => Vec::new(),
                Value::Array(nodes) => self.names(nodes, &pointer),
                _ => {
                    self.add_error(
                        &pointer,
                        format!("The nodes of {role} must be a list: `{role}: [NODE, ...]`."),
                    );
                    continue;
                }
            };
            all.insert(role, Positioned { is: list, at });
        }
        all
    }

    fn names(&mut self, nodes: &[Value], pointer: &str) -> Vec<Positioned<String>> {
        let mut list: Vec<Positioned<String>> = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let pointer = format!("{pointer}/{number}");
            match node {
                Value::String(node) if !node.is_empty() => {
                    list.push(Positioned {
                        is: node.clone(),
                        at: self.document.position(&pointer),
                    });
                }
                _ => self.add_error(&pointer, "A name must be a string."),
            }
        }
        list
    }

    fn object(&mut self, value: &Value, pointer: &str) -> Option<PositionedYaml> {
        if value.is_object() {
            return self.document.part(pointer);
        }
        self.add_error(pointer, "Data must be a map.");
        None
    }

    fn data(&mut self) -> BTreeMap<RoleName, PositionedYaml> {
        let mut all = BTreeMap::new();
        for (role, value, pointer) in self.entries("/data", "`data` must be a map: `ROLE: {...}`.")
        {
            let role = self.named::<RoleName>(role, &pointer);
            let value = self.object(value, &pointer);
            all.extend(role.zip(value));
        }
        all
    }

    fn node_data(&mut self) -> BTreeMap<String, Positioned<BTreeMap<NoderoleKey, PositionedYaml>>> {
        let mut all = BTreeMap::new();
        for (node, _, pointer) in
            self.entries("/node_data", "`node_data` must be a map: `NODE: {ROLE: {...}}`.")
        {
            let mut roles = BTreeMap::new();
            for (role, value, pointer) in
                self.entries(&pointer, "The data of a node must be a map: `ROLE: {...}`.")
            {
                let role = self.named::<NoderoleKey>(role, &pointer);
                let value = self.object(value, &pointer);
                roles.extend(role.zip(value));
            }
            all.insert(
                node.clone(),
                Positioned { is: roles, at: self.document.position(&pointer) },
            );
        }
        all
    }
}

/// Escapes a key for a JSON pointer.
pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_may_declare_several_deployments() {
        let all = read("x", b"deployment: web\n---\n---\ndeployment: edge\nprune: true\n").unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.deployment.is.as_str()).collect();
        assert_eq!(names, ["web", "edge"]);
        assert_eq!((all[1].deployment.at.line, all[1].prune), (4, true));
    }
}
