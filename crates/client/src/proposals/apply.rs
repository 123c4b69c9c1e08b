//! `apply`, `diff`, `bind` and `unbind`: turn declared changes into a proposal and its review.
//!
//! Invariants:
//! * All files are read and all edits computed before a proposal is opened. So an error in the last
//!   line of a file opens nothing. If the server rejects edits later, finished proposals stay and
//!   are reported; a proposal without edits is discarded.
//! * Other people's proposal is joined only with `--join`. Their edits would be submitted too, and
//!   a person who joins can no longer approve it.
//! * Edits name the proposal version that they were computed from. Concurrent edits of other people
//!   therefore cause an error, never a mixture.

use std::collections::{BTreeMap, BTreeSet};

use api::calls;
use api::catalog::{BarclampVersion, CatalogPage, MAX_VERSIONS, RoleView};
use api::deployments::{AttribView, DeploymentDeclaration, NoderoleView};
use api::nodes::NodeSummary;
use api::proposals::ProposalView;
use api::values::ValueLayer;
use api::views::board::{
    Board, BoardNoderole, BoardRole, MAX_NODES_WITH_ROLE, RoleChoice, RoleNoderoles,
};
use api::views::node_proposal::ProposedNoderole;
use engine::Hash;
use engine::catalog::read::At;
use engine::cluster::{NoderoleKey, phantom};
use engine::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, ProposalId, ReviewId,
    RoleName,
};
use engine::plan::{Edit, edit};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::address::Query;
use crate::client::Client;
use crate::exit::{Failure, Outcome};
use crate::input::bytes;
use crate::names;
use crate::output::list::word;
use crate::output::{note, plain};
use crate::proposals::declaration::{Declaration, DeclarationError, Positioned, escaped, read};
use crate::proposals::edits;
use crate::proposals::edits::{
    CurrentDeployment, CurrentRole, DeploymentSnapshot, ExpectedData, RoleMembers, Step, bound,
    unbound,
};
use crate::proposals::effect_text;
use crate::server::{Server, parse_answer, taken};

#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    propose: ProposeArgs,
}

/// Options of the proposal that a command adds its edits to.
#[derive(Debug, clap::Args)]
pub(crate) struct ProposeArgs {
    #[command(flatten)]
    submit: Submit,
    /// Add to a proposal of other people: theirs is submitted with yours, and you can no longer
    /// approve it
    #[arg(long)]
    join: bool,
}

#[derive(Debug, clap::Args)]
struct Submit {
    /// Submit each proposal for review
    #[arg(long, requires = "title")]
    submit: bool,
    /// Title of the review
    #[arg(long, value_name = "TEXT", requires = "submit")]
    title: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// YAML file with declarations, or - for standard input; repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bind {
    /// Names of the nodes
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Name of the role
    #[arg(value_name = "ROLE")]
    role: RoleName,
    #[command(flatten)]
    place: TargetArgs,
}

/// The deployment, and options of its proposal.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    /// Name of the deployment
    #[arg(long = "in", value_name = "DEPLOYMENT")]
    deployment: String,
    #[command(flatten)]
    propose: ProposeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Unbind {
    /// Names of the nodes
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Name of the role, with the instance unless it is the first, for example app/1
    #[arg(value_name = "ROLE")]
    noderole: NoderoleKey,
    #[command(flatten)]
    place: TargetArgs,
    /// Also unbind everything that requires it
    #[arg(long)]
    with_dependents: bool,
}

/// A deployment's board with its open proposal.
pub(crate) struct CurrentState {
    pub(crate) board: Board,
    /// Whether other people opened or edited the open proposal.
    has_other_authors: bool,
}

/// The edits of one proposal, computed from one or more documents.
pub(crate) struct PlannedChange {
    /// The deployment of the proposal.
    pub(crate) current: CurrentState,
    pub(crate) steps: Vec<Step>,
}

/// The deployment of a document.
struct Target {
    id: DeploymentId,
    /// The deployment of the proposal: the same, or the parent of one that does not exist yet.
    current: CurrentState,
    /// Set if the document declares more than bindings and data, or unbinds roles.
    place: Option<CurrentDeployment>,
}

pub(crate) fn apply(client: &Client, apply: &Apply) -> Outcome {
    propose_all(client, &plan_edits(&client.server, &apply.files, Basis::Draft)?, &apply.propose)
}

/// One proposal for each deployment.
pub(crate) fn by_deployment(
    server: &Server,
    steps: Vec<(DeploymentName, Step)>,
) -> Outcome<Vec<PlannedChange>> {
    let mut all: BTreeMap<DeploymentName, Vec<Step>> = BTreeMap::new();
    for (deployment, step) in steps {
        all.entry(deployment).or_default().push(step);
    }
    let planned = |(deployment, steps): (DeploymentName, Vec<Step>)| {
        Ok(PlannedChange { current: current(server, deployment.as_str())?, steps })
    };
    all.into_iter().map(planned).collect()
}

/// Proposes changes of several deployments.
pub(crate) fn propose_all(
    client: &Client,
    worked: &[PlannedChange],
    args: &ProposeArgs,
) -> Outcome {
    // Check all proposals first, so that an error opens none of them.
    worked.iter().try_for_each(|one| check_join(&one.current, &one.steps, args))?;
    let mut made = Vec::new();
    let outcome = worked.iter().try_for_each(|one| {
        made.push(propose(client, &one.current, &one.steps, &args.submit)?);
        Ok(())
    });
    if client.output.is_document() && (outcome.is_ok() || !made.is_empty()) {
        client.output.document(&json!(made))?;
    }
    let rest = worked
        .get(made.len()..)
        .filter(|_| outcome.is_err() && worked.len() > 1 && !client.output.is_document());
    if let Some(rest) = rest {
        let names: Vec<&str> = rest.iter().map(|one| one.current.board.name.as_str()).collect();
        note(&format!("Not proposed: {}. To continue, run the command again.", names.join(", ")));
    }
    outcome
}

pub(crate) fn diff(client: &Client, files: &FileArgs) -> Outcome {
    // As with diff(1), an error is not exit code 1.
    let worked = plan_edits(&client.server, files, Basis::Target)?;
    let changes: usize = worked.iter().map(|one| one.steps.len()).sum();
    if client.output.is_document() {
        let view = worked.iter().map(|one| {
            json!(
                {
                    "deployment": one.current.board.name, "changes": step_texts(&one.steps),
                    "edits": edits(&one.steps)
                }
            )
        });
        client.output.document(&view.collect())?;
    } else {
        for one in worked.iter().filter(|one| !one.steps.is_empty()) {
            client.output.write(&lines(one.current.board.name.as_str(), &one.steps))?;
        }
    }
    match changes {
        0 => Ok(()),
        // The differences are printed already, so the error has no text.
        _ => Err(Failure::Negative(String::new())),
    }
}

pub(crate) fn bind(client: &Client, bind: &Bind) -> Outcome {
    let current = current(&client.server, &bind.place.deployment)?;
    let nodes = named(&client.server, &bind.nodes)?;
    let members = match find_role(&current.board, &bind.role) {
        Some(found) => nodes_having_role(&client.server, &current.board, found, &nodes)?,
        None => RoleMembers::default(),
    };
    let missing: BTreeMap<NodeId, &str> =
        names_of(&nodes).filter(|(id, _)| !members.has(*id)).collect();
    let steps = bound(current.board.id, &bind.role, &missing);
    propose_one(client, &current, &steps, &bind.place.propose)
}

pub(crate) fn unbind(client: &Client, unbind: &Unbind) -> Outcome {
    let current = current(&client.server, &unbind.place.deployment)?;
    let nodes = named(&client.server, &unbind.nodes)?;
    let noderole = &unbind.noderole;
    let with_dependents = |(node, name): (NodeId, &str)| Step {
        edit: Edit::Unbind(edit::Unbind {
            node,
            noderole: noderole.clone(),
            with_dependents: true,
        }),
        summary: format!("- {noderole} from {name}, with its dependents"),
    };
    let steps = match unbind.with_dependents {
        false => unbound(noderole, &names_of(&nodes).collect()),
        true => names_of(&nodes).map(with_dependents).collect(),
    };
    propose_one(client, &current, &steps, &unbind.place.propose)
}

/// Finds the nodes of a command's arguments. Fails at the first unknown one.
pub(crate) fn named(server: &Server, names: &[String]) -> Outcome<BTreeMap<NodeId, String>> {
    let mut found = names::find_nodes(server, &names.iter().map(String::as_str).collect())?;
    let one = |name: &String| match found.remove(name.as_str()) {
        Some(Ok(node)) => Ok(Some((node.id, node.fqdn))),
        Some(Err(message)) => Err(Failure::Nothing(message)),
        // A duplicate argument.
        None => Ok(None),
    };
    Ok(names.iter().map(one).collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect())
}

fn names_of(nodes: &BTreeMap<NodeId, String>) -> impl Iterator<Item = (NodeId, &str)> {
    nodes.iter().map(|(id, name)| (*id, name.as_str()))
}

/// Proposes changes of one deployment.
pub(crate) fn propose_one(
    client: &Client,
    current: &CurrentState,
    steps: &[Step],
    args: &ProposeArgs,
) -> Outcome {
    check_join(current, steps, args)?;
    let made = propose(client, current, steps, &args.submit)?;
    if client.output.is_document() { client.output.document(&made) } else { Ok(()) }
}

pub(crate) fn current(server: &Server, name: &str) -> Outcome<CurrentState> {
    state(server, name, Basis::Draft)
}

/// The state that a file is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// The desired state.
    Target,
    /// The desired state with the edits of the open proposal.
    Draft,
}

fn state(server: &Server, name: &str, basis: Basis) -> Outcome<CurrentState> {
    let found = names::deployment(server, name)?;
    let query = Query::default().with("target", basis == Basis::Target);
    let response: Value = server.read(&query.on(&calls::show_deployment(&found.name).url()))?;
    let board: Board = parse_answer(&response, "expected a board")?;
    let has_other_authors = match &board.proposal {
        Some(open) => has_other_authors(server, open, &response["proposal"])?,
        None => false,
    };
    Ok(CurrentState { board, has_other_authors })
}

/// Whether other people opened or edited a proposal. `authors` has the people who edited it;
/// `has_other_authors` also covers the person who opened it.
fn has_other_authors(server: &Server, open: &ProposalView, response: &Value) -> Outcome<bool> {
    if response["has_other_authors"] == true || open.authors.is_empty() {
        return Ok(response["has_other_authors"] == true);
    }
    let me = server.show(&calls::show_account())?;
    Ok(open.authors.iter().any(|author| me["person"]["name"] != *author))
}

/// Checks that the edits may be added to the open proposal. A proposal of other people needs
/// `--join`, because their edits would be submitted too.
fn check_join(current: &CurrentState, steps: &[Step], options: &ProposeArgs) -> Outcome {
    let has_effect = !steps.is_empty() || options.submit.submit;
    match current
        .board
        .proposal
        .as_ref()
        .filter(|_| has_effect && current.has_other_authors && !options.join)
    {
        None => Ok(()),
        Some(open) => Err(Failure::Usage(format!(
            "Nothing was changed: proposal {} is open on {} and {}. Use --join to add your edits \
             to it. --submit then submits all its edits, and you can no longer approve it.",
            open.id,
            current.board.name,
            match open.authors.as_slice() {
                [] => "belongs to another person".to_owned(),
                authors => format!("has edits of {}", authors.join(", ")),
            }
        ))),
    }
}

/// The proposal that the edits go into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    id: ProposalId,
    version: i32,
    /// Whether this command opened it. If all edits fail, the command discards it again.
    new: bool,
}

/// Adds the edits to the open proposal or a new one, all or none. Submits it if requested and
/// prints the result.
fn propose(
    client: &Client,
    current: &CurrentState,
    steps: &[Step],
    submit: &Submit,
) -> Outcome<Value> {
    let Client { server, output } = client;
    let name = &current.board.name;
    if steps.is_empty() {
        return submit_existing(client, &current.board, submit);
    }
    let open = open(server, &current.board)?;
    let version = edited(server, open, steps)?;
    let id = open.id;
    let after = server.show(&calls::show_proposal(id))?;
    let review =
        submitted(server, id, version, submit).map_err(|failure| with_undo(failure, id))?;
    let made = json!({
        "deployment": name, "changes": step_texts(steps), "proposal": id, "version": version,
        "review": review,
        "added": after["added"], "removed": after["removed"], "reruns": after["reruns"],
    });
    if output.is_document() {
        return Ok(made);
    }
    output.write(&lines(name.as_str(), steps))?;
    let count = |word: &str| after[word].as_u64().unwrap_or_default();
    let effect = effect_text(count("added"), count("removed"), count("reruns"));
    output.line(&format!("Proposal {id} on {name}: {effect}."))?;
    follow(client, id, &review)?;
    Ok(made)
}

/// Handles a document without new edits. The open proposal, if any, is submitted if requested and
/// not done yet.
fn submit_existing(client: &Client, board: &Board, submit: &Submit) -> Outcome<Value> {
    let Client { server, output } = client;
    let has_edits = |open: &&ProposalView| open.edits.iter().any(|edit| !edit.undone);
    let open = board.proposal.as_ref().filter(has_edits);
    if !output.is_document() {
        output.line(&format!("Deployment {}: nothing to change.", board.name))?;
    }
    let Some(open) = open else {
        return Ok(
            json!({"deployment": board.name, "changes": [], "proposal": null, "review": null}),
        );
    };
    let review = match open.review {
        Some(review) => json!(review),
        None => submitted(server, open.id, open.version, submit)?,
    };
    if !output.is_document() {
        match open.review {
            Some(review) => decided(client, open.id, review)?,
            None => follow(client, open.id, &review)?,
        }
    }
    Ok(json!(
        {
            "deployment": board.name, "changes": [], "proposal": open.id, "version": open.version,
            "review": review
        }
    ))
}

/// Prints the state of an existing review, which may have verdicts already.
fn decided(client: &Client, id: ProposalId, review: ReviewId) -> Outcome {
    let state_text = match word(&client.server.show(&calls::show_review(review))?, "state").as_str()
    {
        "waiting" => return follow(client, id, &json!(review)),
        "open" => "can be committed".to_owned(),
        other => format!("is {}", other.replace('_', " ")),
    };
    client.output.line(&format!("Review {review} {state_text}."))?;
    note(&format!("Details: gantry review show {review}"));
    Ok(())
}

/// The open proposal in the version of the board, which the edits were computed from, or a new one.
fn open(server: &Server, board: &Board) -> Outcome<Open> {
    if let Some(open) = &board.proposal {
        return Ok(Open { id: open.id, version: open.version, new: false });
    }
    let opened = server.call(&calls::propose(&board.name))?;
    let id: ProposalId = parse_answer(&opened["proposal"], "expected a proposal")?;
    let response = server.show(&calls::show_proposal(id))?;
    let view: ProposalView = parse_answer(&response, "expected a proposal")?;
    if !view.edits.is_empty() || has_other_authors(server, &view, &response)? {
        return Err(opened_by_another(id, &board.name));
    }
    Ok(Open { id, version: view.version, new: true })
}

fn opened_by_another(id: ProposalId, deployment: &DeploymentName) -> Failure {
    Failure::Conflict(format!(
        "Nothing was changed: another person opened proposal {id} on {deployment} at the same \
         time. Look at it with `gantry proposal show {id}`, then try again."
    ))
}

/// Adds the edits and returns the new version.
fn edited(server: &Server, open: Open, steps: &[Step]) -> Outcome<i32> {
    let Open { id, version, new } = open;
    let edited = server.call(&calls::edit(id, version, &edits(steps)));
    if new && matches!(edited, Err(Failure::Refused(_))) {
        let discarded = server.call(&calls::discard(id, version));
        if discarded.is_err() {
            note(&format!(
                "Proposal {id} is open without edits. Discard it: gantry proposal \
                discard {id}"
            ));
        }
    }
    parse_answer(&edited?["version"], "expected a version")
}

/// Submits a version if requested and returns the review.
fn submitted(server: &Server, id: ProposalId, version: i32, submit: &Submit) -> Outcome<Value> {
    let Some(title) = &submit.title else { return Ok(Value::Null) };
    Ok(taken(&mut server.call(&calls::submit(id, version, title))?, "review"))
}

/// Adds to a rejected submission that the edits are in the proposal by now.
fn with_undo(failure: Failure, id: ProposalId) -> Failure {
    match failure {
        Failure::Refused(mut problem) => {
            problem.detail = format!(
                "{} The new edits stay in proposal {id}, which is not submitted. To undo them: \
                 gantry proposal undo {id}",
                problem.detail
            );
            Failure::Refused(problem)
        }
        other => other,
    }
}

/// Prints the next steps for a proposal.
fn follow(client: &Client, id: ProposalId, review: &Value) -> Outcome {
    if review.is_null() {
        note(&format!(
            "Proposal {id} is open but not submitted. Submit it: gantry proposal submit {id} \
             --title TEXT"
        ));
        return Ok(());
    }
    client.output.line(&format!("Review {review} waits for another person."))?;
    note(&format!(
        "Follow it: gantry review show {review}, or gantry wait review {review} --for committed"
    ));
    Ok(())
}

fn step_texts(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.summary.as_str()).collect()
}

fn edits(steps: &[Step]) -> Vec<Edit> {
    steps.iter().map(|step| step.edit.clone()).collect()
}

fn lines(deployment: &str, steps: &[Step]) -> String {
    let lines: String = steps.iter().map(|step| format!("  {}\n", plain(&step.summary))).collect();
    format!("{deployment}\n{lines}")
}

fn plan_edits(server: &Server, files: &FileArgs, basis: Basis) -> Outcome<Vec<PlannedChange>> {
    let mut all: Vec<Declaration> = Vec::new();
    for file in &files.files {
        let shown = if file == "-" { "standard input" } else { file };
        all.extend(read(shown, &bytes(file)?).map_err(|wrong| error_list(&wrong))?);
    }
    if all.is_empty() {
        return Err(Failure::Nothing(format!(
            "No declarations in {}. Add a document with \
            `deployment: NAME`.",
            files.files.join(", ")
        )));
    }
    let mut first_files = BTreeMap::new();
    for one in &all {
        let is = &one.deployment.is;
        let position = (one.file.as_str(), one.deployment.at.line);
        if let Some((first, line)) = first_files.insert(is.clone(), position) {
            let message = format!(
                "Deployment {is} is declared twice, first in {first}, line {line}. Put both into \
                 one document."
            );
            return Err(error_list(&[one.error(one.deployment.at, message)]));
        }
    }
    let (mut worked, mut wrong): (Vec<PlannedChange>, Vec<DeclarationError>) =
        (Vec::new(), Vec::new());
    let mut created = BTreeMap::new();
    for declared in parents_first(all) {
        let target = target(server, &declared, &created, basis)?;
        if target.place.as_ref().is_some_and(|place| place.new.is_some()) {
            let proposal_on = target.current.board.name.clone();
            let new = NewDeployment { id: target.id, proposal_on };
            created.insert(declared.deployment.is.clone(), new);
        }
        match planned(server, &declared, target, basis)? {
            Err(found) => wrong.extend(found),
            Ok(new) => {
                let id = new.current.board.id;
                match worked.iter_mut().find(|known| known.current.board.id == id) {
                    Some(known) => known.steps.extend(new.steps),
                    None => worked.push(new),
                }
            }
        }
    }
    if wrong.is_empty() { Ok(worked) } else { Err(error_list(&wrong)) }
}

/// Computes the edits of a document.
fn planned(
    server: &Server,
    declared: &Declaration,
    target: Target,
    basis: Basis,
) -> Outcome<Result<PlannedChange, Vec<DeclarationError>>> {
    let Target { id, current, place } = target;
    let name = &declared.deployment.is;
    let is_new = current.board.name != *name;
    if is_new && current.board.destinations.iter().any(|known| known.name == *name) {
        let message = match &current.board.proposal {
            Some(open) => created_by_proposal(name, open.id, &current.board.name),
            None => format!("Deployment {name} already exists. Run the command again."),
        };
        let error = declared.error(declared.deployment.at, message);
        return Err(Failure::Conflict(format!("Nothing was changed:\n  {error}")));
    }
    let present = match present(server, declared, &current.board, place, basis)? {
        Err(found) => return Ok(Err(found)),
        Ok(present) => present,
    };
    let mut steps = match edits::edits(id, declared, &present) {
        Err(found) => return Ok(Err(found)),
        Ok(steps) => steps,
    };
    if is_new {
        steps
            .iter_mut()
            .skip(1)
            .for_each(|step| step.summary = format!("{name}: {}", step.summary));
        return Ok(Ok(PlannedChange { current, steps }));
    }
    let leaves = |step: &Step| match &step.edit {
        Edit::MoveNode(edit::MoveNode { deployment, .. }) => *deployment != id,
        _ => false,
    };
    let parent = present.place.as_ref().and_then(|place| place.state.parent.as_ref());
    let Some(parent) = parent.filter(|_| steps.iter().any(leaves)) else {
        return Ok(Ok(PlannedChange { current, steps }));
    };
    // Only a proposal on the parent can move nodes there. It knows nothing of an open one.
    if let Some(open) = &current.board.proposal
        && open.edits.iter().any(|edit| !edit.undone)
    {
        let message = format!(
            "Nodes move from {name} to {parent}, but proposal {} is open on {name}. Submit or \
             discard it first.",
            open.id
        );
        return Ok(Err(vec![declared.error(declared.deployment.at, message)]));
    }
    steps.iter_mut().for_each(|step| step.summary = format!("{name}: {}", step.summary));
    Ok(Ok(PlannedChange { current: state(server, parent.as_str(), basis)?, steps }))
}

/// The error for a document whose deployment exists only in an open proposal. Its state is unknown
/// until the commit, so the document cannot be compared with it.
fn created_by_proposal(name: &DeploymentName, id: ProposalId, on: &DeploymentName) -> String {
    format!(
        "Deployment {name} does not exist yet: open proposal {id} on {on} creates it. Commit that \
         proposal first (gantry proposal submit {id} --title TEXT), or discard it. Then run the \
         command again."
    )
}

/// The documents in an order in which each comes after that of its parent.
fn parents_first(mut all: Vec<Declaration>) -> Vec<Declaration> {
    let mut ordered = Vec::new();
    while !all.is_empty() {
        let names: BTreeSet<DeploymentName> =
            all.iter().map(|one| one.deployment.is.clone()).collect();
        let waits =
            |one: &Declaration| one.parent.as_ref().is_some_and(|up| names.contains(&up.is));
        let (waiting, mut next): (Vec<_>, Vec<_>) = all.into_iter().partition(waits);
        if next.is_empty() {
            // The parents form a cycle, which later checks reject.
            ordered.extend(waiting);
            return ordered;
        }
        ordered.append(&mut next);
        all = waiting;
    }
    ordered
}

/// A deployment that an earlier document of the same command creates.
struct NewDeployment {
    id: DeploymentId,
    /// The deployment of the proposal that creates it.
    proposal_on: DeploymentName,
}

/// Finds the deployment of a document. If it does not exist, the document must name its parent.
fn target(
    server: &Server,
    declared: &Declaration,
    created: &BTreeMap<DeploymentName, NewDeployment>,
    basis: Basis,
) -> Outcome<Target> {
    let name = &declared.deployment.is;
    let at = |at: At| move |failure: Failure| failure_at(declared, at, failure);
    let found = state(server, name.as_str(), basis);
    let new_parent = declared.parent.as_ref().and_then(|parent| created.get(&parent.is));
    if let (Err(Failure::Nothing(_)), Some(parent)) = (&found, &declared.parent) {
        let proposal_on = new_parent.map_or(&parent.is, |new| &new.proposal_on);
        let current = state(server, proposal_on.as_str(), basis).map_err(at(parent.at))?;
        let parent_id = new_parent.map_or(current.board.id, |new| new.id);
        let phantom = NodeId(Uuid::new_v4());
        let state = DeploymentDeclaration {
            deployment: name.clone(),
            parent: Some(parent.is.clone()),
            phantom,
            versions: BTreeMap::new(),
            members: Vec::new(),
            roles: BTreeMap::new(),
            node_data: BTreeMap::new(),
        };
        let place = CurrentDeployment {
            state,
            parent: Some(parent_id),
            moves_to: None,
            new: Some(phantom),
            versions: versions(server, declared)?,
            members: BTreeMap::new(),
        };
        return Ok(Target { id: DeploymentId(Uuid::new_v4()), current, place: Some(place) });
    }
    let current = found.map_err(at(declared.deployment.at))?;
    if let (Some(_), Some(parent)) = (new_parent, &declared.parent) {
        let message = format!(
            "Deployment {name} exists, but its new parent {} does not. Apply and commit the \
             document of {} first.",
            parent.is, parent.is
        );
        return Err(error_list(&[declared.error(parent.at, message)]));
    }
    // `prune` keeps the noderoles that the bindings require, so it needs to know these.
    let has_place = declared.prune
        || declared.parent.is_some()
        || !declared.versions.is_empty()
        || !declared.members.is_empty();
    let place = has_place.then(|| current_deployment(server, declared, basis)).transpose()?;
    Ok(Target { id: current.board.id, current, place })
}

/// Adds the position in the document to an error about an unknown name.
fn failure_at(declared: &Declaration, at: At, failure: Failure) -> Failure {
    match failure {
        Failure::Nothing(message) => Failure::Nothing(declared.error(at, message).to_string()),
        other => other,
    }
}

/// Fetches an existing deployment with its versions and members, with the open proposal's edits.
fn current_deployment(
    server: &Server,
    declared: &Declaration,
    basis: Basis,
) -> Outcome<CurrentDeployment> {
    let path = calls::export(&declared.deployment.is).url();
    let state: DeploymentDeclaration =
        server.read(&Query::default().with("draft", basis == Basis::Draft).on(&path))?;
    let parent = match &state.parent {
        Some(parent) => Some(names::deployment(server, parent.as_str())?.id),
        None => None,
    };
    let moves_to = match (&declared.parent, &state.parent) {
        (Some(to), Some(from)) if to.is != *from => {
            let found = names::deployment(server, to.is.as_str());
            Some(found.map_err(|failure| failure_at(declared, to.at, failure))?.id)
        }
        _ => None,
    };
    let mut members = BTreeMap::new();
    if declared.complete {
        let names = state.members.iter().map(String::as_str).collect();
        for (name, found) in names::find_nodes(server, &names)? {
            members.extend(found.ok().map(|node| (name.to_owned(), node.id)));
        }
    }
    Ok(CurrentDeployment {
        state,
        parent,
        moves_to,
        new: None,
        versions: versions(server, declared)?,
        members,
    })
}

/// The declared barclamp versions that the catalog has.
fn versions(
    server: &Server,
    declared: &Declaration,
) -> Outcome<BTreeMap<(BarclampName, String), Hash>> {
    let mut all = BTreeMap::new();
    for (barclamp, version) in &declared.versions {
        if let Some(hash) = version_hash(server, barclamp, &version.is)? {
            all.insert((barclamp.clone(), version.is.clone()), hash);
        }
    }
    Ok(all)
}

/// The content hash of a barclamp's version, if the catalog has it.
pub(crate) fn version_hash(
    server: &Server,
    barclamp: &BarclampName,
    version: &str,
) -> Outcome<Option<Hash>> {
    let mut query = Query::default().with("filter", barclamp.as_str());
    loop {
        let page: CatalogPage = server.read(&query.on(&calls::List::Barclamps.path("")))?;
        let is_wanted =
            |known: &&BarclampVersion| known.barclamp == *barclamp && known.version == version;
        if let Some(Ok(hash)) = page.versions.iter().find(is_wanted).map(|known| known.hash.parse())
        {
            return Ok(Some(hash));
        }
        match page.next {
            Some(next) => query = query.with("after", next.to_string()),
            None => return Ok(None),
        }
    }
}

fn error_list(wrong: &[DeclarationError]) -> Failure {
    let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    Failure::Usage(format!("Nothing was changed:\n  {}", lines.join("\n  ")))
}

/// Fetches the current state of everything that a document names. A deployment that does not exist
/// yet has no roles.
fn present(
    server: &Server,
    declared: &Declaration,
    board: &Board,
    place: Option<CurrentDeployment>,
    basis: Basis,
) -> Outcome<Result<DeploymentSnapshot, Vec<DeclarationError>>> {
    let (mut nodes, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut named = declared.nodes();
    let new = place.as_ref().and_then(|place| place.new);
    let own_phantom = phantom::command_name_of(declared.deployment.is.as_str());
    if let Some(phantom) = new
        && named.remove(own_phantom.as_str()).is_some()
    {
        nodes.insert(own_phantom.clone(), (phantom, own_phantom));
    }
    let mut elsewhere = Elsewhere::of(declared, board, new.is_some());
    for (name, found) in names::find_nodes(server, &named.keys().copied().collect())? {
        if let Ok(found) = &found
            && let Some(message) = elsewhere.error(server, name, found)?
        {
            wrong.extend(named.get(name).map(|at| declared.error(*at, message)));
        }
        match found {
            Ok(found) if phantom::deployment_of(name).is_some() => {
                nodes.insert(name.to_owned(), (found.id, name.to_owned()));
            }
            Ok(found) => drop(nodes.insert(name.to_owned(), (found.id, found.fqdn))),
            Err(message) => wrong.extend(named.get(name).map(|at| declared.error(*at, message))),
        }
    }
    if !wrong.is_empty() {
        return Ok(Err(wrong));
    }
    if new.is_some() {
        return Ok(Ok(DeploymentSnapshot { nodes, place, ..DeploymentSnapshot::default() }));
    }
    let mut roles = BTreeMap::new();
    for role in own_roles(board) {
        let named = declared.complete || declared.bindings.contains_key(&role.role);
        let bound_nodes =
            if named { role_members(server, board, role, basis)? } else { RoleMembers::default() };
        let has_trait = |name: &str| role.traits.iter().any(|word| word == name);
        let (service, implicit) = (has_trait("service"), has_trait("implicit"));
        let expects = ExpectedData { attribs: role.attribs.clone(), below: role.defaults.clone() };
        let current_role = CurrentRole {
            bindable: role.bindable,
            data: role.data.clone(),
            expects,
            service,
            implicit,
            bound_nodes,
        };
        roles.insert(role.role.clone(), current_role);
    }
    let mut own = BTreeMap::new();
    for (node, view) in &declared.node_data {
        let Some((id, name)) = nodes.get(node) else { continue };
        for key in view.is.keys() {
            let data = match &place {
                Some(place) => declared_data(&place.state, name, key),
                None => own_data(server, board, *id, key)?,
            };
            own.insert((*id, key.clone()), data);
        }
    }
    let with_data = declared.roles_with_data();
    let mut choices = BTreeMap::new();
    for choice in &board.choices {
        let expects = if with_data.contains(&choice.role) {
            expected(server, choice)?
        } else {
            ExpectedData::default()
        };
        choices.insert(choice.role.clone(), expects);
    }
    Ok(Ok(DeploymentSnapshot { roles, choices, nodes, own, place }))
}

/// The check that bound nodes belong to the deployment, or to one above or below it. With an open
/// proposal, only the server knows the deployments of nodes.
struct Elsewhere<'d> {
    declared: &'d Declaration,
    board: &'d Board,
    checks: bool,
    /// Whether each deployment that is not above is below.
    below: BTreeMap<DeploymentName, bool>,
}

impl<'d> Elsewhere<'d> {
    fn of(declared: &'d Declaration, board: &'d Board, is_new: bool) -> Self {
        let parent = declared.parent.as_ref().map(|parent| &parent.is);
        let stays = parent.is_none() || parent == board.ancestors.last();
        let checks = !is_new && stays && board.proposal.is_none();
        Self { declared, board, checks, below: BTreeMap::new() }
    }

    fn error(
        &mut self,
        server: &Server,
        name: &str,
        node: &NodeSummary,
    ) -> Outcome<Option<String>> {
        let (owner, deployment) = (&node.deployment, &self.board.name);
        let is_listed = |nodes: &[Positioned<String>]| nodes.iter().any(|node| node.is == name);
        let is_bound = self.declared.bindings.values().any(|nodes| is_listed(&nodes.is));
        let is_near = owner == deployment || self.board.ancestors.contains(owner);
        let moves =
            self.declared.members.iter().any(|member| member.is == name || member.is == node.fqdn);
        if !self.checks || !is_bound || is_near || moves {
            return Ok(None);
        }
        if !self.below.contains_key(owner) {
            let board: Board = server.read(&calls::show_deployment(owner).url())?;
            self.below.insert(owner.clone(), board.ancestors.contains(deployment));
        }
        let is_below = self.below.get(owner).is_some_and(|below| *below);
        Ok((!is_below).then(|| {
            format!(
                "Node {name} belongs to {owner}, which is neither above nor below {deployment}. \
                 Move it to {deployment} first, or use a node of {deployment} or of a deployment \
                 above it."
            )
        }))
    }
}

/// Expected data of a role that the deployment does not have yet. The server selects the version,
/// so this is known only if the role is the same in all versions.
fn expected(server: &Server, choice: &RoleChoice) -> Outcome<ExpectedData> {
    let shown = calls::show_role(&choice.role, choice.barclamp.as_str());
    let view: RoleView = server.read(&shown.url())?;
    if view.versions.len() >= MAX_VERSIONS || !view.versions.iter().all(|version| version.same) {
        return Ok(ExpectedData::default());
    }
    let attribs = view.role.attribs.into_iter().map(|attrib| AttribView {
        name: attrib.name.to_string(),
        path: attrib.map.iter().map(|key| format!("/{}", escaped(key))).collect(),
        description: attrib.description,
        schema: attrib.schema,
    });
    Ok(ExpectedData { attribs: attribs.collect(), below: view.role.template })
}

pub(crate) fn own_roles(board: &Board) -> impl Iterator<Item = &BoardRole> {
    board.groups.iter().filter(|group| group.of_ancestor.is_none()).flat_map(|group| &group.roles)
}

fn find_role<'b>(board: &'b Board, role: &RoleName) -> Option<&'b BoardRole> {
    own_roles(board).find(|own| own.role == *role)
}

impl RoleMembers {
    /// Adds the node of a noderole, unless the draft unbinds the role from it.
    fn add(&mut self, noderole: &BoardNoderole, board: &Board) {
        if noderole.removed {
            return;
        }
        let name = match Fqdn::parse(&noderole.fqdn) {
            Ok(fqdn) => phantom::name(&fqdn, |_| Some(board.name.to_string())).into_owned(),
            Err(_) => noderole.fqdn.clone(),
        };
        self.nodes.insert(noderole.node, name);
        if noderole.required_by.is_some() {
            self.added.insert(noderole.node);
        }
    }
}

/// The nodes among `nodes` that have a role. For few nodes, one request per node is cheaper than
/// all pages of the role's noderoles.
fn nodes_having_role(
    server: &Server,
    board: &Board,
    role: &BoardRole,
    nodes: &BTreeMap<NodeId, String>,
) -> Outcome<RoleMembers> {
    let pages = (role.noderoles.len() + role.more).div_ceil(MAX_NODES_WITH_ROLE);
    if role.more == 0 || nodes.len() > pages {
        return role_members(server, board, role, Basis::Draft);
    }
    let place = calls::role_noderoles(&board.name, &role.role).url();
    let mut members = RoleMembers::default();
    for node in nodes.keys() {
        let query = Query::default().with("node", node.to_string());
        let found: RoleNoderoles = server.read(&query.on(&place))?;
        found.noderoles.iter().for_each(|noderole| members.add(noderole, board));
    }
    Ok(members)
}

/// The nodes that have a role. The board has only the first of many.
fn role_members(
    server: &Server,
    board: &Board,
    role: &BoardRole,
    basis: Basis,
) -> Outcome<RoleMembers> {
    let mut all = RoleMembers::default();
    if role.more == 0 {
        role.noderoles.iter().for_each(|noderole| all.add(noderole, board));
        return Ok(all);
    }
    let place = calls::role_noderoles(&board.name, &role.role).url();
    let mut query = Query::default().with("target", basis == Basis::Target);
    loop {
        let page: RoleNoderoles = server.read(&query.on(&place))?;
        let last = page
            .noderoles
            .last()
            .filter(|_| page.more > 0)
            .map(|noderole| noderole.noderole.to_string());
        page.noderoles.iter().for_each(|noderole| all.add(noderole, board));
        match last {
            Some(last) => query = query.with("after", last),
            None => return Ok(all),
        }
    }
}

/// A noderole's user data, with the open proposal's edits. Empty if the noderole does not exist.
fn own_data(
    server: &Server,
    board: &Board,
    node: NodeId,
    key: &NoderoleKey,
) -> Outcome<Map<String, Value>> {
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    let empty_if_missing =
        |failure: Failure| if failure.code() == 4 { Ok(Map::new()) } else { Err(failure) };
    if let Some(open) = &board.proposal {
        let drafted = calls::proposed_noderole(open.id, node, key);
        let draft = server.read::<ProposedNoderole>(&drafted.url());
        return draft.map(|draft| object(draft.data)).or_else(empty_if_missing);
    }
    let id: NoderoleId = key.id(node);
    let view = server.read::<NoderoleView>(&calls::show_noderole(id).url());
    let own = |view: NoderoleView| {
        view.layers
            .into_iter()
            .find(|layer| layer.source == ValueLayer::User)
            .map(|layer| object(layer.value))
    };
    view.map(|view| own(view).unwrap_or_default()).or_else(empty_if_missing)
}

/// A noderole's user data in the state of its deployment. Empty if the noderole does not exist.
fn declared_data(
    state: &DeploymentDeclaration,
    node: &str,
    key: &NoderoleKey,
) -> Map<String, Value> {
    let data = state.node_data.get(node).and_then(|roles| roles.get(key));
    data.and_then(Value::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_ordered_by_parent() {
        let order = |text: &str| -> Vec<String> {
            let all = parents_first(read("x", text.as_bytes()).unwrap());
            all.iter().map(|one| one.deployment.is.to_string()).collect()
        };
        let three = "deployment: c\nparent: b\n---\ndeployment: b\nparent: a\n---\ndeployment: a\n";
        assert_eq!(order(three), ["a", "b", "c"]);
        let cycle = "deployment: c\nparent: b\n---\ndeployment: b\nparent: c\n";
        assert_eq!(order(cycle), ["c", "b"]);
    }

    #[test]
    fn simultaneous_proposal_exits_with_the_code_of_conflicts() {
        let failure = opened_by_another(ProposalId(76), &"web".parse().unwrap());
        assert_eq!(failure.code(), 5);
        assert!(failure.to_string().contains("proposal 76 on web"), "{failure}");
    }
}
