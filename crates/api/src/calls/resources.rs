//! Calls that read one resource, for commands of the CLI.

use engine::cluster::NoderoleKey;
use engine::ids::{
    BlueprintNumber, DeploymentName, NodeId, NoderoleId, PersonId, ProposalId, ReviewId, RoleName,
    RunId,
};
use uuid::Uuid;

use super::Call;
use super::shell::encoded;

/// Path of the list of steps.
pub const STEPS_PATH: &str = "/steps";

/// Shows the board of a deployment.
pub fn show_deployment(deployment: &DeploymentName) -> Call {
    let name = deployment.as_str();
    Call::get(format!("/deployments/{name}/board")).command(["deployment", "show", name])
}

/// Lists the noderoles of a role in a deployment.
pub fn role_noderoles(deployment: &DeploymentName, role: &RoleName) -> Call {
    let (name, role) = (deployment.as_str(), role.as_str());
    Call::get(format!("/deployments/{name}/noderoles?role={}", encoded(role))).command([
        "deployment",
        "noderoles",
        name,
        role,
    ])
}

/// Shows the progress of a deployment. The command waits until it is converged.
pub fn deployment_progress(deployment: &DeploymentName) -> Call {
    let name = deployment.as_str();
    Call::get(format!("/deployments/{name}/progress")).command(["converge", name])
}

/// Exports the desired state of a deployment. The command prints it as a file.
pub fn export(deployment: &DeploymentName) -> Call {
    let name = deployment.as_str();
    Call::get(format!("/deployments/{name}/declaration")).command(["export", name])
}

pub fn show_proposal(id: ProposalId) -> Call {
    Call::get(format!("/proposals/{id}")).command(["proposal", "show"]).argument(id.to_string())
}

/// Shows how a proposal was planned.
pub fn proposal_report(id: ProposalId) -> Call {
    Call::get(format!("/proposals/{id}/report"))
        .command(["proposal", "report"])
        .argument(id.to_string())
}

/// Shows a noderole with the edits of a proposal.
pub fn proposed_noderole(id: ProposalId, node: NodeId, noderole: &NoderoleKey) -> Call {
    Call::get(format!("/proposals/{id}/noderole?{}", on_node(node, noderole)))
        .command(["proposal", "noderole"])
        .argument(id.to_string())
        .argument(format!("{node}/{noderole}"))
}

/// Shows the values and scripts that a noderole of a review runs with.
pub fn reviewed_noderole(id: ReviewId, node: NodeId, noderole: &NoderoleKey) -> Call {
    review_part(id, &format!("noderole?{}", on_node(node, noderole)), "noderole")
        .argument(format!("{node}/{noderole}"))
}

fn on_node(node: NodeId, noderole: &NoderoleKey) -> String {
    format!("node={node}&noderole={}", encoded(&noderole.to_string()))
}

/// Shows all differences of a review.
pub fn review_difference(id: ReviewId) -> Call {
    review_part(id, "difference", "diff")
}

/// Shows the differences since the reader viewed an earlier review of the proposal.
pub fn review_since(id: ReviewId) -> Call {
    review_part(id, "since", "since")
}

pub fn review_impact(id: ReviewId) -> Call {
    review_part(id, "impact", "impact")
}

/// Shows how the proposal of a review was planned.
pub fn review_report(id: ReviewId) -> Call {
    review_part(id, "report", "report")
}

pub fn discussion(id: ReviewId) -> Call {
    review_part(id, "discussion", "discussion")
}

/// Lists the changes of a review that the reader viewed.
pub fn viewed_changes(id: ReviewId) -> Call {
    review_part(id, "viewed", "viewed")
}

fn review_part(id: ReviewId, part: &str, verb: &str) -> Call {
    Call::get(format!("/reviews/{id}/{part}")).command(["review", verb]).argument(id.to_string())
}

pub fn show_blueprint(number: BlueprintNumber) -> Call {
    Call::get(format!("/blueprints/{number}"))
        .command(["blueprint", "show"])
        .argument(number.to_string())
}

/// Compares two blueprints, each a number or the hash of a root.
pub fn compare_blueprints(from: &str, to: &str) -> Call {
    Call::get(format!("/blueprints/compare?from={}&to={}", encoded(from), encoded(to))).command([
        "blueprint",
        "compare",
        from,
        to,
    ])
}

pub fn show_run(id: RunId) -> Call {
    Call::get(format!("/runs/{id}")).command(["run", "show"]).argument(id.to_string())
}

/// Finds the lines of a log that contain a text.
pub fn search_log(id: RunId, text: &str) -> Call {
    Call::get(format!("/runs/{id}/log/search?q={}", encoded(text)))
        .command(["logs"])
        .argument(id.to_string())
        .option("find", text)
}

pub fn show_noderole(id: NoderoleId) -> Call {
    Call::get(format!("/noderoles/{id}")).command(["noderole", "show"]).argument(id.to_string())
}

pub fn show_worker(id: Uuid) -> Call {
    Call::get(format!("/workers/{id}")).command(["workers"]).argument(id.to_string())
}

pub fn show_person(id: PersonId) -> Call {
    Call::get(format!("/people/{id}")).command(["person", "show"]).argument(id.to_string())
}

/// Lists the jigs of the barclamps in use.
pub fn jigs() -> Call {
    Call::get("/jigs").command(["jig", "list"])
}
