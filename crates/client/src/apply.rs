//! `apply`, `diff`, `bind` and `unbind`: from what somebody wants to a proposal, and to its review.
//!
//! Everything is read and worked out before anything is opened: a file that is wrong in its last line opens nothing. A proposal that
//! somebody else shaped is joined only when that is said, since whoever joins it can't approve it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use engine::cluster::NoderoleKey;
use engine::ids::{NodeId, NoderoleId, ProposalId, RoleName};
use engine::plan::Edit;
use serde_json::{Map, Value, json};

use api::console::{Board, BoardRole, Carriers, Chip, DraftedNoderole, NoderoleView};

use crate::address::{Query, part};
use crate::declare::{self, Declared, Present, RolePresent, Step, Wrong};
use crate::exit::{Failure, Outcome};
use crate::lists::Client;
use crate::names;
use crate::paper::{note, plain};
use crate::server::Server;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    submit: Submit,
    /// Join a proposal that somebody else shaped: you can't approve it any more
    #[arg(long)]
    join: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Submit {
    /// Submit each proposal for review
    #[arg(long, requires = "title")]
    submit: bool,
    /// What the change is for
    #[arg(long, value_name = "TEXT", requires = "submit")]
    title: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// A file that declares, in YAML; - reads the standard input; may be given again
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bind {
    /// Nodes, by name
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// The role
    #[arg(value_name = "ROLE")]
    role: String,
    /// The deployment
    #[arg(long = "in", value_name = "DEPLOYMENT")]
    deployment: String,
    #[command(flatten)]
    submit: Submit,
    /// Join a proposal that somebody else shaped: you can't approve it any more
    #[arg(long)]
    join: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Unbind {
    #[command(flatten)]
    bind: Bind,
    /// Take along what can't be without it
    #[arg(long)]
    with_dependents: bool,
}

/// What a document comes to.
struct Worked {
    declared: Declared,
    board: Board,
    steps: Vec<Step>,
}

pub(crate) fn apply(client: &Client, apply: &Apply) -> Outcome {
    let worked = work_out(&client.server, &apply.files)?;
    let mut made = Vec::new();
    for one in &worked {
        let name = one.declared.deployment.is.as_str();
        if one.steps.is_empty() {
            if !client.paper.json {
                client.paper.line(&format!("{name}: nothing to change."))?;
            }
            if let Some(open) = one.board.proposal.as_ref().filter(|open| open.submission.is_none()) {
                note(&format!(
                    "Proposal {} is open and not submitted: gantry proposal submit {} --title TEXT",
                    open.id, open.id
                ));
            }
            made.push(json!({"deployment": name, "changes": [], "proposal": null, "review": null}));
            continue;
        }
        may_join(&one.board, apply.join)?;
        made.push(propose(client, &one.board, &one.steps, &apply.submit)?);
    }
    if client.paper.json { client.paper.json(&Value::Array(made)) } else { Ok(()) }
}

pub(crate) fn diff(client: &Client, files: &Files) -> Outcome {
    // As diff(1): whatever keeps it from being told is no difference.
    let worked = work_out(&client.server, files)?;
    let changes: usize = worked.iter().map(|one| one.steps.len()).sum();
    if client.paper.json {
        let told = worked.iter().map(|one| json!({"deployment": one.declared.deployment.is, "changes": said(&one.steps), "edits": edits(&one.steps)}));
        client.paper.json(&told.collect())?;
    } else {
        for one in worked.iter().filter(|one| !one.steps.is_empty()) {
            client.paper.write(&lines(one.declared.deployment.is.as_str(), &one.steps))?;
        }
    }
    match changes {
        0 => Ok(()),
        // What is different has been told; there is nothing to say beside it.
        _ => Err(Failure::NotSo(String::new())),
    }
}

pub(crate) fn bind(client: &Client, bind: &Bind) -> Outcome {
    let (board, nodes, role) = named(&client.server, bind)?;
    let names: Vec<&str> = nodes.values().map(String::as_str).collect();
    let says = format!("+ {role} on {}", names.join(", "));
    let carriers = match role_on(&board, &role) {
        Some(found) => carriers(&client.server, &board, found)?,
        None => BTreeMap::new(),
    };
    let missing: BTreeSet<NodeId> = nodes.keys().filter(|id| !carriers.contains_key(id)).copied().collect();
    if missing.is_empty() {
        return client.paper.either(
            &json!({"deployment": board.name, "changes": [], "proposal": null}),
            "Nothing to change: it is bound there.",
        );
    }
    let edit = Edit::BindNodes { deployment: board.id, role, nodes: missing };
    one_proposal(client, &board, bind, vec![Step { edit, says }])
}

pub(crate) fn unbind(client: &Client, unbind: &Unbind) -> Outcome {
    let bind = &unbind.bind;
    let (board, nodes, role) = named(&client.server, bind)?;
    let noderole = NoderoleKey::first(role);
    let names: Vec<&str> = nodes.values().map(String::as_str).collect();
    let says = format!("- {noderole} from {}", names.join(", "));
    let steps = match unbind.with_dependents {
        false => vec![Step { edit: Edit::UnbindNodes { noderole, nodes: nodes.keys().copied().collect() }, says }],
        true => nodes
            .iter()
            .map(|(id, name)| Step {
                edit: Edit::Unbind { node: *id, noderole: noderole.clone(), with_dependents: true },
                says: format!("- {noderole} from {name}, with what can't be without it"),
            })
            .collect(),
    };
    one_proposal(client, &board, bind, steps)
}

/// What a line of the command names.
fn named(server: &Server, bind: &Bind) -> Outcome<(Board, BTreeMap<NodeId, String>, RoleName)> {
    let role = RoleName::parse(&bind.role).map_err(|error| Failure::Usage(error.to_string()))?;
    let board = board(server, &bind.deployment)?;
    let mut nodes = BTreeMap::new();
    for name in &bind.nodes {
        let node = names::node(server, name)?;
        nodes.insert(node.id, node.fqdn);
    }
    Ok((board, nodes, role))
}

fn one_proposal(client: &Client, board: &Board, bind: &Bind, steps: Vec<Step>) -> Outcome {
    may_join(board, bind.join)?;
    let made = propose(client, board, &steps, &bind.submit)?;
    if client.paper.json { client.paper.json(&made) } else { Ok(()) }
}

fn board(server: &Server, name: &str) -> Outcome<Board> {
    let found = names::deployment(server, name)?;
    server.read(&format!("/deployments/{}/board", part(found.name.as_str())))
}

fn may_join(board: &Board, join: bool) -> Outcome {
    match &board.proposal {
        Some(open) if open.would_join && !join => Err(Failure::Usage(format!(
            "proposal {} is open on {} and is {}'s: whoever joins it can't approve it any more. --join joins it",
            open.id,
            board.name,
            open.authors.join(", ")
        ))),
        _ => Ok(()),
    }
}

/// Opens the proposal or joins the one that is open, appends the edits all or none, submits it if that is wanted, and says what came of it.
fn propose(client: &Client, board: &Board, steps: &[Step], submit: &Submit) -> Outcome<Value> {
    let Client { server, paper } = client;
    let opened = server.post(&format!("/deployments/{}/proposals", part(board.name.as_str())), json!({}))?;
    let id: ProposalId = serde_json::from_value(opened["proposal"].clone())
        .map_err(|_| Failure::Unreachable("the server's answer names no proposal: are both of one version?".into()))?;
    let version = version(server, id)?;
    let edited = server.post(&format!("/proposals/{id}/edits"), json!({"version": version, "edits": edits(steps)}))?;
    let after = server.get(&format!("/proposals/{id}"))?;
    let review = match &submit.title {
        Some(title) => {
            let body = json!({"version": edited["version"], "title": title});
            server.post(&format!("/proposals/{id}/submit"), body)?["submission"].take()
        }
        None => Value::Null,
    };
    let made = json!({
        "deployment": board.name, "changes": said(steps), "proposal": id, "version": edited["version"], "review": review,
        "added": after["added"], "removed": after["removed"], "reruns": after["reruns"],
    });
    if paper.json {
        return Ok(made);
    }
    paper.write(&lines(board.name.as_str(), steps))?;
    let count = |word: &str| after[word].as_u64().unwrap_or_default();
    let comes_to = format!("adds {}, removes {}, runs {} again", count("added"), count("removed"), count("reruns"));
    paper.line(&format!("Proposal {id} on {}: {comes_to}.", board.name))?;
    match &review {
        Value::Null => note(&format!("Submit it: gantry proposal submit {id} --title TEXT")),
        review => {
            paper.line(&format!("Review {review} waits for somebody else."))?;
            note(&format!("Follow it: gantry review show {review}; gantry wait review {review} --for committed"));
        }
    }
    Ok(made)
}

/// The version of a proposal as it is now.
pub(crate) fn version(server: &Server, id: ProposalId) -> Outcome<Value> {
    Ok(server.get(&format!("/proposals/{id}"))?["version"].take())
}

fn said(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.says.as_str()).collect()
}

fn edits(steps: &[Step]) -> Vec<&Edit> {
    steps.iter().map(|step| &step.edit).collect()
}

fn lines(deployment: &str, steps: &[Step]) -> String {
    let lines: String = steps.iter().map(|step| format!("  {}\n", plain(&step.says))).collect();
    format!("{deployment}\n{lines}")
}

fn work_out(server: &Server, files: &Files) -> Outcome<Vec<Worked>> {
    let mut all: Vec<Declared> = Vec::new();
    for file in &files.files {
        let shown = if file == "-" { "standard input" } else { file };
        all.extend(declare::read(shown, &bytes(file)?).map_err(|wrong| wrongly(&wrong))?);
    }
    if all.is_empty() {
        return Err(Failure::Nothing(format!("{} declares nothing", files.files.join(", "))));
    }
    let mut seen = BTreeMap::new();
    for one in &all {
        let is = &one.deployment.is;
        if let Some(first) = seen.insert(is.clone(), &one.file) {
            let what = format!("{is} stands twice, the first time in {first}: put both into one document");
            return Err(wrongly(&[one.wrong(one.deployment.at, what)]));
        }
    }
    let (mut worked, mut wrong) = (Vec::new(), Vec::new());
    for declared in all {
        let board = match board(server, declared.deployment.is.as_str()) {
            Err(Failure::Nothing(what)) => {
                let place = declared.wrong(declared.deployment.at, what).to_string();
                return Err(Failure::Nothing(place));
            }
            other => other?,
        };
        match present(server, &declared, &board)? {
            Err(found) => wrong.extend(found),
            Ok(present) => match declare::edits(board.id, &declared, &present) {
                Ok(steps) => worked.push(Worked { declared, board, steps }),
                Err(found) => wrong.extend(found),
            },
        }
    }
    if wrong.is_empty() { Ok(worked) } else { Err(wrongly(&wrong)) }
}

fn wrongly(wrong: &[Wrong]) -> Failure {
    let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    Failure::Usage(format!("nothing was changed:\n  {}", lines.join("\n  ")))
}

fn bytes(file: &str) -> Outcome<Vec<u8>> {
    let wrong = |error: std::io::Error| Failure::Usage(format!("{file} can't be read: {error}"));
    let mut bytes = Vec::new();
    let read = match file {
        "-" => std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes),
        path => std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)),
    };
    read.map_err(wrong)?;
    match u64::try_from(bytes.len()).is_ok_and(|length| length <= LARGEST) {
        true => Ok(bytes),
        false => Err(Failure::Usage(format!("{file} has more than {LARGEST} bytes: declare in several files"))),
    }
}

/// What is there of what a document speaks of.
fn present(server: &Server, declared: &Declared, board: &Board) -> Outcome<Result<Present, Vec<Wrong>>> {
    let (mut nodes, mut wrong) = (BTreeMap::new(), Vec::new());
    for (name, at) in declared.nodes() {
        match names::find_node(server, name)? {
            Ok(found) => drop(nodes.insert(name.to_owned(), (found.id, found.fqdn))),
            Err(what) => wrong.push(declared.wrong(at, what)),
        }
    }
    if !wrong.is_empty() {
        return Ok(Err(wrong));
    }
    let mut roles = BTreeMap::new();
    for role in own_roles(board) {
        let named = declared.bindings.contains_key(&role.role);
        let carriers = if named { carriers(server, board, role)? } else { BTreeMap::new() };
        let there = RolePresent { bindable: role.bindable, data: role.data.clone(), carriers };
        roles.insert(role.role.clone(), there);
    }
    let mut own = BTreeMap::new();
    for (node, told) in &declared.node_data {
        let Some((id, _)) = nodes.get(node) else { continue };
        for key in told.is.keys() {
            own.insert((*id, key.clone()), own_data(server, board, *id, key)?);
        }
    }
    let choices = board.choices.iter().map(|choice| choice.role.clone()).collect();
    Ok(Ok(Present { roles, choices, nodes, own }))
}

fn own_roles(board: &Board) -> impl Iterator<Item = &BoardRole> {
    board.groups.iter().filter(|group| group.of_ancestor.is_none()).flat_map(|group| &group.roles)
}

fn role_on<'b>(board: &'b Board, role: &RoleName) -> Option<&'b BoardRole> {
    own_roles(board).find(|there| there.role == *role)
}

/// Nodes that carry a role, the draft's bindings included and what it unbinds left out. A board has the first of many.
fn carriers(server: &Server, board: &Board, role: &BoardRole) -> Outcome<BTreeMap<NodeId, String>> {
    let stays = |chip: Chip| (!chip.going).then_some((chip.node, chip.fqdn));
    if role.more == 0 {
        return Ok(role.chips.iter().cloned().filter_map(stays).collect());
    }
    let query = Query::default().with("role", role.role.as_str());
    let all: Carriers = server.read(&query.behind(&format!("/deployments/{}/carriers", part(board.name.as_str()))))?;
    if all.more > 0 {
        return Err(Failure::Usage(format!(
            "more than {} nodes carry {}: declare it for a part of them with several deployments, or edit the proposal by `gantry bind`",
            all.chips.len(),
            role.role
        )));
    }
    Ok(all.chips.into_iter().filter_map(stays).collect())
}

/// A noderole's own data, the open proposal's edits included; none of one that is not there yet.
fn own_data(server: &Server, board: &Board, node: NodeId, key: &NoderoleKey) -> Outcome<Map<String, Value>> {
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    let absent = |failure: Failure| if failure.code() == 4 { Ok(Map::new()) } else { Err(failure) };
    if let Some(open) = &board.proposal {
        let query = Query::default().with("node", node.to_string()).with("noderole", key.to_string());
        let drafted = server.read::<DraftedNoderole>(&query.behind(&format!("/proposals/{}/noderole", open.id)));
        return drafted.map(|drafted| object(drafted.data)).or_else(absent);
    }
    let id: NoderoleId = key.id(node);
    let view = server.read::<NoderoleView>(&format!("/noderoles/{id}"));
    let own = |view: NoderoleView| {
        view.layers.into_iter().find(|layer| layer.source == "user").map(|layer| object(layer.value))
    };
    view.map(|view| own(view).unwrap_or_default()).or_else(absent)
}

/// Where edits of a proposal come from when they are given as a file.
pub(crate) fn edits_of(file: &str) -> Outcome<Vec<Edit>> {
    let bytes = bytes(file)?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("{file} is no UTF-8 text")))?;
    engine::data::written::check_keys(&text).map_err(|error| Failure::Usage(format!("{file}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Usage(format!("{file}: {error}; it has to be a JSON list of edits, as docs/edits.md has them"))
    })
}

/// Any JSON of a file, or of the standard input.
pub(crate) fn json_of(file: &str) -> Outcome<Value> {
    serde_json::from_slice(&bytes(file)?).map_err(|error| Failure::Usage(format!("{file} is no JSON: {error}")))
}
