//! Calls for reviews, execution and runs.

use engine::Hash;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentName, NoderoleId, ReviewId, RoleName, RunId,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::shell::encoded;
use super::{Body, Call};

/// Puts a deployment on hold, or ends the hold.
pub fn hold(deployment: &DeploymentName, on_hold: bool, reason: &str) -> Call {
    let name = deployment.as_str();
    let verb = if on_hold { "hold" } else { "release" };
    Call::post(format!("/deployments/{name}/{verb}"))
        .json(json!({ "reason": reason }))
        .command(["deployment", verb, name])
        .option("reason", reason)
}

/// Drains a worker, or ends its drain.
pub fn drain(worker: Uuid, drain: bool, reason: &str) -> Call {
    let verb = if drain { "drain" } else { "resume" };
    Call::post(format!("/workers/{worker}/{verb}"))
        .json(json!({ "reason": reason }))
        .command(["worker", verb])
        .argument(worker.to_string())
        .option("reason", reason)
}

/// Sets the priority of a deployment's steps.
pub fn set_priority(deployment: &DeploymentName, priority: i32, reason: &str) -> Call {
    let name = deployment.as_str();
    Call::post(format!("/deployments/{name}/priority"))
        .json(json!({ "priority": priority, "reason": reason }))
        .command(["deployment", "priority", name])
        .argument(priority.to_string())
        .option("reason", reason)
}

/// Opens a proposal that restores a deployment to its state at an earlier blueprint.
pub fn restore(deployment: &DeploymentName, blueprint: BlueprintNumber, partial: bool) -> Call {
    let name = deployment.as_str();
    Call::post(format!("/deployments/{name}/restore"))
        .json(json!({ "blueprint": blueprint, "partial": partial }))
        .command(["deployment", "restore", name])
        .option("blueprint", &blueprint.to_string())
        .switch("partial", partial)
}

/// Turns execution on or off for all deployments.
pub fn execution(enabled: bool, reason: &str) -> Call {
    let state = if enabled { "on" } else { "off" };
    Call::post(format!("/execution/{state}"))
        .json(json!({ "reason": reason }))
        .command(["execution", state])
        .option("reason", reason)
}

/// Marks a review as viewed, for the differences of later reviews.
pub fn view_review(id: ReviewId) -> Call {
    Call::post(format!("/reviews/{id}/view")).command(["review", "view"]).argument(id.to_string())
}

/// Marks changes of a review as viewed. An anchor is `deployment/ID` or `node/ID`.
pub fn mark_viewed(id: ReviewId, anchors: &[String]) -> Call {
    let call = Call::post(format!("/reviews/{id}/viewed"))
        .json(json!({ "anchors": anchors }))
        .command(["review", "viewed"]);
    anchors.iter().fold(call.argument(id.to_string()), |call, anchor| call.argument(anchor))
}

pub fn show_review(id: ReviewId) -> Call {
    Call::get(format!("/reviews/{id}")).command(["review", "show"]).argument(id.to_string())
}

/// Gives a verdict. An approval needs no reason.
pub fn verdict(id: ReviewId, kind: VerdictKind, reason: &str) -> Call {
    let (verb, word) = match kind {
        VerdictKind::Approve => ("approve", "approve"),
        VerdictKind::RequestChanges => ("request-changes", "request_changes"),
        VerdictKind::Reject => ("reject", "reject"),
    };
    let body = match reason.is_empty() {
        true => json!({ "kind": word }),
        false => json!({ "kind": word, "reason": reason }),
    };
    Call::post(format!("/reviews/{id}/verdicts"))
        .json(body)
        .session_only()
        .command(["review", verb])
        .argument(id.to_string())
        .option_if_set("reason", reason)
}

/// Commits a review. `name` confirms a change that can't be undone.
pub fn commit(id: ReviewId, name: Option<&str>, cancel: bool) -> Call {
    let mut body = Map::new();
    body.extend(name.map(|name| ("name".to_owned(), Value::from(name))));
    if cancel {
        body.insert("cancel".into(), true.into());
    }
    Call::post(format!("/reviews/{id}/commit"))
        .json(body.into())
        .command(["review", "commit"])
        .argument(id.to_string())
        .option_if_set("name", name.unwrap_or_default())
        .switch("cancel", cancel)
}

/// Comments on a change of a review, or on the whole review if the anchor is empty.
pub fn comment(id: ReviewId, anchor: &str, body: &str) -> Call {
    let request_body = match anchor.is_empty() {
        true => json!({ "body": body }),
        false => json!({ "anchor": anchor, "body": body }),
    };
    Call::post(format!("/reviews/{id}/threads"))
        .json(request_body)
        .command(["review", "comment"])
        .option_if_set("anchor", anchor)
        .argument(id.to_string())
        .last(body)
}

pub fn reply(thread: CommentId, body: &str) -> Call {
    Call::post(format!("/threads/{thread}/replies"))
        .json(json!({ "body": body }))
        .command(["review", "reply"])
        .argument(thread.to_string())
        .last(body)
}

/// Resolves or reopens a thread.
pub fn resolve(thread: CommentId, resolved: bool) -> Call {
    let verb = if resolved { "resolve" } else { "reopen" };
    Call::post(format!("/threads/{thread}/{verb}"))
        .command(["review", verb])
        .argument(thread.to_string())
}

pub fn cancel_run(id: RunId) -> Call {
    Call::post(format!("/runs/{id}/cancel"))
        .json(json!({}))
        .command(["run", "cancel"])
        .argument(id.to_string())
}

/// Shows a role. `barclamp` selects one of several roles with this name.
pub fn show_role(name: &RoleName, barclamp: &str) -> Call {
    let query = if barclamp.is_empty() {
        String::new()
    } else {
        format!("?barclamp={}", encoded(barclamp))
    };
    Call::get(format!("/roles/{}{query}", encoded(name.as_str())))
        .command(["role", "show", name.as_str()])
        .option_if_set("barclamp", barclamp)
}

/// Prints a script, by its content hash.
pub fn script(hash: Hash) -> Call {
    Call::get(format!("/scripts/{hash}"))
        .command(["role", "script"])
        .option("hash", &hash.to_string())
}

/// Shows the dependencies of a barclamp's roles, or of the roles around one role.
pub fn role_graph(barclamp: &str, role: &str) -> Call {
    let pairs =
        [("barclamp", barclamp), ("role", role)].into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        pairs.map(|(word, value)| format!("{word}={}", encoded(value))).collect();
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    let call = Call::get(format!("/catalog/graph{query}"));
    // The command accepts only one of the two options.
    if !barclamp.is_empty() && !role.is_empty() {
        return call;
    }
    call.command(["role", "graph"]).option_if_set("barclamp", barclamp).option_if_set("role", role)
}

pub fn run_log(id: RunId) -> Call {
    Call::get(format!("/runs/{id}/log")).command(["logs"]).argument(id.to_string())
}

/// Retries a step in ERROR.
pub fn retry(id: NoderoleId, reason: &str) -> Call {
    Call::post(format!("/noderoles/{id}/retry"))
        .json(json!({ "reason": reason }))
        .command(["noderole", "retry"])
        .argument(id.to_string())
        .option("reason", reason)
}

/// Shows the rollout of a blueprint.
pub fn blueprint_progress(blueprint: BlueprintNumber) -> Call {
    Call::get(format!("/blueprints/{blueprint}/progress"))
        .command(["blueprint", "progress"])
        .argument(blueprint.to_string())
}

/// Retries the failed steps of a blueprint.
pub fn retry_failed(blueprint: BlueprintNumber, reason: &str, destructive: bool) -> Call {
    Call::post(format!("/blueprints/{blueprint}/retry"))
        .json(json!({ "reason": reason, "destructive": destructive }))
        .command(["blueprint", "retry"])
        .argument(blueprint.to_string())
        .option("reason", reason)
        .switch("destructive", destructive)
}

/// Imports a folder of barclamps. The request body is a JSON object from path to text.
pub fn import() -> Call {
    Call { body: Body::File("barclamps.json"), ..Call::post("/barclamps") }.command([
        "barclamp",
        "import",
        "barclamps/",
    ])
}

/// Shows the approval policy.
pub fn policy() -> Call {
    Call::get("/policy").command(["policy"])
}
