//! Commands for the roles of the catalog.

use api::call::Call;
use api::catalog::{ResolvedName, RoleEdgeReason, RoleGraph, RoleView};
use clap::Subcommand;
use engine::Hash;
use engine::catalog::{Role as CatalogRole, Script};
use engine::ids::RoleName;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::address::Query;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::{Failure, Outcome};
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, comma_separated, facts, plain, sanitize_lines};

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// List roles of the catalog, in the newest version of their barclamp
    List {
        /// Part of the name or the description
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// Name of the barclamp
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a role: its requirements, the attributes it reads, its schema and its deployments
    Show {
        /// Name of the role
        role: String,
        /// Name of the barclamp, if several have a role of that name
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Print a script of a role in the newest version of its barclamp, or any script by hash
    Script {
        /// Name of the role
        #[arg(required_unless_present = "hash")]
        role: Option<String>,
        /// Name of the script, as in gantry role show; optional if the role has only one
        script: Option<String>,
        /// Name of the barclamp, if several have a role of that name
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        /// Content hash of a script, in any version
        #[arg(long, value_name = "HASH", conflicts_with_all = ["role", "script", "barclamp"])]
        hash: Option<String>,
    },
    /// Show dependencies between roles, with the reasons
    Graph {
        /// Only the roles of this barclamp and their direct neighbors
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        /// Only this role, its dependencies and its dependents
        #[arg(long, value_name = "NAME", conflicts_with = "barclamp")]
        role: Option<String>,
        #[command(flatten)]
        again: WatchOption,
    },
}

pub(crate) fn role(client: &Client, command: &Role) -> Outcome {
    match command {
        Role::List { filter, barclamp, list_options } => client.list(
            &role_list(),
            &Query::default().with("filter", filter).with("barclamp", barclamp),
            list_options,
        ),
        Role::Show { role, barclamp, again } => {
            let shown = show_role(role, barclamp)?;
            client.show(*again, || client.server.show(&shown), role_text)
        }
        Role::Script { role, script, barclamp, hash } => {
            let hash = match (hash, role) {
                (Some(hash), _) => hash.parse::<Hash>().map_err(|error| {
                    Failure::Usage(format!("Invalid content hash {hash:?}: {error}."))
                })?,
                (None, role) => {
                    let role = role.as_deref().unwrap_or_default();
                    let view: RoleView = client.server.read(&show_role(role, barclamp)?.url())?;
                    find_script(&view.role, script.as_deref())?.hash
                }
            };
            print_script(client, hash)
        }
        Role::Graph { barclamp, role, again } => {
            let word = |option: &Option<String>| option.clone().unwrap_or_default();
            let graph = api::calls::role_graph(&word(barclamp), &word(role));
            client.show(
                *again,
                || client.server.show(&graph),
                |response, _| role_graph_text(response),
            )
        }
    }
}

fn show_role(role: &str, barclamp: &Option<String>) -> Outcome<Call> {
    let name = RoleName::parse(role).map_err(|error| {
        Failure::Nothing(format!(
            "Role {role:?} does not exist: {error}.\nList all roles with `gantry role list`."
        ))
    })?;
    Ok(api::calls::show_role(&name, barclamp.as_deref().unwrap_or_default()))
}

/// The script of a role with this name. Without a name, the role's only script.
fn find_script<'r>(role: &'r CatalogRole, name: Option<&str>) -> Outcome<&'r Script> {
    let known = || role.scripts.iter().map(|script| script.name.as_str());
    let all = || known().collect::<Vec<_>>().join(", ");
    match (name, role.scripts.as_slice()) {
        (_, []) => Err(Failure::Nothing(format!("Role {} has no scripts.", role.name))),
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::Usage(format!(
            "Role {} has several scripts. Name one of them: {}.",
            role.name,
            all()
        ))),
        (Some(name), scripts) => {
            scripts.iter().find(|script| script.name == name).ok_or_else(|| {
                let near = names::near(name, known());
                Failure::Nothing(format!(
                    "Role {} has no script {name}{near}.\nIts scripts: {}.",
                    role.name,
                    all()
                ))
            })
        }
    }
}

/// Prints a script unchanged, except for control sequences.
fn print_script(client: &Client, hash: Hash) -> Outcome {
    let text = client.server.text(&api::calls::script(hash).url())?;
    match (client.output.is_document(), client.output.is_terminal()) {
        (true, _) => client.output.document(&json!({"hash": hash, "text": text})),
        (false, true) => client.output.write(&sanitize_lines(&text)),
        (false, false) => client.output.raw(&text),
    }
}

/// One line per role, with the roles that run before it.
fn role_graph_text(response: &Value) -> String {
    let Ok(graph) = RoleGraph::deserialize(response) else { return outline(response) };
    if graph.roles.is_empty() {
        return match graph.count {
            0 => "No roles found.\n".to_owned(),
            count => format!(
                "Too many roles ({count}) to list. Select some with --barclamp or --role.\n"
            ),
        };
    }
    let name =
        |index: usize| graph.roles.get(index).map(|role| role.name.as_str()).unwrap_or_default();
    let before = |index: usize| {
        let edges = graph.edges.iter().filter(|edge| edge.to == index);
        let words: Vec<String> = edges
            .map(|edge| match edge.reason {
                RoleEdgeReason::Requires => name(edge.from).to_owned(),
                RoleEdgeReason::Reads => format!("{} (reads its attributes)", name(edge.from)),
                RoleEdgeReason::Preceeds => format!("{} (declares the order)", name(edge.from)),
            })
            .collect();
        if words.is_empty() { String::new() } else { format!(" after {}", words.join(", ")) }
    };
    (0..graph.roles.len()).map(|index| format!("{}{}\n", name(index), before(index))).collect()
}

pub(crate) fn role_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = RoleView::deserialize(response) else { return outline(response) };
    let role = &view.role;
    let jig = match role.jig_class.as_str() {
        class if class == role.jig.as_str() => class.to_owned(),
        class => format!("{} (class {class})", role.jig),
    };
    let mut text = format!(
        "{} of barclamp {}, version {}\n",
        output.heading(&format!("Role {}", role.name)),
        role.barclamp,
        plain(&view.version)
    );
    text += &facts([
        ("description", role.description.clone()),
        ("jig", jig),
        ("flags", view.flags.join(", ")),
        ("requires", resolved_names(&view.requires)),
        ("reads", resolved_names(&view.wants)),
        ("provides", comma_separated(&role.provides)),
        ("conflicts with", comma_separated(&role.conflicts)),
        ("runs before", comma_separated(&role.preceeds)),
        ("required by", comma_separated(&view.required_by)),
        (
            "scripts",
            role.scripts.iter().map(|script| script.name.as_str()).collect::<Vec<_>>().join(", "),
        ),
        ("also in", comma_separated(&view.also_defined_in)),
        ("content", view.hash.to_string()),
    ]);
    if !role.attribs.is_empty() {
        let mut table = Table::new(["ATTRIBUTE", "PATH", "DEFAULT", "SCHEMA", "DESCRIPTION"]);
        let json = |value: &Option<Value>| value.as_ref().map(Value::to_string).unwrap_or_default();
        for attrib in &role.attribs {
            table.row([
                attrib.name.to_string(),
                attrib.map.join("/"),
                json(&attrib.default),
                json(&attrib.schema),
                attrib.description.clone(),
            ]);
        }
        text += &format!("\n{}", table.text(output));
    }
    if !view.bound.is_empty() {
        let mut table = Table::new(["DEPLOYMENT", "NODEROLES"]);
        for one in &view.bound {
            table.row([one.deployment.to_string(), one.noderoles.to_string()]);
        }
        text += &format!("\n{}", table.text(output));
    }
    let mut table = Table::new(["VERSION", "CONTENT", "USED BY"]);
    for one in &view.versions {
        let same = if one.same { "same as newest" } else { "different" };
        table.row([one.version.clone(), same.to_owned(), comma_separated(&one.used_by)]);
    }
    text + &format!("\n{}Graph: gantry role graph --role {}\n", table.text(output), role.name)
}

/// Names in a role, each with the role that provides it if its name is different: `dns (by bind),
/// runtime`.
fn resolved_names<N: ToString>(all: &[ResolvedName<N>]) -> String {
    let one = |one: &ResolvedName<N>| {
        let text = one.name.to_string();
        match one.by.as_slice() {
            [] => format!("{text} (no provider)"),
            [only] if only.as_str() == text => text,
            by => format!("{text} (by {})", comma_separated(by)),
        }
    };
    comma_separated(all.iter().map(one))
}

pub(crate) fn role_list() -> List {
    List {
        path: api::calls::List::Roles.path(""),
        items: "roles",
        cursor: "after",
        columns: &[
            ("ROLE", |v, _| word(v, "name")),
            ("BARCLAMP", |v, _| word(v, "barclamp")),
            ("VERSION", |v, _| word(v, "version")),
            ("JIG", |v, _| word(v, "jig")),
            ("REQUIRES", |v, _| word(v, "requires")),
            ("DEPLOYMENTS", |v, _| word(v, "deployments")),
            ("NODEROLES", |v, _| word(v, "noderoles")),
            ("DESCRIPTION", |v, _| word(v, "description")),
        ],
        none: "No roles found.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn role_page_has_providers_and_users() {
        let hash = "5f".repeat(32);
        let view = json!({"role": {"name": "app", "barclamp": "demo", "jig": "script",
            "jig_class": "script",
                "description": "An\napplication", "provides": ["http"], "scripts": [],
                "attribs": [{"name": "port", "description": "Where it listens", "map": ["app",
                "port"], "default": 80}]},
            "hash": hash, "version": "3", "flags": ["milestone"],
            "requires": [
                {"name": "runtime", "by": ["runtime"]},
                {"name": "dns", "by": ["bind", "unbound"]},
                {"name": "x", "by": []}
            ],
            "wants": [], "required_by": ["proxy", "web-ready"], "also_defined_in": [],
            "versions": [
                {"version": "3", "same": true, "used_by": ["web"]},
                {"version": "2", "same": false, "used_by": []}
            ],
            "bound": [{"deployment": "web", "deployment_id": uuid::Uuid::nil(), "noderoles": 12}]});
        let text = role_text(&view, OutputFormat::default());
        for line in [
            "Role app of barclamp demo, version 3\n",
            "  jig          script\n",
            "  description  An application\n",
            "  requires     runtime, dns (by bind, unbound), x (no provider)\n",
            "  provides     http\n",
            "  required by  proxy, web-ready\n",
            "\nport       app/port  80               Where it listens\n",
            "\nweb         12\n",
            "\n3        same as newest  web\n2        different\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(
            text.ends_with("gantry role graph --role app\n") && !text.contains("conflicts"),
            "{text}"
        );
        assert_eq!(
            role_text(&json!({"of": "another"}), OutputFormat::default()),
            "of: another\n",
            "an unknown answer is printed as an outline"
        );
    }

    #[test]
    fn script_name_is_required_if_ambiguous() {
        let role = |scripts: &[&str]| -> CatalogRole {
            let hash = "5f".repeat(32);
            let scripts: Vec<Value> =
                scripts.iter().map(|name| json!({"name": name, "hash": hash})).collect();
            serde_json::from_value(
                json!({"name": "app", "barclamp": "demo", "jig": "script", "jig_class": "script",
                "scripts": scripts}),
            )
            .unwrap()
        };
        let found = |scripts: &[&str], name: Option<&str>| {
            find_script(&role(scripts), name)
                .map(|script| script.name.clone())
                .map_err(|failure| failure.to_string())
        };
        assert_eq!(found(&["10-a.sh"], None), Ok("10-a.sh".to_owned()));
        assert_eq!(found(&["10-a.sh", "20-b.sh"], Some("20-b.sh")), Ok("20-b.sh".to_owned()));
        let several = "Role app has several scripts. Name one of them: 10-a.sh, 20-b.sh.";
        assert_eq!(found(&["10-a.sh", "20-b.sh"], None), Err(several.to_owned()));
        let unknown = "Role app has no script 10-b.sh (did you mean 10-a.sh?).\nIts scripts: \
            10-a.sh.";
        assert_eq!(found(&["10-a.sh"], Some("10-b.sh")), Err(unknown.to_owned()));
        assert_eq!(found(&[], None), Err("Role app has no scripts.".to_owned()));
    }
}
