//! Blueprints: their history, their progress, and the comparison of any two.

use engine::Hash;
use engine::blueprint::difference::Sides;
use engine::blueprint::text::{HashDescriptions, Names, PinDescription};
use engine::blueprint::{Anchor, Difference, Impact};
use engine::counting::{either, many};
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, ReviewId, RoleName};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::At;
use crate::catalog::{ContentChange, HiddenCharacters, PinChange, PinnedVersion};
use crate::listing::{Cursor, KeyKind, Limit, Order, Sort, sort};
use crate::runs::StateCounts;

sort! {
    BlueprintSort, Order::descending(Self::Number), {
        /// Blueprint number, which is also the order in time.
        Number "number" [Number],
    }
}

/// Filters of the list of blueprints. An empty filter matches all blueprints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BlueprintsQuery {
    /// Name of a deployment that the blueprint changed.
    pub deployment: String,
    /// Sort order. Default: newest first.
    pub sort: Order<BlueprintSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A blueprint in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlueprintSummary {
    /// Blueprint number.
    pub number: BlueprintNumber,
    /// Kind of the blueprint.
    pub kind: BlueprintKind,
    /// Hash of its root object.
    pub root: String,
    /// Whether execution is on from this blueprint.
    pub enabled: bool,
    /// Time of the commit.
    pub at: At,
    /// The person who committed it, or null for genesis.
    pub by: Option<String>,
    /// The review that it commits.
    pub review: Option<ReviewId>,
    /// Title of the review, or reason of a switch.
    pub title: String,
    /// The deployment that the proposal was on.
    pub deployment: Option<String>,
    /// Id of the deployment.
    pub deployment_id: Option<DeploymentId>,
    /// Authors of the proposal.
    pub authors: Vec<String>,
    /// People who approved it.
    pub approved_by: Vec<String>,
}

/// Progress of the actual state toward the desired state of a blueprint or deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// All steps of the blueprint are applied, except those that a later blueprint changed. For a
    /// deployment, all its steps are applied.
    Converged,
    /// Steps run, or will run without human action, even for other blueprints. A missing worker or
    /// node can come back.
    InProgress,
    /// The rest needs human action: a failed step blocks others, a deployment is on hold, or
    /// execution is off.
    Stuck,
}

/// A blueprint with its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlueprintView {
    /// The blueprint.
    pub blueprint: BlueprintSummary,
    /// Progress.
    pub progress: Progress,
    /// Steps that this blueprint changed and no later one did, by state.
    pub steps: StateCounts,
    /// Number of these steps that are applied.
    pub applied: i64,
}

/// How long to wait for a blueprint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BlueprintQuery {
    /// Maximum time to wait until the blueprint is converged or stuck, in seconds, up to 30.
    #[serde(deserialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(range(max = 30)))]
    pub wait: u8,
}

/// The waiting time of a query, whose values are texts. The server checks the limit.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let text = String::deserialize(deserializer)?;
    let error = || D::Error::custom("it must be a whole number of seconds from 0 to 30");
    text.parse().map_err(|_| error())
}

/// Kind of a blueprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BlueprintKind {
    /// The initial blueprint.
    Genesis,
    /// A reviewed change.
    Change,
    /// Execution was turned on or off. The content equals the previous blueprint's.
    Switch,
}

/// A page of the list of blueprints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlueprintPage {
    /// The blueprints, newest first by default.
    pub blueprints: Vec<BlueprintSummary>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
    /// Number of the newest blueprint.
    pub head: BlueprintNumber,
    /// The blueprint that removed the deployment, if the list is limited to a removed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_in: Option<BlueprintNumber>,
}

/// A comparison of two blueprints. `docs/blueprint-difference.md` describes its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The left side.
    pub from: Side,
    /// The right side.
    pub to: Side,
    /// The deployment that the comparison is limited to, or null for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    /// Set if only one side has the deployment, or if the sides have different deployments of this
    /// name. For a review: the number of deployments that a moved deployment takes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Differences between the two sides.
    pub difference: Difference,
    /// Number of deployments and nodes that differ but are left out here.
    #[serde(default)]
    pub more: usize,
    /// The last document of this page, as `after` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
    /// Names of the ids in the difference.
    pub names: Names,
    /// Changes within roles whose content differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Changed pins of barclamp versions, with the versions that apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// For a review: effective values of the noderoles of deployment roles whose data or template
    /// changes, at most 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub role_values: Vec<RoleValueChange>,
    /// Number of further changed values of deployment roles.
    #[serde(default)]
    pub more_role_values: usize,
    /// Scripts with hidden characters that only the right side uses.
    #[serde(default, skip_serializing_if = "HiddenCharacters::is_empty")]
    pub hidden_characters: HiddenCharacters,
    /// Impact of a change from the left to the right side.
    pub impact: Impact,
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// Blueprint number, if the request named one. For a review, the blueprint that it is based on.
    pub blueprint: Option<BlueprintNumber>,
    /// The review, if this side is the result of a review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewId>,
    /// Hash of the blueprint's root object, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.review, self.blueprint) {
            (Some(review), _) => write!(f, "review {review}")?,
            (None, Some(target)) => write!(f, "blueprint {target}")?,
            (None, None) => f.write_str("blueprint")?,
        }
        self.root.iter().try_for_each(|root| write!(f, " ({})", root.get(..8).unwrap_or(root)))
    }
}

/// Maximum number of documents in a comparison on one page.
pub const MAX_DOCUMENTS: usize = 400;

/// Some documents of a difference, the number left out, and the last document if others follow.
pub(crate) struct Part {
    pub(crate) difference: Difference,
    pub(crate) more: usize,
    pub(crate) next: Option<Anchor>,
}

impl Part {
    pub(crate) fn of(difference: Difference, skip: usize, most: usize) -> Self {
        let all = difference.documents().count();
        let difference = difference.part(skip, most);
        let shown = difference.documents().count();
        let next = difference.documents().last().filter(|_| skip + shown < all);
        Self { difference, more: all - shown, next }
    }
}

/// The number of documents up to and including `after`.
pub(crate) fn documents_up_to(
    difference: &Difference,
    after: Option<&Anchor>,
) -> Result<usize, crate::Problem> {
    let Some(after) = after else { return Ok(0) };
    let found = difference.documents().position(|document| document == *after);
    found.map(|at| at + 1).ok_or_else(|| {
        crate::Problem::invalid(format!(
            "Invalid value {after} for `after`. Use the `next` value of the previous page."
        ))
    })
}

/// Pairs of old and new role contents that a difference and its pins refer to. Only these may be
/// shown.
pub fn pairs(
    difference: &Difference,
    pins: &[PinChange],
) -> std::collections::BTreeSet<(Hash, Hash)> {
    let roles = difference
        .deployments
        .iter()
        .flat_map(|deployment| &deployment.roles)
        .map(|role| role.contents);
    let noderoles =
        difference.nodes.iter().flat_map(|node| &node.noderoles).map(|noderole| noderole.contents);
    let pinned_roles = pins.iter().flat_map(|pin| &pin.roles).map(|role| Some(role.contents));
    let sides = roles.chain(noderoles).chain(pinned_roles).flatten();
    sides.filter_map(|sides| sides.old.zip(sides.new)).collect()
}

/// Keeps only the pins of the shown deployments, and the contents that the shown parts refer to.
pub(crate) fn retain_shown(
    difference: &Difference,
    pins: &mut Vec<PinChange>,
    contents: &mut Vec<ContentChange>,
) {
    let shown: std::collections::BTreeSet<_> =
        difference.deployments.iter().map(|deployment| deployment.id).collect();
    pins.retain(|pin| shown.contains(&pin.deployment));
    let pairs = pairs(difference, pins);
    contents.retain(|content| pairs.contains(&(content.old, content.new)));
}

/// An effective value, and the layer that sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EffectiveValue {
    /// The value as JSON, with secrets as name and version, at most 500 characters.
    pub value: String,
    /// The layer that sets it.
    pub source: String,
}

/// The effective value of the noderoles of a deployment role, at a path that a review changes.
/// Values that other noderoles return at run time are not included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleValueChange {
    /// Id of the deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
    /// Path of the value, as a JSON pointer.
    pub path: String,
    /// The value before the change, for noderoles that do not override it. Null if there was none.
    pub before: Option<EffectiveValue>,
    /// The value after the change, for noderoles that do not override it. Null if it does not
    /// exist.
    pub after: Option<EffectiveValue>,
    /// Number of noderoles of the role, after the change.
    pub noderoles: usize,
    /// Number of these noderoles whose own data overrides the value. The change has no effect on
    /// them.
    pub overridden: usize,
}

impl RoleValueChange {
    /// The values before and after the change with their layers, as text.
    pub fn sides(&self) -> [String; 2] {
        [&self.before, &self.after].map(|side| match side {
            Some(EffectiveValue { value, source }) => format!("{value} ({source})"),
            None => "no value".to_owned(),
        })
    }

    /// On how many noderoles the change has no effect.
    pub fn reach(&self) -> String {
        let all = many(self.noderoles, "noderole");
        match self.overridden {
            _ if self.noderoles == 0 => "The role has no noderoles.".to_owned(),
            0 => format!("Applies to {all}."),
            some if some == self.noderoles => {
                format!("No effect: {all} {} it.", either(some, "overrides", "override"))
            }
            some => format!("{some} of {all} {} it.", either(some, "overrides", "override")),
        }
    }
}

impl std::fmt::Display for RoleValueChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [before, after] = self.sides();
        write!(f, "{}: {before} -> {after}. {}", self.path, self.reach())
    }
}

/// Keeps only the values of the shown deployments.
pub(crate) fn retain_role_values(difference: &Difference, values: &mut Vec<RoleValueChange>) {
    let is_shown = |id| difference.deployments.iter().any(|deployment| deployment.id == id);
    values.retain(|value| is_shown(value.deployment));
}

impl Comparison {
    /// Keeps the first `most` documents and counts the others.
    #[must_use]
    pub fn cut(self, most: usize) -> Self {
        self.part(0, most)
    }

    /// Keeps at most `most` documents after `after`, and counts the others.
    ///
    /// # Errors
    /// If `after` is not one of the differing documents.
    pub fn page(self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = documents_up_to(&self.difference, after)?;
        Ok(self.part(skip, most))
    }

    fn part(mut self, skip: usize, most: usize) -> Self {
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        (self.difference, self.next) = (difference, next);
        self.more += more;
        self.names = self.names.only(&[&self.difference]);
        retain_shown(&self.difference, &mut self.pins, &mut self.contents);
        retain_role_values(&self.difference, &mut self.role_values);
        self
    }

    /// The comparison as text, for terminals and files.
    pub fn text(&self) -> String {
        let only = self.deployment.iter().map(|name| format!("in   {name}\n")).collect::<String>();
        let note = self.note.iter().map(|note| format!("{note}\n")).collect::<String>();
        let more = match self.more {
            0 => String::new(),
            n => format!("{n} more documents differ.\n"),
        };
        let difference = self.difference.text(&self.names, &self.hash_descriptions());
        let values = self.role_values_text();
        let hidden_characters = self.hidden_characters.text();
        format!(
            "from {}\nto   {}\n{only}{note}\n{difference}{more}{values}{hidden_characters}",
            self.from, self.to
        )
    }

    fn role_values_text(&self) -> String {
        if self.role_values.is_empty() {
            return String::new();
        }
        let mut text = "\nEffective values of changed deployment roles:\n".to_owned();
        for value in &self.role_values {
            let deployment = self.names.deployments.get(&value.deployment);
            let deployment =
                deployment.map_or_else(|| value.deployment.to_string(), ToString::to_string);
            text += &format!("  {deployment}: {} {value}\n", value.role);
        }
        if self.more_role_values > 0 {
            text += &format!("  and {}\n", many(self.more_role_values, "more value"));
        }
        text
    }

    /// The known content of each hash.
    fn hash_descriptions(&self) -> HashDescriptions {
        let pins = self.pins.iter().map(|pin| {
            let called = |side: &Option<PinnedVersion>| side.as_ref().map(ToString::to_string);
            let versions = Sides { old: called(&pin.old), new: called(&pin.new) };
            let roles = pin.roles.iter().map(|role| (role.role.clone(), role.contents)).collect();
            ((pin.deployment, pin.barclamp.clone()), PinDescription { versions, roles })
        });
        let contents =
            self.contents.iter().map(|content| ((content.old, content.new), content.lines()));
        HashDescriptions { pins: pins.collect(), contents: contents.collect() }
    }
}

/// A blueprint in a request: a number of the target history, or the hash of a root object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    Number(BlueprintNumber),
    Root(Hash),
}

/// A text that is neither a blueprint number nor a hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid blueprint {0:?}. Use the number of a blueprint, or the hash of a root (64 \
    hexadecimal digits)."
)]
pub struct InvalidBlueprintRef(String);

impl Point {
    /// Parses a blueprint number or the hash of a root object.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn named(text: &str) -> Result<Self, crate::Problem> {
        text.trim()
            .parse()
            .map_err(|error: InvalidBlueprintRef| crate::Problem::invalid(error.to_string()))
    }
}

impl std::str::FromStr for Point {
    type Err = InvalidBlueprintRef;
    fn from_str(text: &str) -> Result<Self, InvalidBlueprintRef> {
        if let Ok(hash) = text.parse() {
            return Ok(Self::Root(hash));
        }
        let number =
            text.parse().map_err(|_| InvalidBlueprintRef(text.chars().take(80).collect()))?;
        Ok(Self::Number(BlueprintNumber(number)))
    }
}
