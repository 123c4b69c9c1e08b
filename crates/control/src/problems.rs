//! From what the lower floors say to what people read.

use api::Problem;
use migrations::Refusal;
use store::StoreError;

/// The problem that a store's failure is for the caller. The cause goes to the log, not to the answer.
pub(crate) fn from_store(error: StoreError) -> Problem {
    if let StoreError::Database(inner) = &error
        && let Some(refusal) = Refusal::of(inner)
    {
        return refused(refusal, inner);
    }
    if is_away(&error) {
        tracing::warn!(%error, "the database is away");
        return Problem::unavailable(
            "The database does not answer at the moment. Nothing was changed; try again in a minute. Runs that are under way go on.",
        );
    }
    tracing::error!(%error, "a statement failed");
    Problem::internal()
}

/// The same of a transaction's end: when the database is lost just then, nobody knows whether it was kept.
pub(crate) fn from_commit(error: sqlx::Error) -> Problem {
    let error = StoreError::from(error);
    if !is_away(&error) {
        return from_store(error);
    }
    tracing::warn!(%error, "the database was lost at the end of a transaction");
    Problem::unknown_outcome(
        "The database was lost just when this was kept, so it is not known whether it was. Look before you try again.",
    )
}

fn is_away(error: &StoreError) -> bool {
    let sqlx_is_away = |inner: &sqlx::Error| match inner {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => true,
        // Connections lost, refused for now, or too many; the server shutting down or starting up.
        sqlx::Error::Database(e) => {
            e.code().is_some_and(|c| c.starts_with("08") || c.starts_with("57P") || c == "55000" || c == "53300")
        }
        _ => false,
    };
    match error {
        StoreError::Database(inner) => sqlx_is_away(inner),
        StoreError::Orm(sea_orm::DbErr::ConnectionAcquire(_) | sea_orm::DbErr::Conn(_)) => true,
        StoreError::Orm(
            sea_orm::DbErr::Query(sea_orm::RuntimeErr::SqlxError(inner))
            | sea_orm::DbErr::Exec(sea_orm::RuntimeErr::SqlxError(inner)),
        ) => sqlx_is_away(inner),
        _ => false,
    }
}

/// The database's own guards said no. Their texts are written for people.
fn refused(refusal: Refusal, error: &sqlx::Error) -> Problem {
    let text = error.as_database_error().map(|e| e.message().to_owned()).unwrap_or_default();
    let code = match refusal {
        Refusal::BaseMoved | Refusal::NotTheNext => "base_moved",
        Refusal::ProposalMovedOn => "not_newest",
        Refusal::PolicyMoved => "policy_moved",
        Refusal::NotApproved => "not_approved",
        Refusal::OtherEpoch => "other_epoch",
        Refusal::AuthorsVerdict => "author",
        Refusal::NotAReviewer => "not_a_reviewer",
        Refusal::Spent => "spent",
        Refusal::OpenThreads => "open_threads",
        Refusal::NoVoice => "not_yours",
        Refusal::MayNotCommit => "forbidden",
        Refusal::FolderTaken => "root_taken",
        Refusal::MachineTaken => "machine_taken",
        Refusal::TooLow => "too_low",
        Refusal::BeyondScope => "beyond_scope",
        Refusal::LastAdmin => "last_admin",
        Refusal::NoPartOfTheTree => "no_part_of_the_tree",
        Refusal::OwnName => "own_name",
        _ => "refused",
    };
    match refusal {
        Refusal::AuthorsVerdict | Refusal::NotAReviewer | Refusal::NoVoice | Refusal::MayNotCommit => {
            Problem { code: code.into(), ..Problem::forbidden(text) }
        }
        _ => Problem::conflict(code, text),
    }
}
