//! The catalog by role: dependencies of each role, the graph of all roles, and the imports.
//!
//! A role is shown as the newest version of its barclamp defines it. Deployments pin versions, so a
//! deployment may use an older definition. The role's page lists the versions and their users.

use engine::Hash;
use engine::catalog::Role;
use engine::ids::{AttribName, BarclampName, DeploymentName, JigName, RoleName};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::listing::{Cursor, KeyKind, Order, Sort, sort};

/// Maximum number of roles in a graph of the catalog.
pub const MAX_GRAPH_ROLES: usize = 300;
/// Maximum number of barclamp versions on a role's page.
pub const MAX_VERSIONS: usize = 50;

sort! {
    RoleSort, Order::ascending(Self::Name), {
        Name "name" [Text, Text],
        Barclamp "barclamp" [Text, Text],
        Jig "jig" [Text, Text, Text],
        /// Number of noderoles of the role.
        Bound "bound" [Number, Text, Text],
    }
}

sort! {
    ImportSort, Order::descending(Self::Imported), {
        Imported "imported" [Number],
    }
}

/// Filters of the list of roles. An empty filter matches all roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RolesWanted {
    /// Part of the name or the description, case-insensitive.
    pub filter: String,
    /// Barclamp name.
    pub barclamp: String,
    /// Sort order. Default: by name.
    pub sort: Order<RoleSort>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A role in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleSummary {
    /// Name of the role.
    pub name: RoleName,
    /// The barclamp that contains the role.
    pub barclamp: BarclampName,
    /// Newest version of the barclamp.
    pub version: String,
    /// Description for people.
    pub description: String,
    /// The jig that executes the role.
    pub jig: JigName,
    /// Flags that are set.
    pub flags: Vec<String>,
    /// Number of roles that this role requires.
    pub requires: usize,
    /// Number of deployments that use the role.
    pub deployments: usize,
    /// Number of noderoles of the role, in all versions.
    pub noderoles: usize,
}

/// A page of the list of roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolePage {
    /// The roles, by name by default.
    pub roles: Vec<RoleSummary>,
    /// Number of roles on all pages.
    pub count: usize,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// Selects one of several roles with the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoleWanted {
    /// Barclamp name. Empty selects the first barclamp that has the role.
    pub barclamp: String,
}

/// A name in a role's definition and the roles that it refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Resolved{N}"))]
pub struct ResolvedName<N> {
    /// The name as the role's definition spells it.
    pub name: N,
    /// The roles that provide or own this name.
    pub by: Vec<RoleName>,
}

/// A version of a barclamp that contains a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleVersion {
    /// Version in the barclamp's file.
    pub version: String,
    /// Whether the role is the same as in the newest version.
    pub same: bool,
    /// Deployments that pin this version.
    pub used_by: Vec<DeploymentName>,
}

/// A deployment that uses a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleUse {
    /// Deployment name.
    pub deployment: DeploymentName,
    /// Number of noderoles of the role in this deployment.
    pub noderoles: usize,
}

/// A role with its dependencies, versions and users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleView {
    /// The role as the newest version of its barclamp defines it.
    pub role: Role,
    /// Content hash of the role.
    pub hash: Hash,
    /// Newest version of the barclamp.
    pub version: String,
    /// Flags that are set.
    pub flags: Vec<String>,
    /// Roles that it requires.
    pub requires: Vec<ResolvedName<RoleName>>,
    /// Attributes that it reads.
    pub wants: Vec<ResolvedName<AttribName>>,
    /// Roles that require it.
    pub required_by: Vec<RoleName>,
    /// Other barclamps that have a role with this name.
    pub namesakes: Vec<BarclampName>,
    /// Versions of its barclamp that contain the role, newest first, at most 50.
    pub versions: Vec<RoleVersion>,
    /// Deployments that use the role.
    pub bound: Vec<RoleUse>,
}

/// The part of the catalog to draw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoleGraphWanted {
    /// Draw the roles of this barclamp and their direct neighbours. Empty: all roles.
    pub barclamp: String,
    /// Draw this role with its dependencies and its dependents. Empty: all roles.
    pub role: String,
}

/// The reason for an edge between two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoleTie {
    /// The later role requires the earlier one.
    Requires,
    /// The later role reads an attribute of the earlier one.
    Reads,
    /// The earlier role declares that it runs first.
    Preceeds,
}

/// A role in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleVertex {
    /// Name of the role.
    pub name: RoleName,
    /// The barclamp that contains the role.
    pub barclamp: BarclampName,
    /// Flags that are set.
    pub flags: Vec<String>,
}

/// An edge of the graph: one role runs before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleEdge {
    /// Index of the earlier role in `roles`.
    pub from: usize,
    /// Index of the later role in `roles`.
    pub to: usize,
    /// Reason for the edge.
    pub tie: RoleTie,
}

/// The dependency graph of the catalog's roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleGraph {
    /// The roles, by barclamp and name. Empty if there are more than 300.
    pub roles: Vec<RoleVertex>,
    /// The edges, without duplicates.
    pub edges: Vec<RoleEdge>,
    /// Number of selected roles, even if there are too many to draw.
    pub count: usize,
}

/// Filters of the list of imports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ImportsWanted {
    /// Name of a barclamp in the import. Empty matches all imports.
    pub barclamp: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ImportSort>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A barclamp version in an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportedVersion {
    /// Barclamp name.
    pub name: BarclampName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: Hash,
    /// Whether the import added this version to the catalog.
    pub new: bool,
}

/// Result of an import, as stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Findings {
    /// All barclamp versions in the import.
    pub barclamps: Vec<ImportedVersion>,
    /// Things that the previous versions had and these lack, one line each.
    #[serde(default)]
    pub disappeared: Vec<String>,
    /// Warnings and notes with file, line and column, or null if the import is too old to have
    /// them.
    #[serde(default)]
    pub findings: Option<Vec<String>>,
    /// Number of lines left out of `disappeared` and `findings`.
    #[serde(default)]
    pub omitted: usize,
}

/// An import of barclamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportReport {
    /// Import number.
    pub id: i64,
    /// Time of the import.
    pub at: At,
    /// The person who imported, or null for the barclamps that Gantry ships.
    pub by: Option<String>,
    /// Result of the import.
    #[serde(flatten)]
    pub report: Findings,
}

/// A page of the list of imports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportPage {
    /// The imports, newest first by default.
    pub imports: Vec<ImportReport>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}
