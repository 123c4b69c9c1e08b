//! An export of the audit, and its verification.
//!
//! An export has one JSON object per line ([`Line`]). First comes the header, then the sealed
//! entries. Next are the rows that they record, with the documents that these name. The last line
//! has the totals. The order of the rows lets a verifier use little memory. Passkeys, policies,
//! reviews, verdicts and signatures come before blueprints. Each blueprint follows its root and its
//! new documents, and runs follow their blueprint.
//!
//! From such a text alone, [`Check`] proves that
//! * the entries are those that were sealed, in order;
//! * each row equals the row that its entry records, and each entry has its row;
//! * each blueprint is its parent with exactly the documents of its review replaced;
//! * each committed review had the approvals that the policy in force required, and no
//!   objection;
//! * these approvals came from people who could review and were not authors, whose accounts were
//!   not disabled in between, and whose access had no recent origin in common with an author;
//! * they were signed with confirmed passkeys if the policy required it;
//! * each run belongs to a blueprint whose documents require exactly the content that it ran.
//!
//! It does not prove that a reviewer's permission for a part of the tree covers the right part, or
//! that a rule for single deployments demanded signatures. The database checks these.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use time::{Duration, OffsetDateTime};

use super::access::{Access, ApprovalContext};
use super::{Chain, ChainDefect, SealedEntry};
use crate::Hash;
use crate::blueprint::{DocumentChange, apply, change_hash, changes, projection};
use crate::canonical::{self, ObjectKind};
use crate::catalog::Script;
use crate::cluster::{DeploymentDoc, NodeDoc, RootDoc};
use crate::gate::signature::{
    self, Assertion, Confirmation, Nonce, Passkey, SignedReview, Statement,
};
use crate::gate::{Policy, Risk, SignedRule, VerdictKind};
use crate::ids::{ActionName, NodeId, PasskeyId, PersonId, StepId};

/// The version of the export format.
pub const FORMAT: u32 = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    Header(Header),
    Audit(SealedEntry),
    /// The bytes of a document, policy, role or script.
    Object {
        kind: ObjectKind,
        hash: Hash,
        /// The bytes as text, if they are UTF-8.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// The bytes in hexadecimal digits, if they are not UTF-8.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
    },
    Row {
        table: Table,
        /// The columns of the row, as the audit records them.
        row: Map<String, Value>,
        /// Only for reviews: their documents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        documents: Option<Vec<DocumentChange>>,
    },
    End(End),
}

/// The tables whose rows an export has, in the order of the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    Barclamp,
    Passkey,
    PasskeyConfirmation,
    Policy,
    Review,
    Verdict,
    VerdictSignature,
    Blueprint,
    Run,
}

impl Table {
    /// The name of the table in the database, and in the actions of the entries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Barclamp => "barclamp",
            Self::Passkey => "passkey",
            Self::PasskeyConfirmation => "passkey_confirmation",
            Self::Policy => "policy",
            Self::Review => "review",
            Self::Verdict => "verdict",
            Self::VerdictSignature => "verdict_signature",
            Self::Blueprint => "blueprint",
            Self::Run => "run",
        }
    }

    /// The table whose row an entry with this action records.
    fn from_action(action: &str) -> Option<Self> {
        match action {
            "barclamp.insert" => Some(Self::Barclamp),
            "passkey.insert" => Some(Self::Passkey),
            "passkey_confirmation.insert" => Some(Self::PasskeyConfirmation),
            "verdict_signature.insert" => Some(Self::VerdictSignature),
            "policy.insert" => Some(Self::Policy),
            "review.insert" => Some(Self::Review),
            "verdict.insert" => Some(Self::Verdict),
            "blueprint.insert" => Some(Self::Blueprint),
            "run.start" | "run.end" => Some(Self::Run),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub format: u32,
    /// The last entry before the export. It is 0 for a full export. Otherwise the export has only
    /// entries, and proves only the chain.
    pub after: u64,
    pub end: u64,
    /// The link of the last entry.
    pub hash: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub end: u64,
    /// The link of the last entry.
    pub hash: Hash,
    /// The number of lines of each kind before this one.
    pub totals: Totals,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub entries: u64,
    pub objects: u64,
    pub barclamps: u64,
    pub passkeys: u64,
    pub passkey_confirmations: u64,
    pub policies: u64,
    pub reviews: u64,
    pub verdicts: u64,
    pub verdict_signatures: u64,
    pub blueprints: u64,
    pub runs: u64,
}

impl Totals {
    pub fn count(&mut self, line: &Line) {
        let total = match line {
            Line::Header(_) | Line::End(_) => return,
            Line::Audit(_) => &mut self.entries,
            Line::Object { .. } => &mut self.objects,
            Line::Row { table, .. } => match table {
                Table::Barclamp => &mut self.barclamps,
                Table::Passkey => &mut self.passkeys,
                Table::PasskeyConfirmation => &mut self.passkey_confirmations,
                Table::Policy => &mut self.policies,
                Table::Review => &mut self.reviews,
                Table::Verdict => &mut self.verdicts,
                Table::VerdictSignature => &mut self.verdict_signatures,
                Table::Blueprint => &mut self.blueprints,
                Table::Run => &mut self.runs,
            },
        };
        *total += 1;
    }

    /// Describes the totals that differ from the lines that were found.
    fn difference(&self, found: &Self) -> String {
        let counts = |totals: &Self| match serde_json::to_value(totals) {
            Ok(Value::Object(counts)) => counts,
            _ => Map::new(),
        };
        let expected = counts(self).into_iter().zip(counts(found));
        let differ = expected.filter(|((_, expected), (_, found))| expected != found);
        let differ = differ.map(|((of, expected), (_, found))| {
            format!("it counts {expected} {of}, but the export has {found}")
        });
        differ.collect::<Vec<_>>().join("; ")
    }
}

/// The result of a successful verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub chain: Chain,
    /// Whether the export begins at entry 1. Only then are rows and documents verified too.
    pub whole: bool,
    pub totals: Totals,
}

/// The sealed text of an entry.
#[derive(Deserialize)]
struct Content {
    action: String,
    subject: String,
    detail: Value,
    #[serde(default)]
    source: Option<String>,
}

/// The entry that records a row. It stores only a hash of the values, because there may be millions
/// of runs.
#[derive(Clone, Copy)]
struct RecordedRow {
    seq: u64,
    fields: usize,
    hash: Hash,
    met: bool,
}

/// A person's permission to review after an entry.
#[derive(Clone, Copy)]
struct ReviewPermission {
    seq: u64,
    /// Whether the account is an enabled person.
    able: bool,
    /// Whether the person may review everywhere.
    everywhere: bool,
    /// Number of grants to review a part of the tree.
    parts: i64,
    /// Verdicts up to this id are void, because the account was disabled after them.
    void_to: i64,
}

#[derive(Deserialize)]
struct PersonRow {
    kind: String,
    disabled: bool,
    permissions: Vec<String>,
    #[serde(default)]
    verdicts_void_to: i64,
}

#[derive(Deserialize)]
struct PolicyRow {
    number: i64,
    #[serde(deserialize_with = "bytea")]
    hash: Hash,
    blueprint_number: i64,
}

#[derive(Deserialize)]
struct BarclampRow {
    name: String,
    version: String,
    #[serde(deserialize_with = "bytea")]
    hash: Hash,
}

#[derive(Deserialize)]
struct BarclampParts {
    #[serde(default)]
    roles: BTreeMap<String, Hash>,
}

#[derive(Deserialize)]
struct RoleParts {
    #[serde(default)]
    scripts: Vec<Script>,
}

#[derive(Deserialize)]
struct ReviewRow {
    id: i64,
    #[serde(deserialize_with = "bytea")]
    change_hash: Hash,
    policy_number: i64,
    #[serde(default, deserialize_with = "optional_bytea")]
    new_policy_hash: Option<Hash>,
    approvals_needed: u32,
    epoch: i64,
    risk: BTreeSet<Risk>,
    authors: BTreeSet<PersonId>,
    created_by: PersonId,
    #[serde(default, with = "time::serde::rfc3339::option")]
    created_at: Option<OffsetDateTime>,
    /// Whether the database required signed approvals.
    #[serde(default)]
    signed: bool,
}

#[derive(Deserialize)]
struct PasskeyRow {
    id: PasskeyId,
    person_id: PersonId,
    rp_id: String,
    origin: String,
    credential: Value,
}

#[derive(Deserialize)]
struct ConfirmationRow {
    passkey_id: PasskeyId,
    #[serde(default)]
    by_passkey: Option<PasskeyId>,
    #[serde(flatten)]
    signed: Option<SignedRow>,
}

#[derive(Deserialize)]
struct SignatureRow {
    verdict_id: i64,
    passkey_id: PasskeyId,
    #[serde(flatten)]
    signed: SignedRow,
}

/// A nonce and a signature. The database writes bytes in JSON as `\x` and hexadecimal digits.
#[derive(Deserialize)]
struct SignedRow {
    nonce: String,
    client_data: String,
    authenticator_data: String,
    signature: String,
}

impl SignedRow {
    fn read(&self) -> Option<(Nonce, Assertion)> {
        let bytes = |text: &str| unhex(text.strip_prefix("\\x")?);
        let assertion = Assertion {
            client_data: bytes(&self.client_data)?,
            authenticator_data: bytes(&self.authenticator_data)?,
            signature: bytes(&self.signature)?,
        };
        Some((Nonce::from_bytes(&bytes(&self.nonce)?)?, assertion))
    }
}

#[derive(Deserialize)]
struct VerdictRow {
    id: i64,
    review_id: i64,
    person_id: PersonId,
    kind: String,
    #[serde(default, with = "time::serde::rfc3339::option")]
    at: Option<OffsetDateTime>,
}

#[derive(Deserialize)]
struct BlueprintRow {
    number: i64,
    #[serde(default)]
    parent: Option<i64>,
    kind: String,
    #[serde(deserialize_with = "bytea")]
    root: Hash,
    #[serde(default)]
    review_id: Option<i64>,
    epoch: i64,
}

#[derive(Deserialize)]
struct RunRow {
    id: i64,
    step_id: StepId,
    node_id: NodeId,
    generation: i64,
    blueprint_number: i64,
    epoch: i64,
    #[serde(deserialize_with = "bytea")]
    content_hash: Hash,
}

/// The database writes bytes in JSON as `\x` and hexadecimal digits.
fn bytea<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.strip_prefix("\\x").unwrap_or(&text).parse().map_err(serde::de::Error::custom)
}

fn optional_bytea<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Hash>, D::Error> {
    bytea(deserializer).map(Some)
}

struct Review {
    row: ReviewRow,
    /// The content that signatures cover. `None` for entries from before signatures existed.
    reviewed: Option<SignedReview>,
    documents: Vec<DocumentChange>,
    /// In the order of their entries.
    verdicts: Vec<RecordedVerdict>,
}

struct RecordedVerdict {
    /// The number of the entry that records it.
    seq: u64,
    id: i64,
    person: PersonId,
    kind: String,
    at: Option<OffsetDateTime>,
}

/// Verifies a signature for [`Check`], as [`signature::Verify`] does.
pub type VerifySignature = fn(&Passkey, Hash, &Assertion) -> Result<(), String>;

fn reject_signature(_: &Passkey, _: Hash, _: &Assertion) -> Result<(), String> {
    Err("this program cannot verify signatures".to_owned())
}

/// The previous blueprint.
struct Before {
    number: i64,
    root_hash: Hash,
    root: RootDoc,
    epoch: i64,
}

/// Verifies an export line by line.
#[derive(Default)]
pub struct Check {
    lines: usize,
    header: Option<Header>,
    chain: Chain,
    totals: Totals,
    ended: bool,
    expected: BTreeMap<u64, Hash>,
    fields: Vec<Vec<String>>,
    recorded: HashMap<(Table, String), RecordedRow>,
    people: HashMap<PersonId, Vec<ReviewPermission>>,
    /// The roles of each barclamp document.
    barclamps: BTreeMap<Hash, BTreeMap<String, Hash>>,
    /// The scripts of each role document.
    roles: BTreeMap<Hash, Vec<Script>>,
    scripts: BTreeSet<Hash>,
    /// Documents whose bytes have another hash. The error is reported later, by the line that names
    /// the document, because that line can describe it.
    altered: BTreeMap<Hash, ObjectKind>,
    policy_objects: BTreeMap<Hash, Policy>,
    access: Access,
    deployments: HashMap<Hash, Arc<DeploymentDoc>>,
    nodes: HashMap<Hash, Arc<NodeDoc>>,
    next_root: Option<(Hash, RootDoc)>,
    /// By the number of the blueprint that introduced it.
    policies: BTreeMap<i64, PolicyRow>,
    reviews: HashMap<i64, Review>,
    verify: Option<VerifySignature>,
    passkeys: BTreeMap<PasskeyId, Passkey>,
    /// By the id of the verdict.
    signatures: HashMap<i64, (PasskeyId, Nonce, Assertion)>,
    before: Option<Before>,
    /// Numbers of the blueprints that changed documents.
    generations: BTreeSet<i64>,
    /// The removal steps of the noderoles that the newest target does not contain: the number of
    /// the target that removed it, and the content from before.
    removals: HashMap<StepId, (i64, Hash)>,
}

fn defect(subject: impl Into<String>, reason: impl Into<String>) -> ChainDefect {
    ChainDefect::Proof { subject: subject.into(), reason: reason.into() }
}

impl Check {
    /// Checks an export that must have these links.
    pub fn expecting(links: impl IntoIterator<Item = (u64, Hash)>) -> Self {
        Self { expected: links.into_iter().collect(), ..Self::default() }
    }

    /// Also verifies signatures. Without this, changes that required signatures are rejected.
    #[must_use]
    pub fn with_signatures(self, verify: VerifySignature) -> Self {
        Self { verify: Some(verify), ..self }
    }

    pub fn line(&mut self, text: &str) -> Result<(), ChainDefect> {
        self.lines += 1;
        let number = self.lines;
        let unexpected =
            |reason: &str| ChainDefect::Line { line: number, reason: reason.to_owned() };
        if self.ended {
            return Err(unexpected("it comes after the last line of the export"));
        }
        let line: Line =
            serde_json::from_str(text).map_err(|error| unexpected(&error.to_string()))?;
        let Some(header) = &self.header else {
            return match line {
                Line::Header(header) if header.format == FORMAT => {
                    self.header = Some(header);
                    Ok(())
                }
                Line::Header(header) => Err(unexpected(&format!(
                    "its format is {}, and only format {FORMAT} is supported",
                    header.format
                ))),
                _ => Err(unexpected("an export must begin with the header")),
            };
        };
        let (after, end, whole) = (header.after, header.end, header.after == 0);
        self.totals.count(&line);
        match line {
            Line::Header(_) => Err(unexpected("it is a second header")),
            Line::Audit(sealed) if self.totals != self.entry_totals() => {
                Err(unexpected(&format!("entry {} comes after the rows", sealed.seq)))
            }
            Line::Audit(sealed) => {
                if self.chain.first == 0 && sealed.seq != after + 1 {
                    return Err(ChainDefect::Position { expected: after + 1, found: sealed.seq });
                }
                self.chain.add(&sealed)?;
                self.expect(&sealed)?;
                if whole { self.entry(&sealed) } else { Ok(()) }
            }
            Line::End(end) => self.end(&end),
            _ if self.last(after) != end => Err(defect(
                format!("entry {}", self.last(after) + 1),
                format!("it is missing: the header names {end} as the last entry"),
            )),
            _ if !whole => Err(unexpected("an export of later entries must not have rows")),
            Line::Object { kind, hash, body, hex } => {
                let bytes = match (body, hex) {
                    (Some(body), None) => body.into_bytes(),
                    (None, Some(hex)) => unhex(&hex)
                        .ok_or_else(|| unexpected("hex must have two digits for each byte"))?,
                    _ => return Err(unexpected("an object must have either body or hex")),
                };
                self.object(kind, hash, &bytes)
            }
            Line::Row { table, row, documents } => self.row(table, row, documents),
        }
    }

    /// The number of the last entry so far.
    fn last(&self, after: u64) -> u64 {
        if self.chain.first == 0 { after } else { self.chain.last }
    }

    fn entry_totals(&self) -> Totals {
        Totals { entries: self.totals.entries, ..Totals::default() }
    }

    fn expect(&mut self, sealed: &SealedEntry) -> Result<(), ChainDefect> {
        match self.expected.remove(&sealed.seq) {
            Some(hash) if hash != sealed.hash => {
                Err(ChainDefect::Recomputed { seq: sealed.seq, expected: hash, found: sealed.hash })
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, last_line: &End) -> Result<(), ChainDefect> {
        let header = self.header.clone().unwrap_or(Header {
            format: FORMAT,
            after: 0,
            end: 0,
            hash: self.chain.hash,
        });
        let last = self.last(header.after);
        let hash = if self.chain.first == 0 && header.after > 0 {
            last_line.hash
        } else {
            self.chain.hash
        };
        if last_line.end != last
            || last_line.hash != hash
            || header.end != last
            || header.hash != hash
        {
            let named = if header.end == last { last_line.end } else { header.end };
            return Err(ChainDefect::End { named, found: last });
        }
        if header.after == 0 {
            self.check_rows_present(Table::Run)?;
        }
        if let Some((hash, kind)) = self.altered.first_key_value() {
            return Err(defect(
                format!("a {} that no line names", kind.as_str()),
                self.unusable_reason(*hash),
            ));
        }
        if last_line.totals != self.totals {
            return Err(defect("the last line", last_line.totals.difference(&self.totals)));
        }
        self.ended = true;
        Ok(())
    }

    /// Whether the export has every recorded row, in all tables up to `up_to`.
    fn check_rows_present(&self, up_to: Table) -> Result<(), ChainDefect> {
        let missing =
            self.recorded.iter().filter(|((table, _), recorded)| !recorded.met && *table <= up_to);
        match missing.min_by_key(|(_, recorded)| recorded.seq) {
            None => Ok(()),
            Some(((table, key), recorded)) => Err(defect(
                format!("{} {key}", table.as_str()),
                format!("it is missing, but entry {} of the audit records it", recorded.seq),
            )),
        }
    }

    /// The result, after all lines.
    ///
    /// # Errors
    /// If the end or an expected link is missing.
    pub fn finish(self) -> Result<Verification, ChainDefect> {
        if !self.ended {
            return Err(ChainDefect::Truncated(self.chain.last));
        }
        let after = self.header.as_ref().map_or(0, |header| header.after);
        let last = self.last(after);
        if let Some((newest, _)) = self.expected.last_key_value().filter(|(seq, _)| **seq > last) {
            return Err(ChainDefect::MissingTail { from: last + 1, to: *newest });
        }
        if let Some((seq, hash)) = self.expected.first_key_value() {
            // An export of later entries also proves the link before its first entry.
            if *seq == after && self.expected.len() == 1 && after > 0 && self.chain.first > 0 {
                if *hash != self.chain.from {
                    return Err(ChainDefect::Recomputed {
                        seq: *seq,
                        expected: *hash,
                        found: self.chain.from,
                    });
                }
            } else if *seq > 0 {
                return Err(ChainDefect::NotCovered { seq: *seq, after });
            }
        }
        Ok(Verification { chain: self.chain, whole: after == 0, totals: self.totals })
    }

    fn entry(&mut self, sealed: &SealedEntry) -> Result<(), ChainDefect> {
        let named = || format!("entry {}", sealed.seq);
        let content: Content = serde_json::from_str(&sealed.content).map_err(|error| {
            defect(named(), format!("its content is not a valid entry: {error}"))
        })?;
        if content.source.as_deref() != Some("database") {
            return Ok(());
        }
        let Value::Object(detail) = content.detail else {
            return Err(defect(named(), "its detail is not a JSON object"));
        };
        match content.action.as_str() {
            "person.insert" | "person.update" => {
                return self.person(sealed.seq, &content.subject, detail);
            }
            "scoped_grant.insert" | "scoped_grant.delete" => {
                self.grant(sealed.seq, &content.subject, content.action.ends_with("insert"));
                return Ok(());
            }
            "access_change.insert" | "access_change.update" => {
                let row = typed(|| format!("access change {}", content.subject), detail)?;
                self.access.record(sealed.seq, row);
                return Ok(());
            }
            _ => {}
        }
        let Some(table) = Table::from_action(&content.action) else { return Ok(()) };
        let mut fields: Vec<String> = detail.keys().cloned().collect();
        fields.sort_unstable();
        let place = self.fields.iter().position(|known| *known == fields).unwrap_or_else(|| {
            self.fields.push(fields);
            self.fields.len() - 1
        });
        let hash = hash_of(&detail)?;
        let key = (table, content.subject);
        let earlier = self
            .recorded
            .insert(key.clone(), RecordedRow { seq: sealed.seq, fields: place, hash, met: false });
        match earlier {
            // A run has several entries: it starts, ends, and may report late.
            Some(earlier) if table != Table::Run => Err(defect(
                format!("{} {}", table.as_str(), key.1),
                format!("entries {} and {} both record that it was added", earlier.seq, sealed.seq),
            )),
            _ => Ok(()),
        }
    }

    fn person(
        &mut self,
        seq: u64,
        id: &str,
        detail: Map<String, Value>,
    ) -> Result<(), ChainDefect> {
        let subject = || format!("person {id}");
        let row: PersonRow = typed(subject, detail)?;
        let id = PersonId(id.parse().map_err(|_| defect(subject(), "its id is not a UUID"))?);
        let able = row.kind == "human" && !row.disabled;
        let everywhere = row.permissions.iter().any(|permission| permission == "reviewer");
        let history = self.people.entry(id).or_default();
        let parts = history.last().map_or(0, |last| last.parts);
        history.push(ReviewPermission {
            seq,
            able,
            everywhere,
            parts,
            void_to: row.verdicts_void_to,
        });
        Ok(())
    }

    fn grant(&mut self, seq: u64, subject: &str, granted: bool) {
        let mut parts = subject.split(' ');
        let (Some(person), Some("reviewer")) =
            (parts.next().and_then(|id| id.parse().ok()), parts.next())
        else {
            return;
        };
        let history = self.people.entry(PersonId(person)).or_default();
        let last = history.last().copied().unwrap_or(ReviewPermission {
            seq,
            able: false,
            everywhere: false,
            parts: 0,
            void_to: 0,
        });
        let parts = last.parts + if granted { 1 } else { -1 };
        history.push(ReviewPermission { seq, parts, ..last });
    }

    fn review_permission(&self, person: PersonId, at: u64) -> Option<ReviewPermission> {
        self.people
            .get(&person)?
            .iter()
            .rev()
            .find(|review_permission| review_permission.seq < at)
            .copied()
    }

    fn object(&mut self, kind: ObjectKind, hash: Hash, bytes: &[u8]) -> Result<(), ChainDefect> {
        let subject = || format!("{} document {hash}", kind.as_str());
        if Hash::of_bytes(bytes) != hash {
            self.altered.insert(hash, kind);
            return Ok(());
        }
        match kind {
            ObjectKind::Root => {
                let root: RootDoc = parsed(subject, bytes)?;
                let written =
                    root.object().map_err(|error| defect(subject(), error.to_string()))?;
                if written.hash != hash {
                    return Err(defect(subject(), "it is not in canonical form"));
                }
                self.next_root = Some((hash, root));
            }
            ObjectKind::Deployment => {
                drop(self.deployments.insert(hash, Arc::new(parsed(subject, bytes)?)))
            }
            ObjectKind::Node => drop(self.nodes.insert(hash, Arc::new(parsed(subject, bytes)?))),
            ObjectKind::Policy => drop(self.policy_objects.insert(hash, parsed(subject, bytes)?)),
            ObjectKind::Barclamp => {
                let BarclampParts { roles } = parsed(subject, bytes)?;
                self.barclamps.insert(hash, roles);
            }
            ObjectKind::Role => {
                let RoleParts { scripts } = parsed(subject, bytes)?;
                self.roles.insert(hash, scripts);
            }
            ObjectKind::Script => drop(self.scripts.insert(hash)),
        }
        Ok(())
    }

    fn row(
        &mut self,
        table: Table,
        row: Map<String, Value>,
        documents: Option<Vec<DocumentChange>>,
    ) -> Result<(), ChainDefect> {
        let key = match table {
            Table::Barclamp => format!("{} {}", text_of(&row, "name"), text_of(&row, "version")),
            Table::Policy | Table::Blueprint => text_of(&row, "number"),
            Table::Review | Table::Verdict | Table::Run | Table::Passkey => text_of(&row, "id"),
            Table::PasskeyConfirmation => text_of(&row, "passkey_id"),
            Table::VerdictSignature => text_of(&row, "verdict_id"),
        };
        let subject = || format!("{} {key}", table.as_str());
        let Some(recorded) = self.recorded.get_mut(&(table, key.clone())) else {
            return Err(defect(subject(), "the audit has no entry that records it"));
        };
        if recorded.met {
            return Err(defect(subject(), "it is in the export twice"));
        }
        // The entry lacks columns that were added later. Nothing below uses them.
        let fields = self.fields.get(recorded.fields).map(Vec::as_slice).unwrap_or_default();
        let as_recorded: Map<String, Value> =
            row.into_iter().filter(|(name, _)| fields.binary_search(name).is_ok()).collect();
        if hash_of(&as_recorded)? != recorded.hash {
            return Err(defect(
                subject(),
                format!("it was altered: entry {} of the audit records other values", recorded.seq),
            ));
        }
        recorded.met = true;
        let seq = recorded.seq;
        if documents.is_some() != (table == Table::Review) {
            return Err(defect(subject(), "a review must have documents, and other rows must not"));
        }
        match table {
            Table::Barclamp => self.barclamp(&typed(subject, as_recorded)?),
            Table::Policy => self.policy(typed(subject, as_recorded)?),
            Table::Passkey => self.passkey(typed(subject, as_recorded)?),
            Table::PasskeyConfirmation => self.confirmation(typed(subject, as_recorded)?),
            Table::VerdictSignature => self.signature(typed(subject, as_recorded)?),
            Table::Review => {
                let reviewed = serde_json::from_value(Value::Object(as_recorded.clone())).ok();
                self.review(typed(subject, as_recorded)?, reviewed, documents.unwrap_or_default())
            }
            Table::Verdict => self.verdict(seq, typed(subject, as_recorded)?),
            Table::Blueprint => self.blueprint(seq, &typed(subject, as_recorded)?),
            Table::Run => self.run(&typed(subject, as_recorded)?),
        }
    }

    /// Checks that the barclamp's document, its roles and their scripts are present.
    fn barclamp(&self, row: &BarclampRow) -> Result<(), ChainDefect> {
        let subject = || format!("barclamp {} {}", row.name, row.version);
        let roles = self
            .barclamps
            .get(&row.hash)
            .ok_or_else(|| defect(subject(), self.unusable_reason(row.hash)))?;
        roles.iter().try_for_each(|(role, hash)| {
            self.role(*hash, || format!("role {role} of {}", subject()))
        })
    }

    /// Checks that the role's document and its scripts are present.
    fn role(&self, hash: Hash, subject: impl Fn() -> String) -> Result<(), ChainDefect> {
        let scripts =
            self.roles.get(&hash).ok_or_else(|| defect(subject(), self.unusable_reason(hash)))?;
        match scripts.iter().find(|script| !self.scripts.contains(&script.hash)) {
            None => Ok(()),
            Some(script) => Err(defect(
                format!("script {} of {}", script.name, subject()),
                self.unusable_reason(script.hash),
            )),
        }
    }

    /// The reason that a document cannot be used: altered or missing.
    fn unusable_reason(&self, hash: Hash) -> String {
        match self.altered.contains_key(&hash) {
            true => format!("its document {hash} was altered: its bytes have another hash"),
            false => format!("its document {hash} is missing"),
        }
    }

    fn passkey(&mut self, row: PasskeyRow) -> Result<(), ChainDefect> {
        let PasskeyRow { id, person_id: person, rp_id, origin, credential } = row;
        self.passkeys
            .insert(id, Passkey { id, person, rp_id, origin, credential, confirmation: None });
        Ok(())
    }

    fn confirmation(&mut self, row: ConfirmationRow) -> Result<(), ChainDefect> {
        let id = row.passkey_id;
        let unreadable =
            || defect(format!("passkey_confirmation {id}"), "its bytes cannot be decoded");
        let confirmation = match (row.by_passkey, row.signed) {
            (None, _) => Confirmation::Owner,
            (Some(by), signed) => {
                let (nonce, assertion) =
                    signed.and_then(|signed| signed.read()).ok_or_else(unreadable)?;
                Confirmation::Passkey { by, nonce, assertion }
            }
        };
        let passkey = self.passkeys.get_mut(&id).ok_or_else(|| {
            defect(
                format!("passkey {id}"),
                "it is missing, but a confirmation refers to it".to_owned(),
            )
        })?;
        passkey.confirmation = Some(confirmation);
        Ok(())
    }

    fn signature(&mut self, row: SignatureRow) -> Result<(), ChainDefect> {
        let id = row.verdict_id;
        let (nonce, assertion) = row.signed.read().ok_or_else(|| {
            defect(format!("verdict_signature {id}"), "its bytes cannot be decoded")
        })?;
        self.signatures.insert(id, (row.passkey_id, nonce, assertion));
        Ok(())
    }

    fn policy(&mut self, row: PolicyRow) -> Result<(), ChainDefect> {
        if !self.policy_objects.contains_key(&row.hash) {
            return Err(defect(format!("policy {}", row.number), self.unusable_reason(row.hash)));
        }
        self.policies.insert(row.blueprint_number, row);
        Ok(())
    }

    fn review(
        &mut self,
        row: ReviewRow,
        reviewed: Option<SignedReview>,
        documents: Vec<DocumentChange>,
    ) -> Result<(), ChainDefect> {
        let subject = format!("review {}", row.id);
        let hash =
            change_hash(&documents).map_err(|error| defect(subject.clone(), error.to_string()))?;
        if hash != row.change_hash {
            return Err(defect(
                subject,
                "its documents were altered: their hash differs from the reviewed one",
            ));
        }
        self.reviews.insert(row.id, Review { row, reviewed, documents, verdicts: Vec::new() });
        Ok(())
    }

    fn verdict(&mut self, seq: u64, row: VerdictRow) -> Result<(), ChainDefect> {
        let Some(review) = self.reviews.get_mut(&row.review_id) else {
            return Err(defect(
                format!("review {}", row.review_id),
                format!("it is missing, but verdict {} refers to it", row.id),
            ));
        };
        review.verdicts.push(RecordedVerdict {
            seq,
            id: row.id,
            person: row.person_id,
            kind: row.kind,
            at: row.at,
        });
        Ok(())
    }

    fn blueprint(&mut self, seq: u64, row: &BlueprintRow) -> Result<(), ChainDefect> {
        let subject = || format!("blueprint {}", row.number);
        if self.before.is_none() {
            // Approvals and signatures come before the first blueprint. This names the missing one.
            self.check_rows_present(Table::VerdictSignature)?;
        }
        let before = self.before.take();
        let last = before.as_ref().map_or(0, |before| before.number);
        if row.parent.unwrap_or(0) != last || row.number != last + 1 {
            return Err(defect(
                format!("blueprint {}", last + 1),
                format!("it is missing before blueprint {}", row.number),
            ));
        }
        let next = self.next_root.take();
        let root = match (&before, row.kind.as_str()) {
            (Some(before), "switch") if row.root == before.root_hash => before.root.clone(),
            (Some(_), "switch") => {
                return Err(defect(
                    subject(),
                    "a switch of execution must keep the root of its parent",
                ));
            }
            (None, "genesis") | (Some(_), "change") => match next {
                Some((hash, root)) if hash == row.root => root,
                // A change of only the policy keeps the root of its parent.
                _ => match &before {
                    Some(before) if before.root_hash == row.root => before.root.clone(),
                    _ => {
                        return Err(defect(
                            format!("the root of {}", subject()),
                            self.unusable_reason(row.root),
                        ));
                    }
                },
            },
            _ => {
                return Err(defect(
                    subject(),
                    format!("kind {:?} cannot follow blueprint {last}", row.kind),
                ));
            }
        };
        let nothing = RootDoc::default();
        let changed = changes(before.as_ref().map_or(&nothing, |before| &before.root), &root);
        if row.kind == "change" {
            let before = before.as_ref().ok_or_else(|| defect(subject(), "it has no parent"))?;
            self.approved(seq, row, before, &root)?;
        }
        for change in &changed {
            self.check_documents(change, &subject)?;
        }
        if let Some(before) = &before {
            self.note_removals(row.number, &before.root, &changed)?;
        }
        if row.kind != "switch" {
            self.generations.insert(row.number);
        }
        self.before =
            Some(Before { number: row.number, root_hash: row.root, root, epoch: row.epoch });
        Ok(())
    }

    /// Records the removal steps that a target allows, and drops those of noderoles that are bound
    /// again.
    fn note_removals(
        &mut self,
        number: i64,
        before: &RootDoc,
        changed: &[DocumentChange],
    ) -> Result<(), ChainDefect> {
        let action = ActionName::remove();
        for change in changed {
            let DocumentChange::Node { id, old, new: Some(new) } = change else { continue };
            let Some(new) = self.nodes.get(new).map(Arc::clone) else { continue };
            for key in new.noderoles.keys() {
                self.removals.remove(&StepId::of(key.id(*id), &action));
            }
            let Some(old) = old.and_then(|old| self.nodes.get(&old)) else { continue };
            let removed = old.noderoles.iter().filter(|(key, _)| !new.noderoles.contains_key(key));
            for (key, noderole) in removed {
                let deployment = before.deployments.get(&noderole.deployment);
                let role = deployment
                    .and_then(|hash| self.deployments.get(hash))
                    .and_then(|deployment| deployment.roles.get(&key.role));
                let content = projection::content(noderole, role, &action)
                    .map_err(|error| defect(format!("blueprint {number}"), error.to_string()))?;
                self.removals.insert(StepId::of(key.id(*id), &action), (number, content));
            }
        }
        Ok(())
    }

    /// Checks that the new document of a change is present, with the roles that it names.
    fn check_documents(
        &self,
        change: &DocumentChange,
        blueprint: &impl Fn() -> String,
    ) -> Result<(), ChainDefect> {
        match change {
            DocumentChange::Deployment { id, new: Some(hash), .. } => {
                let subject = || format!("deployment {id} of {}", blueprint());
                let doc = self
                    .deployments
                    .get(hash)
                    .ok_or_else(|| defect(subject(), self.unusable_reason(*hash)))?;
                if let Some((name, hash)) =
                    doc.barclamps.iter().find(|(_, hash)| !self.barclamps.contains_key(hash))
                {
                    return Err(defect(
                        format!("barclamp {name} of {}", subject()),
                        self.unusable_reason(*hash),
                    ));
                }
                doc.roles.iter().try_for_each(|(name, role)| {
                    self.role(role.role, || format!("role {name} of {}", subject()))
                })
            }
            DocumentChange::Node { id, new: Some(hash), .. } => {
                let subject = || format!("node {id} of {}", blueprint());
                let doc = self
                    .nodes
                    .get(hash)
                    .ok_or_else(|| defect(subject(), self.unusable_reason(*hash)))?;
                let mut noderoles = doc.noderoles.iter();
                noderoles.try_for_each(|(key, noderole)| {
                    self.role(noderole.role, || format!("role {} of {}", key.role, subject()))
                })
            }
            _ => Ok(()),
        }
    }

    fn approved(
        &self,
        seq: u64,
        row: &BlueprintRow,
        before: &Before,
        root: &RootDoc,
    ) -> Result<(), ChainDefect> {
        let subject = || format!("blueprint {}", row.number);
        let id = row.review_id.ok_or_else(|| defect(subject(), "it names no review"))?;
        let review = self.reviews.get(&id).ok_or_else(|| {
            defect(
                format!("review {id}"),
                format!("it is missing, but blueprint {} commits it", row.number),
            )
        })?;
        match apply(&before.root, &review.documents) {
            Ok(expected) if expected == *root => {}
            _ => {
                return Err(defect(
                    subject(),
                    format!(
                        "the documents in which its root differs from blueprint {} are not those that \
                         review {id} lists",
                        before.number
                    ),
                ));
            }
        }
        if review.row.epoch != row.epoch {
            return Err(defect(
                subject(),
                format!("review {id} was made before a backup was restored"),
            ));
        }
        let (_, policy) = self
            .policies
            .range(..row.number)
            .next_back()
            .filter(|(_, policy)| policy.number == review.row.policy_number)
            .ok_or_else(|| {
                let number = review.row.policy_number;
                defect(
                    format!("policy {number}"),
                    format!("it is missing, or was not in force for blueprint {}", row.number),
                )
            })?;
        let brought = self.policies.get(&row.number).map(|policy| policy.hash);
        if brought != review.row.new_policy_hash {
            return Err(defect(
                subject(),
                format!("its new policy is missing, or is not the one that review {id} names"),
            ));
        }
        let policies = [Some(policy.hash), brought]
            .into_iter()
            .flatten()
            .filter_map(|hash| self.policy_objects.get(&hash));
        let policies: Vec<&Policy> = policies.collect();
        let required = policies
            .iter()
            .map(|policy| policy.approvals_for(&review.row.risk))
            .max()
            .unwrap_or(u32::MAX);
        // Only the database applies rules for single deployments.
        let fits = |rule: &SignedRule| {
            rule.deployment.is_none()
                && rule.risk.is_none_or(|risk| review.row.risk.contains(&risk))
        };
        let rules = policies.iter().flat_map(|policy| &policy.signed);
        let signed =
            review.row.signed || rules.into_iter().any(|rule| brought.is_some() || fits(rule));
        let required = required.max(review.row.approvals_needed);
        let hours = self.policy_objects.get(&policy.hash).map_or(0, |policy| policy.cooling_hours);
        self.check_approvals(seq, row, review, (required, signed, Duration::hours(hours.into())))
    }

    /// Checks that the approvals suffice. Each person's last verdict counts, if the person could
    /// review when the blueprint was committed.
    fn check_approvals(
        &self,
        seq: u64,
        row: &BlueprintRow,
        review: &Review,
        (required, signed, cooling): (u32, bool, Duration),
    ) -> Result<(), ChainDefect> {
        let id = review.row.id;
        let mut last: BTreeMap<PersonId, &RecordedVerdict> = BTreeMap::new();
        for verdict in review.verdicts.iter().filter(|verdict| verdict.seq < seq) {
            last.insert(verdict.person, verdict);
        }
        let mut approvals = 0;
        let mut uncounted = String::new();
        for (person, verdict) in last {
            let kind = verdict.kind.as_str();
            if review.row.authors.contains(&person) || review.row.created_by == person {
                continue;
            }
            let Some(review_permission) = self.review_permission(person, seq) else {
                return Err(defect(
                    format!("person {person}"),
                    format!("the audit has no entry for this reviewer of review {id}"),
                ));
            };
            if !review_permission.able || verdict.id <= review_permission.void_to {
                continue;
            }
            if kind != "approve" && review_permission.everywhere {
                return Err(defect(
                    format!("blueprint {}", row.number),
                    format!("person {person} objected to review {id} and never approved it"),
                ));
            }
            if kind != "approve" || !(review_permission.everywhere || review_permission.parts > 0) {
                continue;
            }
            if self.is_excluded(seq, review, verdict, cooling) {
                uncounted = format!(
                    ". The approval of person {person} does not count: their access or that of an \
                     author was new"
                );
                continue;
            }
            match signed.then(|| self.is_signed(review, verdict)) {
                None | Some(Ok(())) => approvals += 1,
                Some(Err(reason)) => {
                    uncounted =
                        format!(". The approval of person {person} does not count: {reason}")
                }
            }
        }
        if approvals < required {
            let approval = if signed { "signed approvals" } else { "approvals" };
            return Err(defect(
                format!("blueprint {}", row.number),
                format!(
                    "the export has {approvals} of the {required} {approval} that its policy \
                     required (review {id}){uncounted}"
                ),
            ));
        }
        Ok(())
    }

    /// Whether an approval does not count because of new access.
    fn is_excluded(
        &self,
        commit: u64,
        review: &Review,
        verdict: &RecordedVerdict,
        cooling: Duration,
    ) -> bool {
        let (Some(at), Some(submitted)) = (verdict.at, review.row.created_at) else {
            return false;
        };
        self.access.excludes(&ApprovalContext {
            person: verdict.person,
            given_at: at,
            submitted,
            cooling,
            authors: &review.row.authors,
            commit,
        })
    }

    /// Checks that an approval is signed with a confirmed passkey.
    fn is_signed(&self, review: &Review, verdict: &RecordedVerdict) -> Result<(), String> {
        let (by, nonce, assertion) = self.signatures.get(&verdict.id).ok_or("it is not signed")?;
        let reviewed =
            review.reviewed.clone().ok_or("its review lacks the data that a signature covers")?;
        let statement = Statement::Verdict {
            reviewed,
            verdict: VerdictKind::Approve,
            person: verdict.person,
            nonce: *nonce,
        };
        let verify = self.verify.unwrap_or(reject_signature);
        signature::check(&statement, *by, assertion, &self.passkeys, &verify)
            .map_err(|error| error.to_string())
    }

    fn run(&self, row: &RunRow) -> Result<(), ChainDefect> {
        let subject = || format!("run {}", row.id);
        let Some(blueprint) =
            self.before.as_ref().filter(|before| before.number == row.blueprint_number)
        else {
            return Err(defect(
                format!("blueprint {}", row.blueprint_number),
                format!("it is missing before run {}", row.id),
            ));
        };
        if row.generation > row.blueprint_number || !self.generations.contains(&row.generation) {
            return Err(defect(
                subject(),
                format!(
                    "its generation {} is not an earlier blueprint that changed something",
                    row.generation
                ),
            ));
        }
        if row.epoch < blueprint.epoch {
            return Err(defect(
                subject(),
                format!("its epoch is earlier than that of blueprint {}", blueprint.number),
            ));
        }
        if let Some((generation, content)) = self.removals.get(&row.step_id) {
            return match (*generation, *content) == (row.generation, row.content_hash) {
                true => Ok(()),
                false => Err(defect(
                    subject(),
                    format!("it ran other content than blueprint {generation} removes"),
                )),
            };
        }
        let node = blueprint.root.nodes.get(&row.node_id).and_then(|hash| self.nodes.get(hash));
        let noderole = node.and_then(|node| {
            let is_its = |key: &crate::cluster::NoderoleKey| {
                StepId::run_of(key.id(row.node_id)) == row.step_id
            };
            node.noderoles.iter().find(|(key, _)| is_its(key))
        });
        let Some((key, noderole)) = noderole else {
            return Err(defect(
                subject(),
                format!("no document of blueprint {} requires its step", blueprint.number),
            ));
        };
        let deployment = blueprint
            .root
            .deployments
            .get(&noderole.deployment)
            .and_then(|hash| self.deployments.get(hash));
        let role = deployment.and_then(|doc| doc.roles.get(&key.role));
        let content = projection::content(noderole, role, &ActionName::run())
            .map_err(|error| defect(subject(), error.to_string()))?;
        if content != row.content_hash {
            return Err(defect(
                subject(),
                format!(
                    "it ran other content than the documents of blueprint {} require",
                    blueprint.number
                ),
            ));
        }
        Ok(())
    }
}

/// Verifies all lines of an export. Changes that required signatures are rejected.
pub fn verify<'t>(lines: impl IntoIterator<Item = &'t str>) -> Result<Verification, ChainDefect> {
    let mut check = Check::default();
    lines.into_iter().try_for_each(|line| check.line(line))?;
    check.finish()
}

fn typed<T: DeserializeOwned>(
    subject: impl Fn() -> String,
    row: Map<String, Value>,
) -> Result<T, ChainDefect> {
    serde_json::from_value(Value::Object(row))
        .map_err(|error| defect(subject(), format!("it has invalid values: {error}")))
}

fn parsed<T: DeserializeOwned>(
    subject: impl Fn() -> String,
    bytes: &[u8],
) -> Result<T, ChainDefect> {
    serde_json::from_slice(bytes)
        .map_err(|error| defect(subject(), format!("it has invalid values: {error}")))
}

fn hash_of(row: &Map<String, Value>) -> Result<Hash, ChainDefect> {
    canonical::hash(row).map_err(|error| defect("a row", error.to_string()))
}

fn text_of(row: &Map<String, Value>, field: &str) -> String {
    match row.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks_exact(2).map(pair).collect())?
}
