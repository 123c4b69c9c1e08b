//! Commands for reviews.

mod text;

use std::collections::BTreeMap;

use api::blueprints::{Comparison, Side};
use api::calls;
use api::catalog::HiddenCharacters;
use api::reviews::{ChangesSinceView, ReviewView};
use api::views::graph::GraphOptions;
use clap::Subcommand;
use engine::blueprint::Impact;
use engine::blueprint::text::Names;
use engine::gate::VerdictKind;
use engine::ids::{CommentId, DeploymentId, DeploymentName, ReviewId};
use serde_json::Value;

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
use crate::output::{plain, sanitize_lines, value_text};
use crate::reviews::text::{
    discussion_text, impact_text, review_text, reviewed_noderole_text, viewed_text,
};
use crate::script_diff;
use crate::server::parse_answer;

#[derive(Debug, Subcommand)]
pub(crate) enum Review {
    /// List reviews, newest first
    List {
        /// Your part in the review: any, waiting for you, or author
        #[arg(long, value_parser = ["all", "for_me", "mine"])]
        involvement: Option<String>,
        /// Outcome of the review
        #[arg(long, value_parser = ["open", "committed", "discarded", "any"])]
        state: Option<String>,
        /// Name of the deployment
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// Part of the title
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
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
        args: GraphArgs,
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
        reason: ReasonArgs,
    },
    /// Reject a review
    Reject {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        reason: ReasonArgs,
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
        let response = server.call(&calls::verdict(*id, kind, reason))?;
        output.either(&response, &format!("Review {id}: {view}."))
    };
    match command {
        Review::List { involvement, state, deployment, filter, list_options } => {
            let query = Query::default()
                .with("involvement", involvement)
                .with("state", state)
                .with("deployment", deployment)
                .with("filter", filter);
            client.list(&review_list(), &query, list_options)
        }
        Review::Show { id, again } => {
            let ask = || {
                let mut review = server.show(&calls::show_review(*id))?;
                // The JSON is that of the review alone.
                if !output.is_document() {
                    let discussion = server.show(&calls::discussion(*id))?;
                    if let Some(fields) = review.as_object_mut() {
                        fields.insert("discussion".to_owned(), discussion);
                    }
                }
                Ok(review)
            };
            client.show(*again, ask, review_text)
        }
        Review::Diff { id } => {
            difference(client, &calls::review_difference(*id), &Query::default())
        }
        Review::Since { id } => since(client, *id),
        Review::View { id } => {
            let response = server.call(&calls::view_review(*id))?;
            output.either(
                &response,
                &format!(
                    "Review {id} is marked as viewed. Compare later versions with `gantry review \
                     since`."
                ),
            )
        }
        Review::Viewed { id, anchors } => {
            let response = match anchors.as_slice() {
                [] => server.show(&calls::viewed_changes(*id))?,
                anchors => server.call(&calls::mark_viewed(*id, anchors))?,
            };
            if output.is_document() {
                output.document(&response)
            } else {
                output.write(&viewed_text(&response, *id))
            }
        }
        Review::Graph { id, args } => {
            graph::graph(client, &calls::review_graph(*id, &GraphOptions::default()), args)
        }
        Review::Impact { id } => {
            let response = server.show(&calls::review_impact(*id))?;
            if output.is_document() {
                output.document(&response)
            } else {
                output.write(&impact_text(&response))
            }
        }
        Review::Report { id } => {
            let response = server.show(&calls::review_report(*id))?;
            output.either(&response, outline(&response).trim_end())
        }
        Review::Noderole { id, noderole } => {
            let (node, key) = names::noderole_on_node(server, noderole)?;
            let response = server.show(&calls::reviewed_noderole(*id, node, &key))?;
            output.either(&response, reviewed_noderole_text(&response, *output).trim_end())
        }
        Review::Approve { id, reason } => {
            let approve = calls::verdict(*id, VerdictKind::Approve, reason);
            let response = server.call(&approve)?;
            if output.is_document() {
                return output.document(&response);
            }
            output.line(&approval_text(*id, &server.show(&calls::show_review(*id))?))
        }
        Review::RequestChanges { id, reason } => {
            verdict(id, VerdictKind::RequestChanges, &reason.reason, "changes requested")
        }
        Review::Reject { id, reason } => {
            verdict(id, VerdictKind::Reject, &reason.reason, "rejected")
        }
        Review::Commit { id, name, cancel } => {
            let commit = calls::commit(*id, name.as_deref(), *cancel);
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
            let response = server.show(&calls::discussion(*id))?;
            if output.is_document() {
                output.document(&response)
            } else {
                output.write(&discussion_text(&response))
            }
        }
        Review::Comment { id, body, anchor } => {
            let response = server.call(&calls::comment(*id, anchor, body))?;
            output
                .either(&response, &format!("Thread {} is open.", value_text(&response["comment"])))
        }
        Review::Reply { thread, body } => {
            let response = server.call(&calls::reply(*thread, body))?;
            output.either(
                &response,
                &format!("Comment {} is added.", value_text(&response["comment"])),
            )
        }
        Review::Resolve { thread } => {
            let response = server.call(&calls::resolve(*thread, true))?;
            output.either(&response, &format!("Thread {thread} is resolved."))
        }
        Review::Reopen { thread } => {
            let response = server.call(&calls::resolve(*thread, false))?;
            output.either(&response, &format!("Thread {thread} is open again."))
        }
    }
}

/// The result of an approval. It may not count yet, for example without a signature or in the
/// cooling period.
fn approval_text(id: ReviewId, review: &Value) -> String {
    let verdicts = review["verdicts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = verdicts.iter().find(|verdict| verdict["own"] == true);
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
    let path = calls::review_since(id).url();
    let mut whole: ChangesSinceView = server.read(&path)?;
    while let Some(after) = whole.next.take() {
        let page: ChangesSinceView =
            server.read(&Query::default().with("after", after.to_string()).on(&path))?;
        whole.difference.deployments.extend(page.difference.deployments);
        whole.difference.nodes.extend(page.difference.nodes);
        whole.noderoles.extend(page.noderoles);
        whole.contents.extend(page.contents);
        whole.pins.extend(page.pins);
        whole.next = page.next;
        whole.more = 0;
    }
    let response = serde_json::to_value(&whole).unwrap_or_default();
    let text = match whole.before {
        _ if output.is_document() => String::new(),
        None => format!(
            "You have not viewed an earlier version of review {id}. Show all changes: gantry \
             review diff {id}"
        ),
        Some(before) if whole.same_effect => {
            format!("It has the same effect as review {before}, which you viewed before.")
        }
        Some(before) => {
            let view: ReviewView =
                parse_answer(&server.show(&calls::show_review(id))?, "expected a review")?;
            output.with_changes(&since_text(whole, before, view.deployments))
        }
    };
    output.either(&response, text.trim_end())
}

/// The differences since a review, in the form of `gantry review diff`.
fn since_text(
    since: ChangesSinceView,
    before: ReviewId,
    deployments: BTreeMap<DeploymentId, DeploymentName>,
) -> String {
    let side = |review| Side { blueprint: None, review: Some(review), root: None };
    let comparison = Comparison {
        from: side(before),
        to: side(since.review),
        deployment: None,
        note: None,
        difference: since.difference,
        more: since.more,
        next: None,
        names: Names { deployments, noderoles: since.noderoles },
        contents: since.contents,
        pins: since.pins,
        role_values: Vec::new(),
        more_role_values: 0,
        hidden_characters: HiddenCharacters::default(),
        impact: Impact::default(),
    };
    sanitize_lines(&(comparison.text() + &script_diff::scripts(&comparison)))
}

pub(crate) fn review_list() -> List {
    List {
        path: calls::List::Reviews.path(""),
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
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_since_a_review_are_text_with_names() {
        let (web, edge, lab) = [1, 2, 3].map(|n| DeploymentId(uuid::Uuid::from_u128(n))).into();
        let difference = json!({"deployments": [{"id": web, "name": "web", "mark": "changed",
            "parent": {"old": edge, "new": lab}, "barclamps": [], "roles": []}], "nodes": [],
            "unchanged": 0});
        let since = ChangesSinceView {
            review: ReviewId(9),
            before: Some(ReviewId(8)),
            same_effect: false,
            difference: serde_json::from_value(difference).unwrap(),
            noderoles: BTreeMap::new(),
            contents: Vec::new(),
            pins: Vec::new(),
            more: 0,
            next: None,
        };
        let names = [(web, "web"), (edge, "edge"), (lab, "lab")];
        let names = names.map(|(id, name)| (id, name.parse().unwrap()));
        let text = since_text(since, ReviewId(8), names.into());
        assert!(text.starts_with("from review 8\nto   review 9\n"), "{text}");
        assert!(text.contains("moves from below edge to below lab"), "{text}");
    }

    #[test]
    fn ignored_approval_states_its_reason() {
        let review = |counts: bool| {
            json!({"verdicts": [{"person": "ada", "own": true, "counts": counts}],
                "gate": {"rules": [{"passes": true, "text": "No."}, {"passes": false,
                "text": "Sign it."}]}})
        };
        assert_eq!(approval_text(ReviewId(7), &review(true)), "Review 7: approved.");
        assert_eq!(
            approval_text(ReviewId(7), &review(false)),
            "Review 7: approved, but the approval does not count yet.\n  Sign it."
        );
    }
}
