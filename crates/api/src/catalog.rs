//! The catalog by role: what each needs, gives and forbids, how all hang together, and what imports brought.
//!
//! A role is shown as the newest version of its barclamp has it. Deployments pin versions, so what a deployment uses may be older: a role's
//! own page says which versions there are and who uses them.

use engine::Hash;
use engine::catalog::Role;
use engine::ids::{AttribName, BarclampName, DeploymentName, JigName, RoleName};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::listing::{Cursor, Kind, Order, Sort, sort};

/// Most roles in one picture of the catalog.
pub const DRAWN: usize = 300;
/// Most versions of a barclamp that a role's page has.
pub const VERSIONS: usize = 50;

sort! {
    /// What roles are sorted by.
    RoleSort, Order::rising(Self::Name), {
        /// Their names.
        Name "name" [Text, Text],
        /// Their barclamps.
        Barclamp "barclamp" [Text, Text],
        /// Their jigs.
        Jig "jig" [Text, Text, Text],
        /// How many noderoles there are of them.
        Bound "bound" [Number, Text, Text],
    }
}

sort! {
    /// What imports are sorted by.
    ImportSort, Order::falling(Self::Imported), {
        /// When they were.
        Imported "imported" [Number],
    }
}

/// Which roles a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RolesWanted {
    /// With this in the name or in the description; empty: with any. Large and small letters are the same.
    pub filter: String,
    /// Of this barclamp, by its name; empty: of any.
    pub barclamp: String,
    /// In this order.
    pub sort: Order<RoleSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A role in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleSummary {
    /// Which.
    pub name: RoleName,
    /// The barclamp that brings it.
    pub barclamp: BarclampName,
    /// The newest version of that.
    pub version: String,
    /// For people.
    pub description: String,
    /// What carries it out.
    pub jig: JigName,
    /// What is set of its flags, by their words.
    pub flags: Vec<String>,
    /// How many roles it requires.
    pub requires: usize,
    /// How many deployments have it.
    pub deployments: usize,
    /// How many noderoles there are of it, of whatever version.
    pub noderoles: usize,
}

/// A page of the list of roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolePage {
    /// In the order that was asked for: by their names, if none was.
    pub roles: Vec<RoleSummary>,
    /// How many fit, on all pages.
    pub count: usize,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
}

/// Which role of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoleWanted {
    /// Of this barclamp; empty: of the first that has one.
    pub barclamp: String,
}

/// A name that a role says, and who is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Meant<N> {
    /// The name.
    pub name: N,
    /// Roles that answer to it, or that own it.
    pub by: Vec<RoleName>,
}

/// A version of a barclamp that has a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleVersion {
    /// What the barclamp's file calls the version.
    pub version: String,
    /// Whether the role is the same there as in the newest.
    pub same: bool,
    /// Deployments that pin it.
    pub used_by: Vec<DeploymentName>,
}

/// A deployment that has a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleUse {
    /// Which.
    pub deployment: DeploymentName,
    /// Noderoles of it there.
    pub noderoles: usize,
}

/// A role and everything about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleView {
    /// As the newest version of its barclamp has it.
    pub role: Role,
    /// Its content.
    pub hash: Hash,
    /// That version.
    pub version: String,
    /// What is set of its flags, by their words.
    pub flags: Vec<String>,
    /// Whom it requires.
    pub requires: Vec<Meant<RoleName>>,
    /// Whose attributes it reads.
    pub wants: Vec<Meant<AttribName>>,
    /// Who requires it.
    pub required_by: Vec<RoleName>,
    /// Barclamps that have a role of this name, too.
    pub namesakes: Vec<BarclampName>,
    /// Versions of its barclamp that have it, the newest first; at most [`VERSIONS`].
    pub versions: Vec<RoleVersion>,
    /// Deployments that have it.
    pub bound: Vec<RoleUse>,
}

/// Which part of the catalog is drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoleGraphWanted {
    /// The roles of this barclamp and those one step around; empty: of all.
    pub barclamp: String,
    /// This role, all that it builds on, and all that builds on it; empty: all.
    pub role: String,
}

/// Why one role comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoleTie {
    /// The later one requires the earlier one.
    Requires,
    /// The later one reads an attribute of the earlier one.
    Reads,
    /// The earlier one says that it comes first.
    Preceeds,
}

/// A role in the picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleVertex {
    /// Which.
    pub name: RoleName,
    /// The barclamp that brings it.
    pub barclamp: BarclampName,
    /// What is set of its flags, by their words.
    pub flags: Vec<String>,
}

/// One role before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleEdge {
    /// The earlier one, by its place among the roles.
    pub from: usize,
    /// The later one.
    pub to: usize,
    /// Why.
    pub tie: RoleTie,
}

/// How roles hang together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleGraph {
    /// By barclamp and name.
    pub roles: Vec<RoleVertex>,
    /// Each once.
    pub edges: Vec<RoleEdge>,
    /// Roles that were asked for: when there are more than [`DRAWN`], none is in `roles`.
    pub count: usize,
}

/// Which imports a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ImportsWanted {
    /// With this barclamp, by its name; empty: with any.
    pub barclamp: String,
    /// In this order.
    pub sort: Order<ImportSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A version that an import had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BroughtVersion {
    /// Of which barclamp.
    pub name: BarclampName,
    /// What its file calls the version.
    pub version: String,
    /// Its content.
    pub hash: Hash,
    /// Whether it was new.
    pub new: bool,
}

/// What came of an import, as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Findings {
    /// Every version that it had.
    pub barclamps: Vec<BroughtVersion>,
    /// What the versions before had and these have not, one line each.
    #[serde(default)]
    pub disappeared: Vec<String>,
    /// Warnings and notes, each with file, line and column; None: they were not kept then.
    #[serde(default)]
    pub findings: Option<Vec<String>>,
    /// Lines that were left out of the two, beyond what is kept.
    #[serde(default)]
    pub left_out: usize,
}

/// An import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportReport {
    /// Which.
    pub id: i64,
    /// When.
    pub at: At,
    /// Who imported; None: Gantry itself, what it ships.
    pub by: Option<String>,
    /// What came of it.
    #[serde(flatten)]
    pub report: Findings,
}

/// A page of the list of imports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportPage {
    /// In the order that was asked for: newest first, if none was.
    pub imports: Vec<ImportReport>,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
}
