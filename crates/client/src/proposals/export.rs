//! `export`: writes the desired state of a deployment as a file that `apply` accepts.
//!
//! Values are JSON, which YAML includes. Names are quoted unless YAML reads them as text.

use std::fmt::Display;

use api::deployments::{DeclaredRole, DeploymentDeclaration};
use engine::ids::RoleName;
use serde_json::{Value, json};

use crate::client::Client;
use crate::exit::Outcome;
use crate::names;
use crate::output::yaml;

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Name of the deployment
    #[arg(value_name = "DEPLOYMENT")]
    name: String,
}

pub(crate) fn export(client: &Client, export: &Export) -> Outcome {
    let Client { server, output } = client;
    let found = names::deployment(server, &export.name)?;
    let export = api::calls::export(&found.name);
    if output.is_document() {
        return output.document(&server.show(&export)?);
    }
    output.write(&text(&server.read(&export.url())?))
}

/// The state as a document that declares the complete deployment.
fn text(state: &DeploymentDeclaration) -> String {
    let mut text = format!("deployment: {}\n", name(&state.deployment));
    if let Some(parent) = &state.parent {
        text += &format!("parent: {}\n", name(parent));
    }
    text += "complete: true\n";
    text += &map("versions", state.versions.iter().map(|(key, version)| (key, json!(version))));
    if !state.members.is_empty() {
        text += &format!("members: {}\n", list(&state.members));
    }
    let (bound, unbound): (Vec<_>, Vec<_>) =
        state.roles.iter().partition(|(_, role)| !role.nodes.is_empty());
    if !unbound.is_empty() {
        text += &format!("roles: {}\n", list(unbound.iter().map(|(role, _)| role)));
    }
    if !bound.is_empty() {
        text += "bindings:\n";
    }
    for (role, found) in bound {
        text += &format!("  {}: {}\n", name(role), list(&found.nodes));
    }
    let has_data = |(_, role): &(&RoleName, &DeclaredRole)| {
        role.data.as_object().is_some_and(|data| !data.is_empty())
    };
    let with_data = state.roles.iter().filter(has_data);
    text += &map("data", with_data.map(|(role, found)| (role, found.data.clone())));
    if !state.node_data.is_empty() {
        text += "node_data:\n";
    }
    for (node, roles) in &state.node_data {
        text += &format!("  {}:\n", name(node));
        for (role, data) in roles {
            text += &format!("    {}: {data}\n", name(role));
        }
    }
    text
}

fn map<K: Display>(key: &str, entries: impl Iterator<Item = (K, Value)>) -> String {
    let lines: String =
        entries.map(|(entry, value)| format!("  {}: {value}\n", name(entry))).collect();
    if lines.is_empty() { lines } else { format!("{key}:\n{lines}") }
}

fn list(names: impl IntoIterator<Item: Display>) -> String {
    format!("[{}]", names.into_iter().map(name).collect::<Vec<_>>().join(", "))
}

fn name(name: impl Display) -> String {
    yaml::word(&name.to_string())
}

#[cfg(test)]
mod tests {
    use crate::proposals::declaration::read;

    use super::*;

    #[test]
    fn exported_text_declares_the_same_state() {
        let state = json!({
            "deployment": "web", "parent": "system", "phantom": uuid::Uuid::nil(),
            "versions": {"stack": "1.10"}, "members": ["n1.demo", "no"],
            "roles": {
                "app": {
                    "data": {"text": "a: \"b\"\n"},
                    "nodes": ["n1.demo"],
                    "requires": ["dns"],
                    "required_elsewhere": false
                },
                "dns": {
                    "data": {},
                    "nodes": ["phantom:web"],
                    "requires": [],
                    "required_elsewhere": false
                },
                "spare": {"data": {}, "nodes": [], "requires": [], "required_elsewhere": false},
            },
            "node_data": {"n1.demo": {"app/1": {"port": 1}}},
        });
        let text = text(&serde_json::from_value(state).unwrap());
        let declared =
            read("web.yaml", text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong:?}"));
        let web = &declared[0];
        assert!(web.complete && web.prune);
        assert_eq!(web.parent.as_ref().unwrap().is.as_str(), "system");
        let versions: Vec<_> = web.versions.iter().map(|(b, v)| (b.as_str(), &*v.is)).collect();
        assert_eq!(versions, [("stack", "1.10")]);
        let members: Vec<&str> = web.members.iter().map(|node| node.is.as_str()).collect();
        assert_eq!(members, ["n1.demo", "no"]);
        let roles: Vec<&str> = web.roles.keys().map(|role| role.as_str()).collect();
        assert_eq!(roles, ["spare"]);
        let bound: Vec<(&str, &str)> =
            web.bindings.iter().map(|(role, nodes)| (role.as_str(), &*nodes.is[0].is)).collect();
        assert_eq!(bound, [("app", "n1.demo"), ("dns", "phantom:web")]);
        assert_eq!(web.data.values().next().unwrap().value, json!({"text": "a: \"b\"\n"}));
        assert_eq!(web.node_data["n1.demo"].is.keys().next().unwrap().to_string(), "app/1");
    }
}
