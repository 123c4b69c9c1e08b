//! Converts errors of the store and the database into problems for clients.
//!
//! Validation of requests already refuses a NUL and names the field. This module handles a NUL that
//! still reaches the database, which refuses it in text and JSON. The statement has changed
//! nothing, so the response is 400.

use api::Problem;
use engine::ids::{BlueprintNumber, ProposalId, ReviewId, RunId};
use migrations::Refusal;
use sqlx::postgres::PgDatabaseError;
use store::StoreError;

/// The problem for an error of the store. The cause is logged and not returned.
pub(crate) fn from_store(error: StoreError) -> Problem {
    if let StoreError::Database(inner) = &error
        && let Some(refusal) = Refusal::of(inner)
    {
        return refused(refusal, inner);
    }
    if has_nul(&error) {
        tracing::warn!(%error, "the database rejected a text with a NUL character");
        return Problem::invalid(
            "A text has the character U+0000, which cannot be stored or searched for. Remove it.",
        );
    }
    if is_away(&error) {
        tracing::warn!(%error, "the database is not available");
        return Problem::unavailable(
            "The database does not answer at the moment. Nothing was changed. Try again in a \
             minute. Open runs continue.",
        );
    }
    tracing::error!(%error, "a database statement failed");
    Problem::internal()
}

pub(crate) fn no_blueprint(number: BlueprintNumber) -> Problem {
    Problem::not_found(format!("Blueprint {number} does not exist. See the list of blueprints."))
}

pub(crate) fn no_run(run: RunId) -> Problem {
    Problem::not_found(format!("Run {run} does not exist. See the list of runs."))
}

pub(crate) fn no_node() -> Problem {
    Problem::not_found("This node no longer exists. See the list of nodes.")
}

pub(crate) fn no_review(review: ReviewId) -> Problem {
    Problem::not_found(format!("Review {review} does not exist. See the list of reviews."))
}

pub(crate) fn no_proposal(proposal: ProposalId) -> Problem {
    Problem::not_found(format!(
        "Proposal {proposal} does not exist. See the list of open proposals."
    ))
}

/// Like [`from_store`], for an error of a COMMIT: if the connection is lost at that moment, the
/// outcome is unknown.
pub(crate) fn from_commit(error: sqlx::Error) -> Problem {
    let error = StoreError::from(error);
    if !is_away(&error) {
        return from_store(error);
    }
    tracing::warn!(%error, "the connection to the database was lost during a commit");
    Problem::unknown_outcome(
        "The connection to the database was lost while the change was stored. It is not known \
         whether it was stored. Check before you try again.",
    )
}

/// Whether the database refused a NUL, in text or in JSON.
fn has_nul(error: &StoreError) -> bool {
    has_sqlx_error(error, |inner| match inner {
        sqlx::Error::Database(e) => e.code().is_some_and(|c| c == "22021" || c == "22P05"),
        _ => false,
    })
}

fn is_away(error: &StoreError) -> bool {
    has_sqlx_error(error, |inner| match inner {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        // Connection lost, refused or one too many; server shutting down or starting up.
        sqlx::Error::Database(e) => e.code().is_some_and(|c| {
            c.starts_with("08") || c.starts_with("57P") || c == "55000" || c == "53300"
        }),
        _ => false,
    }) || matches!(
        error,
        StoreError::Orm(sea_orm::DbErr::ConnectionAcquire(_) | sea_orm::DbErr::Conn(_))
    )
}

/// Whether the error is a failed statement for which `is_so` is true, from sqlx or from SeaORM.
fn has_sqlx_error(error: &StoreError, is_so: impl Fn(&sqlx::Error) -> bool) -> bool {
    match error {
        StoreError::Database(inner) => is_so(inner),
        StoreError::Orm(
            sea_orm::DbErr::Query(sea_orm::RuntimeErr::SqlxError(inner))
            | sea_orm::DbErr::Exec(sea_orm::RuntimeErr::SqlxError(inner)),
        ) => is_so(inner),
        _ => false,
    }
}

/// The guard's hint as a further sentence, or nothing.
fn hint(error: &sqlx::Error) -> String {
    let refused = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
    refused.and_then(PgDatabaseError::hint).map(|hint| format!(" {hint}")).unwrap_or_default()
}

/// The problem for a refusal by a database guard. The guards' messages are written for users.
fn refused(refusal: Refusal, error: &sqlx::Error) -> Problem {
    let text = error.as_database_error().map(|e| e.message().to_owned()).unwrap_or_default();
    let text = format!("{text}.{}", hint(error));
    let code = match refusal {
        Refusal::BaseChanged | Refusal::NotNextBlueprint => "base_moved",
        Refusal::ProposalChanged => "not_newest",
        Refusal::PolicyChanged => "policy_moved",
        Refusal::NotApproved => "not_approved",
        Refusal::EpochMismatch => "other_epoch",
        Refusal::VerdictByAuthor => "author",
        Refusal::NotAReviewer => "not_a_reviewer",
        Refusal::AlreadyUsed => "already_applied",
        Refusal::OpenThreads => "open_threads",
        Refusal::DiscussionDenied => "not_yours",
        Refusal::CannotCommit => "forbidden",
        Refusal::RootFoldersOverlap => "root_in_use",
        Refusal::DuplicateAddress => "address_in_use",
        Refusal::TreeTooDeep => "tree_too_deep",
        Refusal::OutsideScope => "change_out_of_scope",
        Refusal::LastAdmin => "last_admin",
        Refusal::InvalidGrantScope => "unknown_permission_deployment",
        Refusal::ReservedName => "own_name",
        Refusal::LeavesHold => "leaves_hold",
        Refusal::InsufficientCredential | Refusal::NotAnAdmin => "forbidden",
        Refusal::ApprovalExcluded | Refusal::SignatureMissing => "not_approved",
        Refusal::TooManyPasskeys => "too_many_passkeys",
        Refusal::PasskeyNotConfirmed => "passkey_not_confirmed",
        Refusal::SignatureByOtherPerson => "passkey_unknown",
        Refusal::CannotConfirmAccess => "may_not_confirm",
        Refusal::LinkSessionRestricted => "password_needed",
        Refusal::NodeRecordOutsideCommit => "in_blueprint",
        Refusal::NodeRecordMismatch => "base_moved",
        Refusal::NodeBusy => "busy",
        Refusal::ActorMismatch => "other_actor",
        Refusal::SecondFactorRequired => "second_factor_needed",
        Refusal::CodeNotValid => "code_used",
        _ => "refused",
    };
    match refusal {
        Refusal::VerdictByAuthor
        | Refusal::NotAReviewer
        | Refusal::DiscussionDenied
        | Refusal::CannotCommit
        | Refusal::InsufficientCredential
        | Refusal::NotAnAdmin
        | Refusal::CannotConfirmAccess
        | Refusal::LinkSessionRestricted
        | Refusal::SecondFactorRequired
        | Refusal::CodeNotValid => Problem { code: code.into(), ..Problem::forbidden(text) },
        Refusal::PersonMismatch => Problem::signed_out(),
        _ => Problem::conflict(code, text),
    }
}

pub(crate) fn corrupt(error: impl std::fmt::Display) -> Problem {
    tracing::error!(%error, "cannot read a row");
    Problem::internal()
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn nul_in_text_is_a_client_error() {
        let db = TestDatabase::new().await;
        for (sql, text) in
            [("SELECT $1::text", "a\0b"), ("SELECT $1::text::jsonb", "{\"a\": \"\\u0000\"}")]
        {
            let failed =
                sqlx::query(sql).bind(text).execute(db.app()).await.expect_err("a refusal");
            let problem = from_store(failed.into());
            assert_eq!(
                (problem.status, problem.code.as_str()),
                (400, "invalid"),
                "{sql}: {problem:?}"
            );
        }
        let failed =
            sqlx::query("SELECT 1 / $1").bind(0).execute(db.app()).await.expect_err("a refusal");
        assert_eq!(
            from_store(failed.into()).status,
            500,
            "any other failed statement is an internal error"
        );
    }
}
