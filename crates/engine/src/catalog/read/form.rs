//! Converts a YAML tree to a draft: checks for unknown keys, wrong types and missing values.
//!
//! The reader continues after an error, so that it reports all problems of a file at once. It omits
//! values that it cannot read. This is safe because a draft with an error is never returned.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::str::FromStr;

use serde_json::{Map, Value};

use super::finding::{At, Finding, Findings, Report, Severity, quoted, suggestion_for, unseen};
use super::yaml::{self, Entry, Kind, Node, ScalarValue, YamlError};
use super::{
    CHECK_INTERVALS, MAX_BACKOFF, MAX_CHECK_FAILURES, MAX_CHECK_TIMEOUT, MAX_CONCURRENCY,
    MAX_PRIORITY, MAX_RETRIES, MAX_TIMEOUT, Source, scripts,
};
use crate::canonical::{Hash, Object};
use crate::catalog::version;
use crate::catalog::{
    Attrib, Check, ConcurrencyGroup, ConcurrencyGroupMode, Flags, JigClass, Join, JoinAfter,
    JoinNeed, MAX_ROLES, Needs, OnChange, OnError, OnFailure, OnInput, OnReturn, RunLocation,
    RunPolicy, Script,
};
use crate::data::schema::{schema_defects, schema_errors};
use crate::ids::{
    ActionName, AttribName, BarclampName, ConcurrencyGroupName, JigName, NameError, RoleName,
};
use crate::text::deceptive_character;

/// One file, parsed without other files. [`link`](super::link) builds barclamps from a set of them.
#[derive(Debug, Clone)]
pub struct Draft {
    pub(super) path: String,
    /// Whether the file is in OpenCrowbar's or Digital Rebar's format and not in Gantry's own.
    pub(super) foreign: bool,
    pub(super) name: Option<Named<BarclampName>>,
    pub(super) version: Option<String>,
    pub(super) display: String,
    pub(super) description: String,
    pub(super) parent: Option<String>,
    /// Barclamps in files next to this one (Anvil's format).
    pub(super) children: Vec<Child>,
    pub(super) jigs: Vec<DraftJig>,
    pub(super) roles: Vec<DraftRole>,
    pub(super) attribs: Vec<Named<Attrib>>,
    pub(super) metadata: Map<String, Value>,
    pub(super) scripts: BTreeMap<Hash, Object>,
    findings: Findings,
}

/// A value and its position in the file.
#[derive(Debug, Clone)]
pub(super) struct Named<T> {
    pub(super) value: T,
    pub(super) at: At,
}

#[derive(Debug, Clone)]
pub(super) struct Child {
    pub(super) name: BarclampName,
    pub(super) description: String,
}

#[derive(Debug, Clone)]
pub(super) struct DraftJig {
    pub(super) name: JigName,
    pub(super) at: At,
    pub(super) class: JigClass,
    pub(super) description: String,
    pub(super) client_role: Option<Named<RoleName>>,
}

#[derive(Debug, Clone)]
pub(super) struct DraftRole {
    pub(super) name: RoleName,
    pub(super) at: At,
    pub(super) jig: Named<JigName>,
    pub(super) description: String,
    pub(super) flags: Flags,
    pub(super) requires: Vec<Named<RoleName>>,
    pub(super) provides: Vec<Named<RoleName>>,
    pub(super) conflicts: Vec<Named<RoleName>>,
    pub(super) preceeds: Vec<Named<RoleName>>,
    pub(super) wants: Vec<Named<AttribName>>,
    pub(super) template: Value,
    pub(super) attribs: Vec<Named<Attrib>>,
    pub(super) run: RunPolicy,
    pub(super) actions: BTreeSet<ActionName>,
    pub(super) scripts: Vec<Script>,
    pub(super) metadata: Map<String, Value>,
}

impl Draft {
    /// The file, as the caller named it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The warnings and notes of the file. A draft never has errors.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The file name without its extension.
    pub(super) fn stem(&self) -> &str {
        let file = self.path.rsplit(['/', '\\']).next().unwrap_or(&self.path);
        file.rsplit_once('.').map_or(file, |(stem, _)| stem)
    }
}

/// The keys that a map may have.
struct Keys {
    /// Keys that Gantry interprets.
    own: &'static [&'static str],
    /// Keys that Gantry does not interpret but stores in the metadata.
    stored: &'static [&'static str],
    /// Keys for packagers, which Gantry drops.
    dropped: &'static [&'static str],
    /// Keys of the three lists above that only OpenCrowbar and Digital Rebar use.
    foreign: &'static [&'static str],
}

const FILE: Keys = Keys {
    own: &["barclamp", "barclamps", "jigs", "roles", "attribs", "version"],
    stored: &["metadata", "hammers", "providers", "profiles", "wizard", "source_url"],
    dropped: &["crowbar", "rebar", "os_support", "extra_files", "debs", "rpms", "gems"],
    foreign: &[
        "barclamps",
        "hammers",
        "providers",
        "profiles",
        "wizard",
        "crowbar",
        "rebar",
        "extra_files",
        "debs",
        "rpms",
        "gems",
    ],
};

const BARCLAMP: Keys = Keys {
    own: &["name", "version", "display", "description"],
    stored: &[
        "parent",
        "license",
        "license_url",
        "source_url",
        "copyright",
        "os_support",
        "requires",
        "member",
        "api_version",
        "api_version_accepts",
        "documentation",
    ],
    dropped: &[],
    foreign: &["parent", "member", "api_version", "api_version_accepts"],
};

const CHILD: Keys = Keys { own: &["name", "description"], stored: &[], dropped: &[], foreign: &[] };

const JIG: Keys = Keys {
    own: &["name", "class", "description", "implementor"],
    stored: &[],
    dropped: &[],
    foreign: &[],
};

const ROLE: Keys = Keys {
    own: &[
        "name",
        "jig",
        "description",
        "flags",
        "requires",
        "provides",
        "conflicts",
        "preceeds",
        "wants-attribs",
        "attribs",
        "metadata",
        "template",
        "concurrency-group",
        "retries",
        "backoff",
        "timeout",
        "priority",
        "needs",
        "location",
        "exclusive",
        "on-error",
        "on-change",
        "on-input",
        "reads",
        "on-return",
        "join",
        "actions",
        "scripts",
        "check",
    ],
    stored: &["documentation", "icon", "type", "events", "attaches", "notes"],
    dropped: &[],
    foreign: &["icon", "type", "events", "attaches"],
};

const ATTRIB: Keys = Keys {
    own: &["name", "description", "map", "default", "schema"],
    stored: &[],
    dropped: &["documentation", "ui_renderer", "type", "writable"],
    foreign: &["ui_renderer", "type", "writable"],
};

const REQUIRED_ATTRIB: Keys = Keys { own: &["name"], stored: &[], dropped: &["at"], foreign: &[] };

const CONCURRENCY_GROUP: Keys =
    Keys { own: &["name", "max-running", "mode"], stored: &[], dropped: &[], foreign: &[] };

const CHECK: Keys = Keys {
    own: &["script", "interval", "timeout", "failures", "on-failure"],
    stored: &[],
    dropped: &[],
    foreign: &[],
};

const JOIN: Keys = Keys { own: &["need", "after"], stored: &[], dropped: &[], foreign: &[] };

/// Flags of OpenCrowbar and Digital Rebar that have no meaning in Gantry.
const IGNORED_FLAGS: &[&str] = &["replace_node_icon"];

/// The error for a file that is not a barclamp.
pub(super) const NO_BARCLAMP: &str =
    "This is not a barclamp file: it has none of the keys `barclamp`, `roles` and `jigs`";

/// Whether a word is a role flag.
pub(super) fn is_flag(word: &str) -> bool {
    FLAGS.contains(&word)
}

const FLAGS: &[&str] = &[
    "implicit",
    "abstract",
    "milestone",
    "destructive",
    "discovery",
    "bootstrap",
    "cluster",
    "service",
    "library",
    "powersave",
    "leaverunlog",
    "facts",
];

pub(super) fn read(source: &Source<'_>) -> Result<Draft, Findings> {
    let mut reader = Reader { path: source.path, foreign: false, report: Report::default() };
    reader.plain_path();
    let draft = match yaml::parse(source.bytes) {
        Ok(Some(root)) if !root.is_null() => {
            reader.check_texts(&root, &mut BTreeSet::new());
            reader.file(&root, source)
        }
        Ok(_) => {
            reader.error(
                At::START,
                "The file is empty. A barclamp file must have at least the keys `barclamp` and \
                 `roles`",
            );
            None
        }
        Err(error) => {
            reader.yaml_error(error);
            None
        }
    };
    let findings = reader.report.settle(|findings| findings)?;
    // A missing draft implies an error, so this is unreachable; it avoids a panic.
    draft.map(|draft| Draft { findings, ..draft }).ok_or_else(Findings::default)
}

/// Reads one file and collects its findings.
pub(super) struct Reader<'a> {
    path: &'a str,
    pub(super) foreign: bool,
    report: Report,
}

impl Reader<'_> {
    fn add_finding(
        &mut self,
        severity: Severity,
        at: At,
        message: impl Into<String>,
        near: Option<String>,
    ) {
        self.report.add(Finding {
            severity,
            file: self.path.to_owned(),
            line: at.line,
            column: at.column,
            message: message.into(),
            suggestion: near.map(suggestion_for),
        });
    }

    /// Adds a finding with a suggestion.
    pub(super) fn add_finding_with_advice(
        &mut self,
        severity: Severity,
        at: At,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.report.add(Finding {
            severity,
            file: self.path.to_owned(),
            line: at.line,
            column: at.column,
            message: message.into(),
            suggestion: Some(advice.into()),
        });
    }

    /// See [`Report::nearest`].
    pub(super) fn nearest<'n>(
        &self,
        severity: Severity,
        name: &str,
        candidates: impl IntoIterator<Item = &'n str>,
    ) -> Option<String> {
        self.report.nearest(severity, name, candidates)
    }

    pub(super) fn error(&mut self, at: At, message: impl Into<String>) {
        self.add_finding(Severity::Error, at, message, None);
    }

    pub(super) fn error_with_suggestion(
        &mut self,
        at: At,
        message: impl Into<String>,
        near: Option<String>,
    ) {
        self.add_finding(Severity::Error, at, message, near);
    }

    /// Adds a finding about another file of the folder as a whole.
    pub(super) fn in_file(
        &mut self,
        severity: Severity,
        file: &str,
        message: impl Into<String>,
        near: Option<String>,
    ) {
        self.finding_at(severity, file, At::START, message, near.map(suggestion_for));
    }

    /// Adds a finding with a suggestion at a position in another file of the folder.
    pub(super) fn finding_at(
        &mut self,
        severity: Severity,
        file: &str,
        at: At,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        let folder = self.path.rfind(['/', '\\']).map_or("", |end| &self.path[..=end]);
        self.report.add(Finding {
            severity,
            file: format!("{folder}{file}"),
            line: at.line,
            column: at.column,
            message: message.into(),
            suggestion,
        });
    }

    fn yaml_error(&mut self, error: YamlError) {
        self.error(error.at, error.message);
    }

    fn plain_path(&mut self) {
        if let Some(c) = deceptive_character(self.path) {
            self.error(At::START, format!("The path of the file has {}", unseen(c)));
        }
    }

    /// Rejects deceptive characters in every text of a file, because users read all of them in
    /// lists, reviews and selections. A text that aliases repeat is reported once.
    fn check_texts(&mut self, node: &Node, reported: &mut BTreeSet<At>) {
        let mut check = |text: &str, at: At| {
            if let Some(c) = deceptive_character(text)
                && reported.insert(at)
            {
                self.error(at, format!("This text has {}", unseen(c)));
            }
        };
        match &node.kind {
            Kind::Scalar { text, .. } => check(text, node.at),
            Kind::List(items) => items.iter().for_each(|item| self.check_texts(item, reported)),
            Kind::Map(entries) => {
                for entry in entries {
                    check(&entry.key, entry.at);
                }
                entries.iter().for_each(|entry| self.check_texts(&entry.value, reported));
            }
        }
    }

    /// A violation that is an error in Gantry's own format and a warning in the others.
    fn strict(&mut self, at: At, message: impl Into<String>, advice: &str) {
        let severity = match self.foreign {
            true => Severity::Warning,
            false => Severity::Error,
        };
        self.add_finding_with_advice(severity, at, message, advice);
    }

    /// The severity of a probable mistake: a warning in Gantry's own format. In the others it is a
    /// note, because another program may use the value.
    fn typo_severity(&self) -> Severity {
        match self.foreign {
            true => Severity::Note,
            false => Severity::Warning,
        }
    }

    fn file(&mut self, root: &Node, source: &Source<'_>) -> Option<Draft> {
        let entries = self.map(root, "the file")?;
        let known = ["barclamp", "barclamps", "roles", "jigs"];
        if !entries.iter().any(|entry| known.contains(&entry.key.as_str())) {
            self.error(root.at, NO_BARCLAMP);
            return None;
        }
        self.foreign = is_foreign(entries);
        self.check_keys(entries, "the file", &FILE);

        let mut metadata = self.retained_fields(entries, &FILE);
        let head = self.head(entries, &mut metadata);
        let top_version = self.version(entries, "the file");
        let children = self.items(entries, "barclamps", "the file");
        let jigs = self.items(entries, "jigs", "the file");
        let attribs = self.attribs(entries, "the file");
        let (roles, scripts) = self.roles(entries, source);
        Some(Draft {
            path: source.path.to_owned(),
            foreign: self.foreign,
            name: head.name,
            version: head.version.or(top_version),
            display: head.display,
            description: head.description,
            parent: metadata.get("parent").and_then(Value::as_str).map(str::to_owned),
            children: children.iter().filter_map(|node| self.child(node)).collect(),
            jigs: self.jigs(jigs),
            roles,
            attribs,
            metadata,
            scripts,
            findings: Findings::default(),
        })
    }

    fn head(&mut self, file: &[Entry], metadata: &mut Map<String, Value>) -> Head {
        let Some(node) = get(file, "barclamp") else {
            return Head::default();
        };
        let Some(entries) = self.map(node, "barclamp") else {
            return Head::default();
        };
        self.check_keys(entries, "barclamp", &BARCLAMP);
        metadata.extend(self.retained_fields(entries, &BARCLAMP));
        let name = match get(entries, "name") {
            Some(node) => self.name(node, "barclamp", "name"),
            None => {
                self.error(node.at, "The barclamp has no name");
                None
            }
        };
        let version = self.version(entries, "barclamp");
        if get(entries, "version").is_none() && !self.foreign {
            self.error(
                node.at,
                "The barclamp has no version. Its name and version must identify its content",
            );
        }
        Head {
            name,
            version,
            display: self.text_or_empty(entries, "barclamp", "display"),
            description: self.text_or_empty(entries, "barclamp", "description"),
        }
    }

    /// The version as written: `2.0` stays `2.0`.
    fn version(&mut self, entries: &[Entry], owner: &str) -> Option<String> {
        let node = get(entries, "version")?;
        let text = self.text(node, owner, "version")?;
        if let Err(error) = version::check(text) {
            self.error(node.at, error.to_string());
            return None;
        }
        Some(text.to_owned())
    }

    fn child(&mut self, node: &Node) -> Option<Child> {
        let entries = self.map(node, "an item of barclamps")?;
        self.check_keys(entries, "an item of barclamps", &CHILD);
        Some(Child {
            name: self.required_name(node, entries, "an item of barclamps")?.value,
            description: self.text_or_empty(entries, "an item of barclamps", "description"),
        })
    }

    fn jigs(&mut self, nodes: &[Rc<Node>]) -> Vec<DraftJig> {
        let mut first: BTreeMap<JigName, u32> = BTreeMap::new();
        let mut jigs = Vec::new();
        for jig in nodes.iter().filter_map(|node| self.jig(node)).collect::<Vec<_>>() {
            match first.get(&jig.name) {
                Some(line) => self.error(
                    jig.at,
                    format!(
                        "Jig \"{}\" is declared twice. The first declaration is at line {line}",
                        jig.name
                    ),
                ),
                None => {
                    first.insert(jig.name.clone(), jig.at.line);
                    jigs.push(jig);
                }
            }
        }
        jigs
    }

    fn jig(&mut self, node: &Node) -> Option<DraftJig> {
        let entries = self.map(node, "a jig")?;
        let name = self.required_name(node, entries, "a jig");
        let owner = match &name {
            Some(name) => format!("jig \"{}\"", name.value),
            None => "a jig".to_owned(),
        };
        self.check_keys(entries, &owner, &JIG);
        let class = match get(entries, "class") {
            Some(node) => {
                let class = jig_class(self.text(node, &owner, "class")?);
                if let JigClass::Other(word) = &class {
                    let message = format!(
                        "No worker supports the class of {owner}, {}. Roles that use the jig \
                         cannot be bound",
                        quoted(word)
                    );
                    let near = self.nearest(Severity::Warning, word, JigClass::names());
                    // Files of other systems often name such classes.
                    let severity = match self.foreign || near.is_none() {
                        true => Severity::Note,
                        false => Severity::Warning,
                    };
                    self.add_finding(severity, node.at, message, near);
                }
                class
            }
            None => {
                self.error(node.at, format!("The class of {owner} is missing"));
                return None;
            }
        };
        let client_role = match get(entries, "implementor") {
            Some(node) => self.name(node, &owner, "implementor"),
            None => None,
        };
        let name = name?;
        Some(DraftJig {
            at: node.at,
            name: name.value,
            class,
            description: self.text_or_empty(entries, &owner, "description"),
            client_role,
        })
    }

    fn roles(
        &mut self,
        file: &[Entry],
        source: &Source<'_>,
    ) -> (Vec<DraftRole>, BTreeMap<Hash, Object>) {
        let nodes = self.items(file, "roles", "the file");
        if let Some(node) = nodes.get(MAX_ROLES) {
            let count = nodes.len();
            self.error(
                node.at,
                format!("The barclamp has {count} roles, and the limit is {MAX_ROLES}"),
            );
            return (Vec::new(), BTreeMap::new());
        }
        let mut scripts = scripts::ScriptFolder::new(source, self);
        let mut first: BTreeMap<RoleName, u32> = BTreeMap::new();
        let mut roles = Vec::new();
        for node in nodes {
            let Some(role) = self.role(node, &mut scripts) else {
                continue;
            };
            match first.get(&role.name) {
                Some(line) => self.error(
                    role.at,
                    format!(
                        "Role \"{}\" is declared twice. The first declaration is at line {line}",
                        role.name
                    ),
                ),
                None => {
                    first.insert(role.name.clone(), role.at.line);
                    roles.push(role);
                }
            }
        }
        scripts.check_folders(&first, self);
        let objects = scripts.objects(roles.iter().flat_map(|role| &role.scripts));
        (roles, objects)
    }

    fn role(&mut self, node: &Node, scripts: &mut scripts::ScriptFolder<'_>) -> Option<DraftRole> {
        let entries = self.map(node, "a role")?;
        let name = self.required_name(node, entries, "a role")?;
        let owner = format!("role \"{}\"", name.value);
        self.check_keys(entries, &owner, &ROLE);
        let jig = match get(entries, "jig") {
            Some(node) => self.name(node, &owner, "jig"),
            None => {
                self.error(
                    node.at,
                    format!(
                        "The jig of {owner} is missing. For a role that runs nothing, set jig: noop"
                    ),
                );
                None
            }
        };
        let mut metadata = match get(entries, "metadata") {
            Some(node) => self.data_map(node, &owner, "metadata"),
            None => Map::new(),
        };
        for (key, value) in self.retained_fields(entries, &ROLE) {
            metadata.entry(key).or_insert(value);
        }
        let template = match get(entries, "template") {
            Some(node) => self.data_map(node, &owner, "template"),
            None => Map::new(),
        };
        let flags = self.flags(entries, &owner, name.at);
        let actions = self.actions(entries, &owner);
        let check = self.check(entries, &owner, &name, scripts);
        let check_script = check.as_ref().map(|(_, script)| script);
        let mut of_role = self.scripts(entries, &owner, &name, scripts, check_script);
        of_role.extend(self.action_scripts(&actions, &name, scripts));
        of_role.extend(check_script.map(|script| Script {
            name: format!("check/{}", script.name.strip_prefix("check/").unwrap_or(&script.name)),
            ..script.clone()
        }));
        let role = DraftRole {
            at: name.at,
            description: self.text_or_empty(entries, &owner, "description"),
            flags,
            requires: self.names(entries, &owner, "requires"),
            provides: self.names(entries, &owner, "provides"),
            conflicts: self.names(entries, &owner, "conflicts"),
            preceeds: self.names(entries, &owner, "preceeds"),
            wants: self.wants(entries, &owner),
            template: Value::Object(template),
            attribs: self.attribs(entries, &owner),
            run: RunPolicy {
                check: check.map(|(check, _)| check),
                ..self.run_policy(entries, &owner, &name.value)
            },
            actions: actions.into_iter().map(|action| action.value).collect(),
            scripts: of_role,
            metadata,
            jig: jig?,
            name: name.value,
        };
        self.check_provides(&role, &owner);
        self.check_template(&role, &owner);
        Some(role)
    }

    fn check_provides(&mut self, role: &DraftRole, owner: &str) {
        let conflicts: BTreeSet<&RoleName> = role.conflicts.iter().map(|c| &c.value).collect();
        for provided in &role.provides {
            if conflicts.contains(&provided.value) {
                self.add_finding_with_advice(
                    Severity::Warning,
                    provided.at,
                    format!(
                        "The provides and conflicts of {owner} both name \"{}\"",
                        provided.value
                    ),
                    "Remove it from conflicts: roles that provide the same name never share a node",
                );
            }
        }
    }

    /// No other code checks template values: lint only checks data that users enter.
    fn check_template(&mut self, role: &DraftRole, owner: &str) {
        for Named { at, value: attrib } in &role.attribs {
            let value = attrib.map.iter().try_fold(&role.template, |value, key| value.get(key));
            let Some((schema, value)) =
                attrib.schema.as_ref().zip(value.filter(|value| !value.is_null()))
            else {
                continue;
            };
            for error in schema_errors(value, schema) {
                let place = attrib.map.join("/");
                let finding = format!(
                    "The template of {owner} has {place}{}, which {}",
                    error.path, error.problem
                );
                let advice = format!("Change it to match the schema of attribute {}", attrib.name);
                self.add_finding_with_advice(Severity::Warning, *at, finding, advice);
            }
        }
    }

    fn flags(&mut self, entries: &[Entry], owner: &str, at: At) -> Flags {
        let mut flags = Flags::default();
        for node in self.items(entries, "flags", owner) {
            let Some(word) = self.text(node, owner, "flags") else {
                continue;
            };
            match flag(&mut flags, word) {
                Some(flag) => *flag = true,
                None if IGNORED_FLAGS.contains(&word) => {}
                None => {
                    let message = format!("Unknown flag of {owner}: {}", quoted(word));
                    let near = self.nearest(Severity::Warning, word, FLAGS.iter().copied());
                    self.add_finding(Severity::Warning, node.at, message, near);
                }
            }
        }
        if flags.cluster && flags.implicit {
            self.add_finding_with_advice(
                Severity::Warning,
                at,
                format!("The flags cluster and implicit of {owner} exclude each other"),
                "Keep only one of the two flags",
            );
        }
        flags
    }

    fn wants(&mut self, entries: &[Entry], owner: &str) -> Vec<Named<AttribName>> {
        let mut wants = Vec::new();
        for node in self.items(entries, "wants-attribs", owner) {
            let name = match &node.kind {
                Kind::Map(parts) => {
                    self.check_keys(parts, "an item of wants-attribs", &REQUIRED_ATTRIB);
                    self.required_name(node, parts, "an item of wants-attribs")
                }
                _ => self.name(node, owner, "wants-attribs"),
            };
            wants.extend(name);
        }
        wants
    }

    /// The actions that a role declares, without `run`, which every role has.
    fn actions(&mut self, entries: &[Entry], owner: &str) -> Vec<Named<ActionName>> {
        let mut actions = self.names::<ActionName>(entries, owner, "actions");
        actions.retain(|action| {
            let is_known = action.value == ActionName::remove() || action.value.is_run();
            if !is_known {
                let message = format!(
                    "Key `actions` of {owner} has {}. It must be run or remove",
                    quoted(action.value.as_str())
                );
                let near = self.nearest(Severity::Error, action.value.as_str(), ["run", "remove"]);
                self.error_with_suggestion(action.at, message, near);
            }
            is_known && !action.value.is_run()
        });
        actions
    }

    fn action_scripts(
        &mut self,
        actions: &[Named<ActionName>],
        role: &Named<RoleName>,
        folder: &mut scripts::ScriptFolder<'_>,
    ) -> Vec<Script> {
        let declared = |action: &ActionName| actions.iter().any(|found| found.value == *action);
        if !declared(&ActionName::remove()) {
            folder.check_undeclared(&role.value, &ActionName::remove(), role.at, self);
        }
        let scripts =
            actions.iter().flat_map(|a| folder.all_of_action(&role.value, &a.value, self));
        scripts.collect()
    }

    fn scripts(
        &mut self,
        entries: &[Entry],
        owner: &str,
        role: &Named<RoleName>,
        folder: &mut scripts::ScriptFolder<'_>,
        check: Option<&Script>,
    ) -> Vec<Script> {
        let Some(node) = get(entries, "scripts") else {
            let mut scripts = folder.all_of(&role.value, self);
            scripts.retain(|script| check.is_none_or(|check| check.name != script.name));
            return scripts;
        };
        let mut scripts: Vec<Script> = Vec::new();
        for node in self.list(node, owner, "scripts") {
            let Some(file) = self.text(node, owner, "scripts") else {
                continue;
            };
            let Some(script) = folder.one_of(&role.value, file, node.at, self) else {
                continue;
            };
            if scripts.iter().any(|other| other.name == script.name) {
                self.error(
                    node.at,
                    format!("Two scripts of {owner} have the name {}", quoted(&script.name)),
                );
            }
            scripts.push(script);
        }
        scripts
    }

    fn attribs(&mut self, entries: &[Entry], owner: &str) -> Vec<Named<Attrib>> {
        let mut attribs: Vec<Named<Attrib>> = Vec::new();
        let mut places: BTreeMap<AttribName, usize> = BTreeMap::new();
        for node in self.items(entries, "attribs", owner) {
            let Some(attrib) = self.attrib(node, owner) else {
                continue;
            };
            match places.get(&attrib.value.name) {
                // OpenCrowbar's importer updated by name, so its result had the last one.
                Some(place) => {
                    let line = attribs[*place].at.line;
                    self.strict(
                        attrib.at,
                        format!(
                            "The attribs of {owner} have \"{}\" twice. The first declaration is at \
                             line {line}",
                            attrib.value.name
                        ),
                        "Remove one of them. The last one counts",
                    );
                    attribs[*place] = attrib;
                }
                None => {
                    places.insert(attrib.value.name.clone(), attribs.len());
                    attribs.push(attrib);
                }
            }
        }
        attribs
    }

    fn attrib(&mut self, node: &Node, owner: &str) -> Option<Named<Attrib>> {
        let owner = format!("an attribute of {owner}");
        let entries = self.map(node, &owner)?;
        let name: Named<AttribName> = self.required_name(node, entries, &owner)?;
        let owner = format!("attribute \"{}\"", name.value);
        self.check_keys(entries, &owner, &ATTRIB);
        let map = match get(entries, "map") {
            Some(node) => {
                let text = self.text(node, &owner, "map")?;
                self.data_path(text, node.at, &owner, "map")?
            }
            None => {
                let map = name.value.as_str().replace('-', "/");
                let (finding, advice) = (
                    format!("The map of {owner} is missing"),
                    format!("Write map: {map}, which is used now"),
                );
                let severity = if self.foreign { Severity::Warning } else { Severity::Note };
                self.add_finding_with_advice(severity, name.at, finding, advice);
                self.data_path(&map, name.at, &owner, "map")?
            }
        };
        let default = match get(entries, "default") {
            Some(node) => self.json(node),
            None => None,
        };
        let schema = get(entries, "schema")
            .map(|node| (node.at, Value::Object(self.data_map(node, &owner, "schema"))));
        for (at, flaw) in schema
            .iter()
            .flat_map(|(at, schema)| schema_defects(schema).into_iter().map(|flaw| (*at, flaw)))
        {
            let finding = format!("The schema of {owner}{} {}", flaw.path, flaw.problem);
            self.add_finding_with_advice(
                Severity::Warning,
                at,
                finding,
                "Correct it, or remove it",
            );
        }
        Some(Named {
            at: name.at,
            value: Attrib {
                name: name.value,
                map,
                description: self.text_or_empty(entries, &owner, "description"),
                default,
                schema: schema.map(|(_, schema)| schema),
            },
        })
    }

    fn read_paths(&mut self, entries: &[Entry], owner: &str) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        for node in self.items(entries, "reads", owner) {
            let text = self.text(node, owner, "reads");
            paths.extend(text.and_then(|text| self.data_path(text, node.at, owner, "reads")));
        }
        paths
    }

    /// Parses `a/b/c` as keys from the top.
    fn data_path(&mut self, text: &str, at: At, owner: &str, key: &str) -> Option<Vec<String>> {
        let keys: Vec<String> =
            text.split('/').filter(|key| !key.is_empty()).map(str::to_owned).collect();
        if keys.is_empty() || keys.len() > super::MAX_DEPTH {
            self.error(
                at,
                format!("The {key} {} of {owner} is not a path such as \"app/port\"", quoted(text)),
            );
            return None;
        }
        Some(keys)
    }

    fn run_policy(&mut self, entries: &[Entry], owner: &str, role: &RoleName) -> RunPolicy {
        let defaults = RunPolicy::default();
        let needs = [("alive", Needs::Alive), ("any", Needs::Any), ("dead", Needs::Dead)];
        let location = [("node", RunLocation::Node), ("worker", RunLocation::Worker)];
        let on_error = [("descendants", OnError::Descendants), ("node", OnError::Node)];
        let on_change = [("rerun", OnChange::Rerun), ("keep", OnChange::Keep)];
        let on_input =
            [("rerun", OnInput::Rerun), ("report", OnInput::Report), ("ignore", OnInput::Ignore)];
        let on_return = [
            ("after-restart", OnReturn::AfterRestart),
            ("always", OnReturn::Always),
            ("never", OnReturn::Never),
        ];
        RunPolicy {
            needs: self.keyword(entries, owner, "needs", &needs).unwrap_or(defaults.needs),
            location: self
                .keyword(entries, owner, "location", &location)
                .unwrap_or(defaults.location),
            exclusive: self.truth(entries, owner, "exclusive").unwrap_or(defaults.exclusive),
            concurrency_group: self.concurrency_group(entries, owner, role),
            on_error: self
                .keyword(entries, owner, "on-error", &on_error)
                .unwrap_or(defaults.on_error),
            on_change: self
                .keyword(entries, owner, "on-change", &on_change)
                .unwrap_or(defaults.on_change),
            on_input: self
                .keyword(entries, owner, "on-input", &on_input)
                .unwrap_or(defaults.on_input),
            reads: self.read_paths(entries, owner),
            on_return: self
                .keyword(entries, owner, "on-return", &on_return)
                .unwrap_or(defaults.on_return),
            retries: self
                .number(entries, owner, "retries", 0..=MAX_RETRIES)
                .unwrap_or(defaults.retries),
            backoff: self
                .seconds(entries, owner, "backoff", 0..=MAX_BACKOFF)
                .unwrap_or(defaults.backoff),
            timeout: self
                .seconds(entries, owner, "timeout", 1..=MAX_TIMEOUT)
                .unwrap_or(defaults.timeout),
            join: self.join(entries, owner).unwrap_or(defaults.join),
            priority: self.priority(entries, owner).unwrap_or(defaults.priority),
            check: None,
        }
    }

    /// The check of a role, with its script under the name in the file. The script is a file like
    /// those of `scripts`. If the role lists no scripts, a check is not one of them.
    fn check(
        &mut self,
        entries: &[Entry],
        owner: &str,
        role: &Named<RoleName>,
        folder: &mut scripts::ScriptFolder<'_>,
    ) -> Option<(Check, Script)> {
        let node = get(entries, "check")?;
        let owner = format!("the check of {owner}");
        let entries = self.map(node, &owner)?;
        self.check_keys(entries, &owner, &CHECK);
        let on_failure = [("rerun", OnFailure::Rerun), ("report", OnFailure::Report)];
        let interval = self
            .seconds(entries, &owner, "interval", CHECK_INTERVALS)
            .unwrap_or(Check::DEFAULT.interval);
        let longest = interval.min(MAX_CHECK_TIMEOUT);
        let check = Check {
            interval,
            timeout: self
                .seconds(entries, &owner, "timeout", 1..=longest)
                .unwrap_or(Check::DEFAULT.timeout.min(longest)),
            failures: self
                .number(entries, &owner, "failures", 1..=MAX_CHECK_FAILURES)
                .unwrap_or(Check::DEFAULT.failures),
            on_failure: self
                .keyword(entries, &owner, "on-failure", &on_failure)
                .unwrap_or(Check::DEFAULT.on_failure),
        };
        let Some(script) = get(entries, "script") else {
            let message =
                format!("The script of {owner} is missing. Name a file of the role's scripts");
            self.error(node.at, message);
            return None;
        };
        let file = self.text(script, &owner, "script")?;
        let script = folder.one_of(&role.value, file, script.at, self)?;
        Some((check, Script { name: file.to_owned(), action: ActionName::check(), ..script }))
    }

    fn concurrency_group(
        &mut self,
        entries: &[Entry],
        owner: &str,
        role: &RoleName,
    ) -> Option<ConcurrencyGroup> {
        let node = get(entries, "concurrency-group")?;
        let owner = format!("the concurrency group of {owner}");
        let entries = self.map(node, &owner)?;
        self.check_keys(entries, &owner, &CONCURRENCY_GROUP);
        let name = match get(entries, "name") {
            Some(node) => self.name(node, &owner, "name")?.value,
            None => ConcurrencyGroupName::of_role(role),
        };
        let Some(max_running) = self.number(entries, &owner, "max-running", 1..=MAX_CONCURRENCY)
        else {
            if get(entries, "max-running").is_none() {
                self.error(node.at, format!("The max-running of {owner} is missing"));
            }
            return None;
        };
        let mode =
            [("rolling", ConcurrencyGroupMode::Rolling), ("chunk", ConcurrencyGroupMode::Chunk)];
        Some(ConcurrencyGroup {
            name,
            max_running,
            mode: self.keyword(entries, &owner, "mode", &mode).unwrap_or_default(),
        })
    }

    /// Parses `join: any`, `join: 2` or `join: {need: all, after: end}`.
    fn join(&mut self, entries: &[Entry], owner: &str) -> Option<Join> {
        let node = get(entries, "join")?;
        let Kind::Map(parts) = &node.kind else {
            let need = self.join_need(node, owner, "join")?;
            return Some(Join { need, ..Join::default() });
        };
        let owner = format!("the join of {owner}");
        self.check_keys(parts, &owner, &JOIN);
        let after = [("success", JoinAfter::Success), ("end", JoinAfter::End)];
        Some(Join {
            need: match get(parts, "need") {
                Some(node) => self.join_need(node, &owner, "need")?,
                None => JoinNeed::default(),
            },
            after: self.keyword(parts, &owner, "after", &after).unwrap_or_default(),
        })
    }

    fn join_need(&mut self, node: &Node, owner: &str, key: &str) -> Option<JoinNeed> {
        let text = self.text(node, owner, key)?;
        let need = match text {
            "all" => Some(JoinNeed::All),
            "any" => Some(JoinNeed::Any),
            _ => text.parse().ok().filter(|n| *n > 0).map(JoinNeed::AtLeast),
        };
        if need.is_none() {
            self.error(
                node.at,
                format!(
                    "Key `{key}` of {owner} is {}. It must be all, any or a number of parents",
                    quoted(text)
                ),
            );
        }
        need
    }

    // The value of a key.

    fn map<'n>(&mut self, node: &'n Node, owner: &str) -> Option<&'n [Entry]> {
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            _ => {
                self.error(
                    node.at,
                    format!("Expected a map for {owner}, but found {}", node.sort()),
                );
                None
            }
        }
    }

    /// The items of a list; empty if the key is absent.
    fn items<'n>(&mut self, entries: &'n [Entry], key: &str, owner: &str) -> &'n [Rc<Node>] {
        match get(entries, key) {
            Some(node) => self.list(node, owner, key),
            None => &[],
        }
    }

    fn list<'n>(&mut self, node: &'n Node, owner: &str, key: &str) -> &'n [Rc<Node>] {
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.error(
                    node.at,
                    format!("Key `{key}` of {owner} must be a list, not {}", node.sort()),
                );
                &[]
            }
        }
    }

    /// The text of a scalar as written. Accepts a number or boolean where text is expected.
    fn text<'n>(&mut self, node: &'n Node, owner: &str, key: &str) -> Option<&'n str> {
        match &node.kind {
            Kind::Scalar { value, text } if *value != ScalarValue::Null => Some(text),
            _ => {
                self.error(
                    node.at,
                    format!("Key `{key}` of {owner} must be text, not {}", node.sort()),
                );
                None
            }
        }
    }

    fn text_or_empty(&mut self, entries: &[Entry], owner: &str, key: &str) -> String {
        get(entries, key).and_then(|node| self.text(node, owner, key)).unwrap_or("").to_owned()
    }

    fn name<T>(&mut self, node: &Node, owner: &str, key: &str) -> Option<Named<T>>
    where
        T: FromStr<Err = NameError>,
    {
        let text = self.text(node, owner, key)?;
        match text.parse() {
            Ok(value) => Some(Named { value, at: node.at }),
            Err(error) => {
                self.error(node.at, format!("Key `{key}` of {owner} is invalid: {error}"));
                None
            }
        }
    }

    fn required_name<T>(&mut self, node: &Node, entries: &[Entry], owner: &str) -> Option<Named<T>>
    where
        T: FromStr<Err = NameError>,
    {
        match get(entries, "name") {
            Some(node) => self.name(node, owner, "name"),
            None => {
                self.error(node.at, format!("The name of {owner} is missing"));
                None
            }
        }
    }

    /// A list of distinct names.
    fn names<T>(&mut self, entries: &[Entry], owner: &str, key: &str) -> Vec<Named<T>>
    where
        T: FromStr<Err = NameError> + Ord + Clone + Display,
    {
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        for node in self.items(entries, key, owner) {
            let Some(name) = self.name::<T>(node, owner, key) else {
                continue;
            };
            if seen.insert(name.value.clone()) {
                names.push(name);
            } else {
                let message = format!("Key `{key}` of {owner} has \"{}\" twice", name.value);
                self.add_finding_with_advice(
                    Severity::Warning,
                    node.at,
                    message,
                    "Remove one of them",
                );
            }
        }
        names
    }

    fn keyword<T: Copy>(
        &mut self,
        entries: &[Entry],
        owner: &str,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let node = get(entries, key)?;
        let text = self.text(node, owner, key)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message =
            format!("Key `{key}` of {owner} is {}. It must be {}", quoted(text), all.join(" or "));
        let near = self.nearest(Severity::Error, text, all);
        self.error_with_suggestion(node.at, message, near);
        None
    }

    fn truth(&mut self, entries: &[Entry], owner: &str, key: &str) -> Option<bool> {
        let node = get(entries, key)?;
        match node.kind {
            Kind::Scalar { value: ScalarValue::Bool(truth), .. } => Some(truth),
            _ => {
                self.error(
                    node.at,
                    format!("Key `{key}` of {owner} must be true or false, not {}", node.sort()),
                );
                None
            }
        }
    }

    fn number(
        &mut self,
        entries: &[Entry],
        owner: &str,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let node = get(entries, key)?;
        let number = match node.kind {
            Kind::Scalar { value: ScalarValue::Int(number), .. } => {
                u32::try_from(number).ok().filter(|n| range.contains(n))
            }
            _ => None,
        };
        if number.is_none() {
            self.error(
                node.at,
                format!(
                    "Key `{key}` of {owner} must be a whole number from {} to {}",
                    range.start(),
                    range.end()
                ),
            );
        }
        number
    }

    /// An integer, which may be negative.
    fn priority(&mut self, entries: &[Entry], owner: &str) -> Option<i32> {
        let node = get(entries, "priority")?;
        let range = -MAX_PRIORITY..=MAX_PRIORITY;
        let number = match node.kind {
            Kind::Scalar { value: ScalarValue::Int(number), .. } => {
                i32::try_from(number).ok().filter(|n| range.contains(n))
            }
            _ => None,
        };
        if number.is_none() {
            let message = format!(
                "Key `priority` of {owner} must be a whole number from -{MAX_PRIORITY} to \
                 {MAX_PRIORITY}"
            );
            self.error(node.at, message);
        }
        number
    }

    /// Parses `90`, `"90s"`, `"5m"`, `"2h"` or `"1d"`.
    fn seconds(
        &mut self,
        entries: &[Entry],
        owner: &str,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let node = get(entries, key)?;
        let text = self.text(node, owner, key)?;
        let seconds = parse_seconds(text).filter(|n| range.contains(n));
        if seconds.is_none() {
            self.error(
                node.at,
                format!(
                    "Key `{key}` of {owner} is {}. It must be a time from {} to {} seconds, such \
                     as 90, 90s, 5m or 2h",
                    quoted(text),
                    range.start(),
                    range.end()
                ),
            );
        }
        seconds
    }

    /// Data that becomes part of a role. Its limits are checked here, where its author sees the
    /// error, and not only on first use.
    fn json(&mut self, node: &Node) -> Option<Value> {
        match node.json() {
            Ok(value) => {
                if let Err(error) = crate::data::check(&value) {
                    self.error(node.at, error.to_string());
                }
                Some(value)
            }
            Err(error) => {
                self.yaml_error(error);
                None
            }
        }
    }

    fn data_map(&mut self, node: &Node, owner: &str, key: &str) -> Map<String, Value> {
        if self.map(node, &format!("{key} of {owner}")).is_none() {
            return Map::new();
        }
        match self.json(node) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }

    fn retained_fields(&mut self, entries: &[Entry], keys: &Keys) -> Map<String, Value> {
        let mut stored = Map::new();
        for entry in entries {
            if keys.stored.contains(&entry.key.as_str())
                && !entry.value.is_null()
                && let Some(value) = self.json(&entry.value)
            {
                stored.insert(entry.key.clone(), value);
            }
        }
        stored
    }

    fn check_keys(&mut self, entries: &[Entry], owner: &str, keys: &Keys) {
        for entry in entries {
            let key = entry.key.as_str();
            if [keys.own, keys.stored, keys.dropped].iter().any(|set| set.contains(&key)) {
                continue;
            }
            let message = format!("Unknown key of {owner}: {}", quoted(key));
            let known = keys.own.iter().chain(keys.stored).copied();
            let near = self.nearest(self.typo_severity(), key, known);
            self.add_finding(self.typo_severity(), entry.at, message, near);
        }
    }
}

#[derive(Default)]
struct Head {
    name: Option<Named<BarclampName>>,
    version: Option<String>,
    display: String,
    description: String,
}

/// The value of a key. `key:` without a value counts as absent.
fn get<'n>(entries: &'n [Entry], key: &str) -> Option<&'n Node> {
    entries
        .iter()
        .find(|entry| entry.key == key)
        .map(|entry| &*entry.value)
        .filter(|node| !node.is_null())
}

/// Whether the file has a key that only OpenCrowbar and Digital Rebar use.
fn is_foreign(file: &[Entry]) -> bool {
    let any = |entries: &[Entry], keys: &Keys| {
        entries.iter().any(|entry| keys.foreign.contains(&entry.key.as_str()))
    };
    let inside = |key: &str, keys: &Keys| match get(file, key).map(|node| &node.kind) {
        Some(Kind::Map(entries)) => any(entries, keys),
        Some(Kind::List(items)) => {
            items.iter().any(|item| matches!(&item.kind, Kind::Map(entries) if any(entries, keys)))
        }
        _ => false,
    };
    get(file, "barclamp").is_none()
        || any(file, &FILE)
        || inside("barclamp", &BARCLAMP)
        || inside("roles", &ROLE)
        || inside("attribs", &ATTRIB)
}

fn flag<'f>(flags: &'f mut Flags, word: &str) -> Option<&'f mut bool> {
    Some(match word {
        "implicit" => &mut flags.implicit,
        "abstract" => &mut flags.is_abstract,
        "milestone" => &mut flags.milestone,
        "destructive" => &mut flags.destructive,
        "discovery" => &mut flags.discovery,
        "bootstrap" => &mut flags.bootstrap,
        "cluster" => &mut flags.cluster,
        "service" => &mut flags.service,
        "library" => &mut flags.is_library,
        "powersave" => &mut flags.powersave,
        "leaverunlog" => &mut flags.leaverunlog,
        "facts" => &mut flags.facts,
        _ => return None,
    })
}

/// The class for a name in a file: Gantry's own name or the equivalent Ruby class.
fn jig_class(word: &str) -> JigClass {
    match word {
        "BarclampCrowbar::Jig" | "BarclampRebar::Jig" => JigClass::Script,
        _ => {
            let class = word.rsplit("::").next().unwrap_or(word);
            match class {
                "ScriptJig" => JigClass::Script,
                "NoopJig" => JigClass::Noop,
                "TestJig" => JigClass::Test,
                "Jig" if word == "BarclampTest::Jig" => JigClass::Test,
                _ => JigClass::named(word),
            }
        }
    }
}

fn parse_seconds(text: &str) -> Option<u32> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1),
        (at, 'm') => (&text[..at], 60),
        (at, 'h') => (&text[..at], 3600),
        (at, 'd') => (&text[..at], 24 * 3600),
        _ => (text, 1),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u32>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_accept_units() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400)] {
            assert_eq!(parse_seconds(text), Some(seconds), "{text}");
        }
        for text in ["", "s", "-1", "+5", "1.5h", "5 m", "99999999d", "ä", "5M"] {
            assert_eq!(parse_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn suggested_flags_are_valid() {
        for word in FLAGS {
            let mut flags = Flags::default();
            *flag(&mut flags, word).expect(word) = true;
            assert_ne!(flags, Flags::default(), "{word}");
        }
    }
}
