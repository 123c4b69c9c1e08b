//! The audit log: filtered lists of entries, verification of the hash chain in parts, and an export
//! for offline verification.
//!
//! Entries contain client addresses and the reasons that people enter. Therefore Viewer is not
//! enough: reading them requires Operator, Reviewer or Admin.

pub mod checkpoints;

use api::At;
use api::Problem;
use api::audit::{
    AuditEntry, AuditPage, AuditQuery, AuditSource, ChainQuery, ChainView, MAX_VERIFIED_LINKS,
};
use api::listing::{Cursor, Key, Limit, PAGE_SIZE};
use engine::audit::export::{FORMAT, Header, Line};
use engine::audit::{Chain, SealedEntry};
use engine::ids::{PersonId, SYSTEM_ACTOR};
use store::audit::{AuditActor, AuditFilter, AuditRow, Stage};
use time::OffsetDateTime;

use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{self, at};
use crate::{Control, cursor};

/// Links that an export reads per query.
const LINKS_PER_QUERY: i64 = 500;
/// Unsealed entries are counted up to this limit.
const MAX_COUNTED_UNSEALED: i64 = 1_000;

fn may_read(actor: &Actor) -> Result<(), Problem> {
    actor.require_any_somewhere(&[Permission::Operator, Permission::Reviewer, Permission::Admin])
}

impl Control {
    pub async fn audit(&self, actor: &Actor, query: &AuditQuery) -> Result<AuditPage, Problem> {
        may_read(actor)?;
        let after = match cursor::decode(query.sort, query.before.as_ref())?.as_deref() {
            Some([Key::Number(id)]) => Some(*id),
            _ => None,
        };
        let (since, until) = window(query.since, query.until)?;
        let filter = AuditFilter {
            actor: self.parse_audit_actor(text::filter_text(&query.actor)?).await?,
            source: Some(query.source)
                .filter(|source| *source != AuditSource::All)
                .map(AuditSource::as_str),
            action: text::filter_text(&query.action)?,
            subject: text::filter_text(&query.subject)?,
            since,
            until,
            ascending: !query.sort.descending,
            after,
        };
        let mut connection = self.connection().await?;
        let size = Limit::rows(query.limit, PAGE_SIZE);
        let mut rows = store::audit::audit(&mut connection, filter, size as u64 + 1)
            .await
            .map_err(from_store)?;
        let in_window = since.is_some() || until.is_some();
        if let Some(id) = after.filter(|_| in_window && rows.is_empty())
            && !store::audit::entry_exists(&mut connection, id).await.map_err(from_store)?
        {
            return Err(cursor::invalid_cursor(query.sort, query.before.as_ref()));
        }
        let more = rows.len() > size;
        rows.truncate(size);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::after_row(query.sort, &[Key::from(row.id)]));
        Ok(AuditPage { entries: rows.into_iter().map(entry).collect(), next })
    }

    async fn parse_audit_actor(&self, name: Option<&str>) -> Result<Option<AuditActor>, Problem> {
        let Some(name) = name else { return Ok(None) };
        if name == SYSTEM_ACTOR {
            return Ok(Some(AuditActor::Gantry));
        }
        let row =
            store::people::person_by_name(self.store.pool(), name).await.map_err(from_store)?;
        let row = row.ok_or_else(|| {
            Problem::not_found(format!(
                "actor: person {name:?} does not exist. Use the name of a person, or {SYSTEM_ACTOR} for \
                 Gantry itself."
            ))
        })?;
        Ok(Some(AuditActor::Person(row.id)))
    }

    /// Verifies a part of the chain and reports the current end of the whole chain.
    pub async fn audit_chain(
        &self,
        actor: &Actor,
        query: ChainQuery,
    ) -> Result<ChainView, Problem> {
        may_read(actor)?;
        let after = checked_sequence(query.after)?;
        let mut connection = self.connection().await?;
        let end = store::audit::last_seal(&mut connection).await.map_err(from_store)?;
        let mut chain = self.chain_from(&mut connection, after).await?;
        let (mut broken, mut checked) = (None, 0);
        while broken.is_none() && checked < MAX_VERIFIED_LINKS {
            let after = i64::try_from(chain.last).unwrap_or(i64::MAX);
            let links = store::audit::sealed(&mut connection, after, LINKS_PER_QUERY)
                .await
                .map_err(from_store)?;
            if links.is_empty() {
                break;
            }
            checked += links.len();
            broken = links
                .iter()
                .try_for_each(|entry| chain.add(entry))
                .err()
                .map(|broken| broken.to_string());
        }
        let unsealed = store::audit::unsealed(&mut connection, MAX_COUNTED_UNSEALED)
            .await
            .map_err(from_store)?;
        let (end, hash) =
            end.map_or((0, Chain::default().hash), |(seq, hash)| (seq.unsigned_abs(), hash));
        let next = (broken.is_none() && chain.last < end && checked > 0).then_some(chain.last);
        Ok(ChainView { chain, broken, next, end, hash, unsealed })
    }

    /// The chain state after the link `after`. Verification of the following links starts from it.
    async fn chain_from(&self, on: &mut sqlx::PgConnection, after: i64) -> Result<Chain, Problem> {
        if after == 0 {
            return Ok(Chain::default());
        }
        let (seq, hash) = store::audit::seal_at(on, after).await.map_err(from_store)?.ok_or_else(|| {
            Problem::invalid(format!(
                "after: the audit chain has no entry {after} yet. Omit it to start at the first \
                 entry."
            ))
        })?;
        let seq = seq.unsigned_abs();
        Ok(Chain { first: seq, from: hash, last: seq, hash })
    }

    /// Reads the next links of an export, and the chain state after them. [`Self::audit_export`]
    /// has checked the permission.
    pub async fn audit_links(&self, chain: Chain) -> Result<(Vec<SealedEntry>, Chain), Problem> {
        let mut connection = self.connection().await?;
        let after = checked_sequence(chain.last)?;
        let links = store::audit::sealed(&mut connection, after, LINKS_PER_QUERY)
            .await
            .map_err(from_store)?;
        let after =
            links.last().map_or(chain, |last| Chain { last: last.seq, hash: last.hash, ..chain });
        Ok((links, after))
    }

    /// Reads the next rows and documents of an export, and the stage that follows.
    /// [`Self::audit_export`] has checked the permission.
    pub async fn audit_rows(&self, end: u64, stage: Stage) -> Result<(Vec<Line>, Stage), Problem> {
        let end = checked_sequence(end)?;
        let mut connection = self.connection().await?;
        store::audit::export_part(&mut connection, end, stage).await.map_err(from_store)
    }

    /// Starts an export: the chain state to continue from, and the header. The export ends at the
    /// entry that is the newest now.
    pub async fn audit_export(
        &self,
        actor: &Actor,
        query: ChainQuery,
    ) -> Result<(Chain, Header), Problem> {
        may_read(actor)?;
        let mut connection = self.connection().await?;
        let chain = self.chain_from(&mut connection, checked_sequence(query.after)?).await?;
        let end = store::audit::last_seal(&mut connection).await.map_err(from_store)?;
        let (end, hash) = end.map_or((0, chain.hash), |(seq, hash)| (seq.unsigned_abs(), hash));
        Ok((chain, Header { format: FORMAT, after: query.after, end, hash }))
    }
}

fn checked_sequence(seq: u64) -> Result<i64, Problem> {
    i64::try_from(seq)
        .map_err(|_| Problem::invalid("after: must be the number of an entry in the audit chain."))
}

/// Parses a time range from `since` (inclusive) to `until` (exclusive); both are optional. A
/// reversed range is an error, because an empty list would suggest that nothing happened.
pub(crate) fn window(
    since: Option<At>,
    until: Option<At>,
) -> Result<(Option<OffsetDateTime>, Option<OffsetDateTime>), Problem> {
    let since = since.map(|since| timestamp("since", since)).transpose()?;
    let until = until.map(|until| timestamp("until", until)).transpose()?;
    match since.zip(until).is_some_and(|(since, until)| until <= since) {
        true => Err(Problem::invalid(
            "until: must be later than since. Use a later time, or omit one of them.",
        )),
        false => Ok((since, until)),
    }
}

/// Converts a timestamp to one that the database can store. PostgreSQL has no timestamp before 4714
/// BC.
fn timestamp(field: &str, At(millis): At) -> Result<OffsetDateTime, Problem> {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).ok();
    moment.filter(|moment| moment.year() >= 1).ok_or_else(|| {
        Problem::invalid(format!(
            "{field}: must be a time from the year 1 to the year 9999, for example \
             2026-11-21T08:15:02Z."
        ))
    })
}

fn entry(row: AuditRow) -> AuditEntry {
    AuditEntry {
        id: row.id,
        at: at(row.at),
        actor: row.actor.map(PersonId),
        name: row.name,
        action: row.action,
        subject: row.subject,
        detail: row.detail,
        source: if row.source == AuditSource::Database.as_str() {
            AuditSource::Database
        } else {
            AuditSource::Application
        },
        sealed: row.seq,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversed_time_range_is_rejected() {
        for (since, until) in
            [(None, None), (Some(At(5)), None), (None, Some(At(1))), (Some(At(1)), Some(At(2)))]
        {
            let (from, to) = window(since, until).unwrap();
            assert_eq!((from.is_some(), to.is_some()), (since.is_some(), until.is_some()));
        }
        for (since, until) in [(5, 1), (5, 5)] {
            let problem = window(Some(At(since)), Some(At(until))).unwrap_err();
            assert!(problem.status == 400 && problem.detail.starts_with("until: "), "{problem}");
        }
    }

    #[test]
    fn timestamps_outside_years_1_to_9999_are_rejected() {
        for millis in [-62_135_596_800_000, 0, 253_402_300_799_999] {
            assert!(timestamp("since", At(millis)).is_ok(), "{millis}");
        }
        for millis in
            [i64::MIN, -210_866_803_200_001, -62_135_596_800_001, 253_402_300_800_000, i64::MAX]
        {
            let problem = timestamp("since", At(millis)).unwrap_err();
            assert!(
                problem.status == 400 && problem.detail.contains("since: "),
                "{millis}: {problem}"
            );
        }
    }
}
