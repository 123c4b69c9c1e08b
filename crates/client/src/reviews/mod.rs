//! Commands for reviews.

mod text;

use api::reviews::ChangesSinceView;
use clap::Subcommand;
use engine::gate::VerdictKind;
use engine::ids::{CommentId, ReviewId};
use serde_json::{Value, json};

use crate::address::Query;
use crate::args::ReasonArgs;
use crate::blueprints::difference;
use crate::client::{Client, ListOptions, WatchOption};
use crate::deployments::graph;
use crate::deployments::graph::GraphArgs;
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::{plain, value_text};
use crate::reviews::text::{
    discussion_text, impact_text, review_text, reviewed_noderole_text, viewed_text,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Review {
    /// List reviews, newest first
    List {
        /// Your part in the review: any, waiting for you, or author
        #[arg(long, value_parser = ["all", "for_me", "mine"])]
        whose: Option<String>,
        /// Outcome of the review
        #[arg(long, value_parser = ["open", "committed", "discarded", "any"])]
        state: Option<String>,
        /// Name of the deployment
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// Part of the title
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show a review with its gate and discussion
    Show {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the differences of a review
    Diff {
        /// Number of the review
        id: ReviewId,
    },
    /// Show the differences from the version that you viewed last
    Since {
        /// Number of the review
        id: ReviewId,
    },
    /// Mark a review as viewed, so that `since` shows only later differences
    View {
        /// Number of the review
        id: ReviewId,
    },
    /// List the changes of a review that you have viewed
    Viewed {
        /// Number of the review
        id: ReviewId,
        /// Mark these changes as viewed: deployment/ID or node/ID
        #[arg(value_name = "ANCHOR")]
        anchors: Vec<String>,
    },
    /// Show the graph of the changed noderoles and their neighbors, in topological order
    Graph {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        wanted: GraphArgs,
    },
    /// Show the impact of a commit: steps that would start, stop and wait
    Impact {
        /// Number of the review
        id: ReviewId,
    },
    /// Show the planning report, stage by stage
    Report {
        /// Number of the review
        id: ReviewId,
    },
    /// Show the effective values of a noderole before and after the change, and its scripts
    Noderole {
        /// Number of the review
        id: ReviewId,
        /// NODE/ROLE, for example n1/app
        noderole: String,
    },
    /// Approve a review
    Approve {
        /// Number of the review
        id: ReviewId,
        /// Reason of the verdict
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Request changes
    RequestChanges {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// Reject a review
    Reject {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// Commit a review as the next blueprint
    Commit {
        /// Number of the review
        id: ReviewId,
        /// Name that confirms a change that can't be undone
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Cancel running steps that the change replaces
        #[arg(long)]
        cancel: bool,
    },
    /// Show the discussion of a review
    Discussion {
        /// Number of the review
        id: ReviewId,
    },
    /// Comment on a review
    Comment {
        /// Number of the review
        id: ReviewId,
        /// Text of the comment
        body: String,
        /// The change to comment on, as in the discussion [default: the whole review]
        #[arg(long, default_value = "", hide_default_value = true)]
        anchor: String,
    },
    /// Reply in a thread
    Reply {
        /// Number of the thread, from the discussion
        thread: CommentId,
        /// Text of the comment
        body: String,
    },
    /// Resolve a thread
    Resolve {
        /// Number of the thread, from the discussion
        thread: CommentId,
    },
    /// Reopen a thread
    Reopen {
        /// Number of the thread, from the discussion
        thread: CommentId,
    },
}

pub(crate) fn review(client: &Client, command: &Review) -> Outcome {
    let Client { server, output } = client;
    let verdict = |id: &ReviewId, kind: VerdictKind, reason: &str, view: &str| {
        let response = server.call(&api::calls::verdict(*id, kind, reason))?;
        output.either(&response, &format!("Review {id}: {view}."))
    };
    match command {
        Review::List { whose, state: fate, deployment, text, much } => {
            let query = Query::default()
                .with("whose", whose)
                .with("state", fate)
                .with("deployment", deployment)
                .with("text", text);
            client.list(&review_list(), &query, much)
        }
        Review::Show { id, again } => {
            client.show(*again, || server.get(&format!("/reviews/{id}")), review_text)
        }
        Review::Diff { id } => {
            difference(client, &format!("/reviews/{id}/difference"), &Query::default())
        }
        Review::Since { id } => since(client, *id),
        Review::View { id } => {
            let response = server.post(&format!("/reviews/{id}/view"), json!({}))?;
            output.either(
                &response,
                &format!(
                    "Review {id} is marked as viewed. Compare later versions with `gantry review \
                     since`."
                ),
            )
        }
        Review::Viewed { id, anchors } => {
            let place = format!("/reviews/{id}/viewed");
            let response = match anchors.as_slice() {
                [] => server.get(&place)?,
                anchors => server.post(&place, json!({"anchors": anchors}))?,
            };
            if output.is_document() {
                output.document(&response)
            } else {
                output.write(&viewed_text(&response, *id))
            }
        }
        Review::Graph { id, wanted } => {
            graph::graph(client, &format!("/reviews/{id}/graph"), wanted)
        }
        Review::Impact { id } => {
            let response = server.get(&format!("/reviews/{id}/impact"))?;
            if output.is_document() {
                output.document(&response)
            } else {
                output.write(&impact_text(&response))
            }
        }
        Review::Report { id } => {
            let response = server.get(&format!("/reviews/{id}/report"))?;
            output.either(&response, outline(&response).trim_end())
        }
        Review::Noderole { id, noderole } => {
            let (node, key) = names::noderole_on_node(server, noderole)?;
            let query =
                Query::default().with("node", node.to_string()).with("noderole", key.to_string());
            let response = server.get(&query.behind(&format!("/reviews/{id}/noderole")))?;
            output.either(&response, reviewed_noderole_text(&response, *output).trim_end())
        }
        Review::Approve { id, reason } => {
            let approve = api::calls::verdict(*id, VerdictKind::Approve, reason);
            let response = server.call(&approve)?;
            if output.is_document() {
                return output.document(&response);
            }
            output.line(&approval_text(*id, &server.get(&format!("/reviews/{id}"))?))
        }
        Review::RequestChanges { id, because } => {
            verdict(id, VerdictKind::RequestChanges, &because.reason, "changes requested")
        }
        Review::Reject { id, because } => {
            verdict(id, VerdictKind::Reject, &because.reason, "rejected")
        }
        Review::Commit { id, name, cancel } => {
            let commit = api::calls::commit(*id, name.as_deref(), *cancel);
            let response = server.call(&commit).map_err(|failure| match output.is_document() {
                true => failure,
                false => failure.with_commit_command(*id),
            })?;
            let target = value_text(&response["blueprint"]);
            output.either(
                &response,
                &format!(
                    "Review {id} is committed as blueprint {target}. Follow it: gantry converge \
                     --blueprint {target}"
                ),
            )
        }
        Review::Discussion { id } => {
            let response = server.get(&format!("/reviews/{id}/discussion"))?;
            if output.is_document() {
                output.document(&response)
            } else {
                output.write(&discussion_text(&response))
            }
        }
        Review::Comment { id, body, anchor } => {
            let response = server.call(&api::calls::comment(*id, anchor, body))?;
            output
                .either(&response, &format!("Thread {} is open.", value_text(&response["comment"])))
        }
        Review::Reply { thread, body } => {
            let response = server.call(&api::calls::reply(*thread, body))?;
            output.either(
                &response,
                &format!("Comment {} is added.", value_text(&response["comment"])),
            )
        }
        Review::Resolve { thread } => {
            let response = server.call(&api::calls::resolve(*thread, true))?;
            output.either(&response, &format!("Thread {thread} is resolved."))
        }
        Review::Reopen { thread } => {
            let response = server.call(&api::calls::resolve(*thread, false))?;
            output.either(&response, &format!("Thread {thread} is open again."))
        }
    }
}

/// The result of an approval. It may not count yet, for example without a signature or in the
/// cooling period.
fn approval_text(id: ReviewId, review: &Value) -> String {
    let verdicts = review["verdicts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = verdicts.iter().find(|verdict| verdict["yours"] == true);
    if own.is_none_or(|own| own["counts"] == true) {
        return format!("Review {id}: approved.");
    }
    let rules = review["gate"]["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let open = rules.iter().filter(|rule| rule["passes"] != true);
    let reasons: String =
        open.map(|rule| format!("\n  {}", plain(&value_text(&rule["text"])))).collect();
    format!("Review {id}: approved, but the approval does not count yet.{reasons}")
}

/// Prints all differences since the last view, page by page.
fn since(client: &Client, id: ReviewId) -> Outcome {
    let Client { server, output } = client;
    let path = format!("/reviews/{id}/since");
    let mut whole: ChangesSinceView = server.read(&path)?;
    while let Some(after) = whole.next.take() {
        let page: ChangesSinceView =
            server.read(&Query::default().with("after", after.to_string()).behind(&path))?;
        whole.difference.deployments.extend(page.difference.deployments);
        whole.difference.nodes.extend(page.difference.nodes);
        whole.noderoles.extend(page.noderoles);
        whole.contents.extend(page.contents);
        whole.pins.extend(page.pins);
        whole.next = page.next;
        whole.more = 0;
    }
    let response = serde_json::to_value(&whole).unwrap_or_default();
    let view = match whole.before {
        None => format!(
            "You have not viewed this review before. Show all changes: gantry review \
            diff {id}"
        ),
        Some(before) if whole.same_effect => {
            format!("It has the same effect as review {before}, which you viewed before.")
        }
        Some(before) => {
            format!("Since review {before}:\n{}", outline(&response["difference"]).trim_end())
        }
    };
    output.either(&response, &view)
}

pub(crate) fn review_list() -> List {
    List {
        path: "/reviews".into(),
        items: "reviews",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "review")),
            ("STATE", |v, _| word(v, "state")),
            ("APPROVALS", |v, _| {
                format!(
                    "{} of {}",
                    value_text(&v["approvals"]["valid"]),
                    value_text(&v["approvals"]["required"])
                )
            }),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("TITLE", |v, _| word(v, "title")),
            ("AUTHORS", |v, _| word(v, "authors")),
            ("TIME", |v, o| o.time(&v["at"])),
            ("SUMMARY", |v, _| word(v, "summary")),
        ],
        none: "No reviews found.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_approval_states_its_reason() {
        let review = |counts: bool| {
            json!({"verdicts": [{"person": "ada", "yours": true, "counts": counts}],
                "gate": {"rules": [{"passes": true, "text": "No."}, {"passes": false, "text": "Sign it."}]}})
        };
        assert_eq!(approval_text(ReviewId(7), &review(true)), "Review 7: approved.");
        assert_eq!(
            approval_text(ReviewId(7), &review(false)),
            "Review 7: approved, but the approval does not count yet.\n  Sign it."
        );
    }
}
