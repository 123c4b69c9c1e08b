//! The catalog by role: dependencies of each role, the graph of all roles, and the imports.
//!
//! A role is shown as the newest version of its barclamp defines it. Deployments pin versions, so a
//! deployment may use an older definition. The role's page lists the versions and their users.

use engine::Hash;
use engine::blueprint::difference::{Mark, Sides};
use engine::catalog::Role;
use engine::data::Change;
use engine::ids::{AttribName, BarclampName, DeploymentId, DeploymentName, JigName, RoleName};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};

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
pub struct RolesQuery {
    /// Part of the name or the description, case-insensitive.
    pub filter: String,
    /// Barclamp name.
    pub barclamp: String,
    /// Sort order. Default: by name.
    pub sort: Order<RoleSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
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
pub struct RoleQuery {
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
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
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
    pub also_defined_in: Vec<BarclampName>,
    /// Versions of its barclamp that contain the role, newest first, at most 50.
    pub versions: Vec<RoleVersion>,
    /// Deployments that use the role.
    pub bound: Vec<RoleUse>,
}

/// The part of the catalog to draw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoleGraphQuery {
    /// Draw the roles of this barclamp and their direct neighbors. Empty: all roles.
    pub barclamp: String,
    /// Draw this role with its dependencies and its dependents. Empty: all roles.
    pub role: String,
}

/// The reason for an edge between two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoleEdgeReason {
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
    pub reason: RoleEdgeReason,
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
pub struct ImportsQuery {
    /// Name of a barclamp in the import. Empty matches all imports.
    pub barclamp: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ImportSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
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
    pub removed_parts: Vec<String>,
    /// Warnings and notes with file, line and column.
    #[serde(default)]
    pub findings: Vec<String>,
    /// Number of lines left out of `removed_parts` and `findings`.
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

sort! {
    /// Sort columns of barclamp versions. Cursors contain the content hash of a version: imported
    /// versions are never removed.
    BarclampSort, Order::ascending(Self::Name), {
        /// Barclamp name; the newest version of each first.
        Name "name" [Text],
        Imported "imported" [Text],
        /// Number of roles.
        Roles "roles" [Text],
    }
}

/// A page of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatalogPage {
    /// The versions by barclamp, newest first.
    pub versions: Vec<BarclampVersion>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A barclamp version in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarclampVersion {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: String,
    /// Description for people.
    pub description: String,
    /// Number of roles.
    pub roles: usize,
    /// Time of the import.
    pub imported: At,
    /// The person who imported it, or null if Gantry ships it.
    pub by: Option<String>,
    /// Deployments that pin it.
    pub used_by: Vec<DeploymentName>,
    /// The version that was imported before it.
    pub previous: Option<String>,
    /// Things that the earlier version has and this one lacks.
    pub removed_parts: Vec<String>,
    /// Scripts with hidden characters.
    #[serde(default, skip_serializing_if = "HiddenCharacters::is_empty")]
    pub hidden_characters: HiddenCharacters,
}

/// Filters of the list of barclamps. An empty filter matches all barclamps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BarclampsQuery {
    /// Part of the name.
    pub filter: String,
    /// Sort order. Default: by name.
    pub sort: Order<BarclampSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// Two contents of a role and their differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContentChange {
    /// Content hash before.
    pub old: Hash,
    /// Content hash after.
    pub new: Hash,
    /// Changes of the definition. Scripts appear with their name, short content hash and order.
    pub changes: Vec<Change>,
    /// Scripts that differ, with their text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
}

impl ContentChange {
    /// The differences, one per line: first the definition, then the scripts.
    pub fn lines(&self) -> Vec<String> {
        // The file's own line reports a changed script.
        let is_file = |path: &str| path.starts_with("/scripts/") && !path.ends_with("/position");
        let values =
            self.changes.iter().filter(|change| !is_file(&change.path)).map(ToString::to_string);
        values.chain(self.files.iter().map(ToString::to_string)).collect()
    }
}

/// Maximum number of lines of a file that are compared, from its start.
pub const MAX_FILE_LINES: usize = 2000;

/// A file that differs between two contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// File name.
    pub name: String,
    /// Kind of the difference.
    pub mark: Mark,
    /// Hash of the old file.
    pub old: Option<Hash>,
    /// Hash of the new file.
    pub new: Option<Hash>,
    /// Differences of the text.
    pub text: FileText,
}

/// For example `* script 10-cut.sh: +1 -1 lines`.
impl std::fmt::Display for FileChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marker = match self.mark {
            Mark::Added => '+',
            Mark::Removed => '-',
            Mark::Changed => '*',
        };
        let name = engine::text::shown(&self.name);
        write!(f, "{marker} script {name}: ")?;
        match &self.text {
            FileText::Lines { lines, cut } => {
                let of = |mark| lines.iter().filter(|line| line.mark == mark).count();
                write!(f, "+{} -{} lines", of(LineMark::Added), of(LineMark::Removed))?;
                if *cut { f.write_str(", the rest was not compared") } else { Ok(()) }
            }
            FileText::Binary { old, new } => {
                let bytes = |side: &Option<u64>| {
                    side.map_or_else(|| "nothing".to_owned(), |n| format!("{n} bytes"))
                };
                write!(f, "not text: {} -> {}", bytes(old), bytes(new))
            }
            FileText::NotCompared => f.write_str("changed, but not compared: too many files"),
        }
    }
}

/// Differences of a file's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FileText {
    /// Differences by line.
    Lines {
        /// Lines that differ, with some context.
        lines: Vec<FileLine>,
        /// Whether the file is longer than the compared part, or a line is longer than its shown
        /// part.
        cut: bool,
    },
    /// The file is not text.
    Binary {
        /// Size before, in bytes.
        old: Option<u64>,
        /// Size after, in bytes.
        new: Option<u64>,
    },
    /// Not compared, because too many files differ.
    NotCompared,
}

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileLine {
    /// Kind of the line.
    pub mark: LineMark,
    /// Line number in the old file for a removed line, otherwise in the new file.
    pub number: Option<u32>,
    /// Text of the line, with invisible characters escaped.
    pub text: String,
}

/// Kind of a line in a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LineMark {
    /// The line is unchanged.
    Unchanged,
    /// The line was added.
    Added,
    /// The line was removed.
    Removed,
    /// Unchanged lines are left out here.
    Gap,
}

/// A changed pin of a barclamp version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinChange {
    /// Id of the deployment.
    pub deployment: DeploymentId,
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// The version that applied before, or null for none.
    pub old: Option<PinnedVersion>,
    /// The version that applies after, or null for none.
    pub new: Option<PinnedVersion>,
    /// Roles that differ between the versions and that the deployment does not use. Its own changes
    /// do not name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<PinnedRole>,
}

/// A barclamp version that applies in a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedVersion {
    /// Version in the barclamp's file.
    pub version: String,
    /// Short content hash.
    pub hash: String,
    /// The ancestor that pins it, or null for the deployment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<DeploymentName>,
}

/// For example `2 (a1b2c3d4), from system`.
impl std::fmt::Display for PinnedVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.version, self.hash)?;
        self.from.iter().try_for_each(|name| write!(f, ", from {name}"))
    }
}

/// A role that differs between two versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedRole {
    /// Name of the role.
    pub role: RoleName,
    /// Its content hashes. Null on a side without the role.
    pub contents: Sides<Option<Hash>>,
}

/// Scripts with hidden characters, which are invisible or change the reading direction. The
/// executed script then differs from the text on screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HiddenCharacters {
    /// Some of these scripts, by barclamp, role and file.
    pub scripts: Vec<HiddenCharactersScript>,
    /// Number of further scripts.
    #[serde(default)]
    pub more: usize,
}

impl HiddenCharacters {
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    pub(crate) fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let lines: String = self.scripts.iter().map(|script| format!("  {script}\n")).collect();
        let more =
            if self.more > 0 { format!("  and {} more\n", self.more) } else { String::new() };
        format!(
            "\nScripts with hidden characters, which can run other commands than they \
             show:\n{lines}{more}"
        )
    }
}

/// A script with hidden characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HiddenCharactersScript {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Name of the role.
    pub role: RoleName,
    /// File name.
    pub file: String,
    /// Content hash of the script.
    pub hash: Hash,
    /// Position of the first hidden character.
    pub at: TextPosition,
    /// Description, for example `the script has the character U+202E, ...`.
    pub description: String,
}

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TextPosition {
    /// Line, starting at 1.
    pub line: u32,
    /// Column, starting at 1.
    pub column: u32,
}

impl std::fmt::Display for HiddenCharactersScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { barclamp, role, file, at: TextPosition { line, column }, description, .. } =
            self;
        write!(f, "{role} of {barclamp}, {file}:{line}:{column}: {description}")
    }
}

paged! {
    CatalogPage: versions of BarclampVersion,
}

paged! {
    RolePage: roles of RoleSummary,
}

paged! {
    ImportPage: imports of ImportReport,
}
