//! Commands for deployments.

pub(crate) mod graph;

use std::ops::RangeInclusive;

use api::calls;
use api::listing::MAX_LIMIT;
use api::views::board::{Board, RoleNoderoles};
use api::views::graph::GraphOptions;
use clap::Subcommand;
use engine::catalog::read::MAX_PRIORITY;
use engine::counting::many;
use engine::ids::{BarclampName, BlueprintNumber, DeploymentId, DeploymentName, NodeId, RoleName};
use engine::plan::edit;
use serde_json::Value;
use uuid::Uuid;

use crate::address::Query;
use crate::args::ReasonArgs;
use crate::client::{Client, ListOptions, WatchOption};
use crate::deployments::graph::GraphArgs;
use crate::exit::{Failure, Outcome};
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, plain, steps, value_text};
use crate::proposals::apply;
use crate::proposals::apply::ProposeArgs;
use crate::proposals::edits::Step;
use crate::proposals::effect_text;
use crate::server::Server;

/// Valid priorities of a deployment.
const PRIORITY_RANGE: RangeInclusive<i64> = -(MAX_PRIORITY as i64)..=MAX_PRIORITY as i64;

#[derive(Debug, Subcommand)]
pub(crate) enum Deployment {
    /// List deployments, from system down
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// State of the deployment
        #[arg(long, value_parser = ["on_hold", "proposed", "review", "error", "working", "idle"])]
        state: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show the board: roles, their nodes and states
    Show {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the graph of noderoles in topological order
    Graph {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        args: GraphArgs,
    },
    /// List all nodes of a role; the board has only the first of many
    Noderoles {
        /// Name of the deployment
        name: String,
        /// Name of the role
        role: RoleName,
        /// Name of the ancestor that the role belongs to
        #[arg(long, value_name = "NAME")]
        of_ancestor: Option<String>,
        /// Only this node
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Maximum number of noderoles [default: all]
        #[arg(long, value_name = "N", value_parser = names::from_one::<usize>,
              allow_negative_numbers = true)]
        limit: Option<usize>,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Propose to create a deployment
    Create {
        /// Name of the new deployment
        name: DeploymentName,
        /// Name of the parent
        #[arg(long, value_name = "NAME", default_value = "system")]
        parent: String,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Propose to move a deployment with its descendants below another parent
    Move {
        /// Name of the deployment
        name: String,
        /// Name of the new parent
        #[arg(long = "to", value_name = "PARENT")]
        parent: String,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Propose to remove an empty deployment
    Remove {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Propose to add roles to a deployment, so that they can be bound there
    AddRole {
        /// Name of the deployment
        name: String,
        /// Names of the roles
        #[arg(required = true, value_name = "ROLE")]
        roles: Vec<RoleName>,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Propose to remove roles from a deployment
    RemoveRole {
        /// Name of the deployment
        name: String,
        /// Names of the roles
        #[arg(required = true, value_name = "ROLE")]
        roles: Vec<RoleName>,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Propose to use a version of a barclamp in a deployment and its descendants
    UseVersion {
        /// Name of the deployment
        name: String,
        /// Name of the barclamp
        barclamp: BarclampName,
        /// Version of the barclamp, from `gantry barclamp list`
        #[arg(required_unless_present = "inherit")]
        version: Option<String>,
        /// Use the version of the ancestors again
        #[arg(long, conflicts_with = "version")]
        inherit: bool,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Open a proposal on a deployment, or join the open one
    Propose {
        /// Name of the deployment
        name: String,
    },
    /// Put a deployment and its descendants on hold: no new runs start
    Hold {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// End the hold of a deployment
    Release {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Set the priority of a deployment's runs
    Priority {
        /// Name of the deployment
        name: String,
        /// Priority; runs of higher priority start first
        #[arg(
            allow_negative_numbers = true,
            value_parser = clap::value_parser!(i32).range(PRIORITY_RANGE)
        )]
        priority: i32,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Propose to restore a deployment's state at an earlier blueprint
    Restore {
        /// Name of the deployment
        name: String,
        /// Number of the blueprint
        #[arg(long, value_name = "N", value_parser = names::blueprint)]
        blueprint: i64,
        /// Leave out the parts that can't be restored
        #[arg(long)]
        partial: bool,
    },
}

pub(crate) fn deployment(client: &Client, command: &Deployment) -> Outcome {
    let Client { server, output } = client;
    match command {
        Deployment::List { filter, state, list_options } => client.list(
            &deployment_list(),
            &Query::default().with("filter", filter).with("state", state),
            list_options,
        ),
        Deployment::Show { name, again } => {
            let shown = calls::show_deployment(&names::deployment(server, name)?.name);
            client.show(*again, || server.show(&shown), board_text)
        }
        Deployment::Graph { name, args } => {
            let deployment = names::deployment(server, name)?.name;
            graph::graph(client, &calls::graph(&deployment, &GraphOptions::default()), args)
        }
        Deployment::Noderoles { name, role, of_ancestor, node, limit, again } => {
            let deployment = names::deployment(server, name)?.name;
            let node = node
                .as_deref()
                .map(|node| names::node(server, node))
                .transpose()?
                .map(|node| node.fqdn);
            let call = calls::role_noderoles(&deployment, role);
            let query = Query::default().with("of_ancestor", of_ancestor).with("node", &node);
            let ask = || nodes_with_role(server, &call.url(), &query, *limit);
            client.show(*again, ask, nodes_with_role_text)
        }
        Deployment::Create { name, parent, propose } => create(client, name, parent, propose),
        Deployment::Move { name, parent, propose } => {
            let (current, to) = (apply::current(server, name)?, names::deployment(server, parent)?);
            let deployment = current.board.id;
            let step = Step {
                edit: edit::MoveDeployment { deployment, parent: to.id }.into(),
                summary: format!("* deployment {name} moves below {}", to.name),
            };
            apply::propose_one(client, &current, &[step], propose)
        }
        Deployment::Remove { name, propose } => remove(client, name, propose),
        Deployment::AddRole { name, roles, propose } => {
            let current = apply::current(server, name)?;
            let (deployment, board) = (current.board.id, &current.board);
            let missing =
                roles.iter().filter(|role| !apply::own_roles(board).any(|own| own.role == **role));
            let step = |role: &RoleName| Step {
                edit: edit::AddRole { deployment, role: role.clone() }.into(),
                summary: format!("+ role {role}"),
            };
            let steps: Vec<Step> = missing.map(step).collect();
            apply::propose_one(client, &current, &steps, propose)
        }
        Deployment::RemoveRole { name, roles, propose } => {
            let current = apply::current(server, name)?;
            let deployment = current.board.id;
            let step = |role: &RoleName| Step {
                edit: edit::RemoveRole { deployment, role: role.clone() }.into(),
                summary: format!("- role {role}"),
            };
            let steps: Vec<Step> = roles.iter().map(step).collect();
            apply::propose_one(client, &current, &steps, propose)
        }
        Deployment::UseVersion { name, barclamp, version, inherit: _, propose } => {
            use_version(client, name, barclamp, version.as_deref(), propose)
        }
        Deployment::Propose { name } => {
            let response = server.call(&calls::propose(&names::deployment_path(name)?))?;
            output.either(
                &response,
                &format!("Proposal {} is open on {name}.", value_text(&response["proposal"])),
            )
        }
        Deployment::Hold { name, reason } => {
            let deployment = names::deployment_path(name)?;
            let response = server.call(&calls::hold(&deployment, true, &reason.reason))?;
            output.either(
                &response,
                &format!(
                    "Deployment {name} is on hold: no new runs start in it \
                or its descendants."
                ),
            )
        }
        Deployment::Release { name, reason } => {
            let deployment = names::deployment_path(name)?;
            let response = server.call(&calls::hold(&deployment, false, &reason.reason))?;
            output.either(&response, &format!("The hold on {name} has ended."))
        }
        Deployment::Priority { name, priority, reason } => {
            let deployment = names::deployment_path(name)?;
            let set = calls::set_priority(&deployment, *priority, &reason.reason);
            let response = server.call(&set)?;
            output.either(&response, &format!("Deployment {name} has priority {priority}."))
        }
        Deployment::Restore { name, blueprint: target, partial } => {
            let deployment = names::deployment_path(name)?;
            let restore = calls::restore(&deployment, BlueprintNumber(*target), *partial);
            let response = server.call(&restore)?;
            let missing = response["missing"].as_array().map(Vec::as_slice).unwrap_or_default();
            let missing: String = missing
                .iter()
                .map(|value| format!("\n  left out: {}", plain(&value_text(value))))
                .collect();
            let edits = many(response["edits"].as_u64().unwrap_or_default(), "edit");
            let proposal = value_text(&response["proposal"]);
            output.either(
                &response,
                &format!(
                    "Proposal {proposal} restores {name} to blueprint {target} with \
                    {edits}.{missing}"
                ),
            )
        }
    }
}

fn create(client: &Client, name: &DeploymentName, parent: &str, propose: &ProposeArgs) -> Outcome {
    let current = apply::current(&client.server, parent)?;
    let create = edit::CreateDeployment {
        id: DeploymentId(Uuid::new_v4()),
        phantom: NodeId(Uuid::new_v4()),
        name: name.clone(),
        parent: current.board.id,
    };
    let step = Step { edit: create.into(), summary: format!("+ deployment {name}") };
    apply::propose_one(client, &current, &[step], propose)
}

/// A proposal on the parent removes a deployment.
fn remove(client: &Client, name: &str, propose: &ProposeArgs) -> Outcome {
    let removed = apply::current(&client.server, name)?.board;
    let Some(parent) = removed.ancestors.last() else {
        return Err(Failure::Usage(format!(
            "Deployment {name:?} is the root and can't be removed."
        )));
    };
    let step = Step {
        edit: edit::RemoveDeployment { deployment: removed.id }.into(),
        summary: format!("- deployment {name}"),
    };
    let current = apply::current(&client.server, parent.as_str())?;
    apply::propose_one(client, &current, &[step], propose)
}

/// Proposes a version of a barclamp, or the inherited one.
fn use_version(
    client: &Client,
    name: &str,
    barclamp: &BarclampName,
    version: Option<&str>,
    propose: &ProposeArgs,
) -> Outcome {
    let current = apply::current(&client.server, name)?;
    let (deployment, barclamp) = (current.board.id, barclamp.clone());
    let step = match version {
        None => Step {
            summary: format!("- own version of {barclamp}"),
            edit: edit::InheritBarclamp { deployment, barclamp }.into(),
        },
        Some(version) => {
            let hash = apply::version_hash(&client.server, &barclamp, version)?;
            let hash = hash.ok_or_else(|| {
                Failure::Nothing(format!(
                    "Barclamp {barclamp} has no version {version:?}.\nList all versions with \
                     `gantry barclamp list`."
                ))
            })?;
            Step {
                summary: format!("+ version {version} of {barclamp}"),
                edit: edit::UseBarclamp { deployment, barclamp, version: hash }.into(),
            }
        }
    };
    apply::propose_one(client, &current, &[step], propose)
}

/// Reads the noderoles of a role up to the limit, page by page.
fn nodes_with_role(
    server: &Server,
    place: &str,
    query: &Query,
    limit: Option<usize>,
) -> Outcome<Value> {
    let most = limit.unwrap_or(usize::MAX);
    let page = limit.filter(|limit| *limit <= MAX_LIMIT).and_then(|n| i64::try_from(n).ok());
    let query = query.clone().with("limit", page);
    let mut whole: RoleNoderoles = server.read(&query.on(place))?;
    while whole.more > 0 && whole.noderoles.len() < most {
        let Some(last) = whole.noderoles.last().map(|noderole| noderole.noderole.to_string())
        else {
            break;
        };
        let page: RoleNoderoles = server.read(&query.clone().with("after", last).on(place))?;
        // An empty page that claims to have more would cause an endless loop.
        whole.more = if page.noderoles.is_empty() { 0 } else { page.more };
        whole.noderoles.extend(page.noderoles);
    }
    whole.more += whole.noderoles.len().saturating_sub(most);
    whole.noderoles.truncate(most);
    Ok(serde_json::to_value(&whole).unwrap_or_default())
}

fn nodes_with_role_text(value: &Value, output: OutputFormat) -> String {
    let Ok(view) = serde_json::from_value::<RoleNoderoles>(value.clone()) else {
        return outline(value);
    };
    if view.noderoles.is_empty() {
        return "No nodes have this role.\n".to_owned();
    }
    let mut table = Table::new(["NODE", "STATE", "REQUIRED BY", "ERROR", "NODEROLE"]);
    for noderole in view.noderoles {
        let going = if noderole.removed { ", to be removed" } else { "" };
        table.row([
            noderole.fqdn,
            format!("{}{going}", noderole.state.label()),
            noderole.required_by.unwrap_or_default(),
            noderole.error.unwrap_or_default(),
            noderole.noderole.to_string(),
        ]);
    }
    let more = match view.more {
        0 => String::new(),
        more => format!("{} more. Show them with a higher --limit.\n", many(more, "noderole")),
    };
    table.text(output) + &more
}

/// A board as text. An answer with an unknown form is printed as an outline.
fn board_text(value: &Value, output: OutputFormat) -> String {
    let Ok(board) = serde_json::from_value::<Board>(value.clone()) else { return outline(value) };
    let path: Vec<&str> =
        board.ancestors.iter().map(|name| name.as_str()).chain([board.name.as_str()]).collect();
    let mut text =
        format!("{}, blueprint {}\n", output.heading(&path.join(" / ")), board.blueprint);
    if let Some(hold) = &board.hold {
        text += &format!(
            "On hold by {} in {}: {}\n",
            plain(&hold.by),
            hold.deployment,
            plain(&hold.reason)
        );
    }
    let marks = [(board.omitted.stale, "stale"), (board.omitted.unchecked, "unchecked")];
    for (count, mark) in marks.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(
            "{}: gantry noderole list --{mark} --deployment {}\n",
            many(count, &format!("{mark} step")),
            board.name
        );
    }
    if board.priority != 0 {
        text += &format!("Priority {} (default 0)\n", board.priority);
    }
    if let Some(open) = &board.proposal {
        let by = match open.authors.as_slice() {
            [] => String::new(),
            authors => format!(" by {}", authors.join(", ")),
        };
        let submitted = open.review.map(|id| format!(", in review {id}")).unwrap_or_default();
        text += &format!(
            "Proposal {} version {}{by}{submitted}: {}\n",
            open.id,
            open.version,
            effect_text(open.added as u64, open.removed as u64, open.reruns as u64)
        );
    }
    let mut table = Table::new(["ROLE", "BARCLAMP", "NODES", "DATA"]);
    for group in &board.groups {
        let owner =
            group.of_ancestor.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        for role in &group.roles {
            let noderole = |noderole: &api::views::board::BoardNoderole| {
                let going = if noderole.removed { ", to be removed" } else { "" };
                format!("{} {}{going}", noderole.short, noderole.state.label())
            };
            let mut noderoles: Vec<String> = role.noderoles.iter().map(noderole).collect();
            if role.more > 0 {
                noderoles.push(format!("and {} more", role.more));
            }
            let data = if role.data.as_object().is_none_or(serde_json::Map::is_empty) {
                String::new()
            } else {
                role.data.to_string()
            };
            table.row([
                role.role.to_string(),
                format!("{}{owner}", group.barclamp),
                noderoles.join(", "),
                data,
            ]);
        }
    }
    text + &table.text(output)
}

pub(crate) fn deployment_list() -> List {
    List {
        path: calls::List::Deployments.path(""),
        items: "deployments",
        cursor: "after",
        columns: &[
            ("NAME", |v, _| {
                " ".repeat(
                    2 * usize::try_from(v["depth"].as_u64().unwrap_or_default())
                        .unwrap_or_default(),
                ) + &word(v, "name")
            }),
            ("NODES", |v, _| word(v, "nodes")),
            ("STEPS", |v, _| steps(&v["steps"])),
            ("PROPOSAL", |v, _| word(v, "proposal")),
            ("REVIEW", |v, _| word(v, "review")),
            ("BLUEPRINT", |v, _| word(v, "blueprint")),
        ],
        none: "No deployments found.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn role_nodes_are_listed_with_pending_removal() {
        let id = Uuid::nil();
        let noderole = json!({"noderole": id, "node": id, "fqdn": "n1.demo", "short": "n1",
            "state": "active", "required_by": null,
            "changed": false, "removed": true, "alive": true, "error": null});
        let text = nodes_with_role_text(
            &json!({"noderoles": [noderole], "more": 0}),
            OutputFormat::default(),
        );
        assert!(text.contains("n1.demo  ACTIVE, to be removed"), "{text}");
        let none =
            nodes_with_role_text(&json!({"noderoles": [], "more": 0}), OutputFormat::default());
        assert_eq!(none, "No nodes have this role.\n");
    }
}
