//! Links drafts to barclamps: resolves references between files and computes each role's final
//! content and hash.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::cycle::{self, Target};
use super::finding::{At, Finding, Findings, Report, Severity, suggestion_for};
use super::form::{Draft, DraftRole, Named};
use super::{MAX_FILES, form};
use crate::canonical::{Hash, Object, ObjectKind};
use crate::catalog::{Attrib, Barclamp, Catalog, ConcurrencyGroupMode, Jig, JigClass, Role};
use crate::ids::{AttribName, BarclampName, ConcurrencyGroupName, JigName, RoleName};

/// Maximum number of roles visited in search of redundant `requires`. All known sets need far
/// fewer. Above the limit, the linker omits notes, because such a file is made to cost time.
const MAX_CONSIDERED: usize = 100_000;

/// The result of a set of files: the objects to store and the barclamps that they form.
#[derive(Debug, Clone)]
pub struct Import {
    /// Ordered by name.
    pub barclamps: Vec<ImportedBarclamp>,
    /// Scripts, then roles, then barclamps. Each hash appears once.
    pub objects: Vec<Object>,
    /// Warnings and notes.
    pub findings: Findings,
}

/// A barclamp and its roles, parsed from their stored bytes.
#[derive(Debug, Clone)]
pub struct ImportedBarclamp {
    /// The file that defines it; the first if a root and a child define it together.
    pub file: String,
    /// The hash of the barclamp's object.
    pub hash: Hash,
    pub barclamp: Barclamp,
    /// Ordered by name.
    pub roles: Vec<Role>,
}

/// Builds barclamps from drafts that belong together.
///
/// `base` contains the barclamps whose jigs, roles and attributes the set may refer to, at most one
/// version of each. A barclamp that the set itself contains is ignored in `base`. The linker uses
/// `base` only to validate references, never for content. The same files thus give the same content
/// regardless of earlier imports. Binding therefore looks up the client role of a jig again.
/// Content that a role must state itself (its jig's class) must be in the set.
///
/// # Errors
/// All findings, with at least one error.
pub fn link(drafts: &[Draft], base: &Catalog) -> Result<Import, Findings> {
    check_size(drafts)?;
    let mut linker = Linker::new(drafts, base);
    linker.check_names();
    linker.check_children();
    linker.check_concurrency_groups();
    linker.check_jigs();
    linker.check_attribs();
    let needs = linker.needs();
    linker.check_cycles(&needs);
    linker.note_redundant_requirements();
    linker.note_virtual_names();
    let built = linker.build();
    linker.report.settle(|findings| built.with(findings))
}

fn check_size(drafts: &[Draft]) -> Result<(), Findings> {
    match drafts.get(MAX_FILES) {
        Some(surplus) => Err(too_many(drafts.len(), &surplus.path)),
        None => Ok(()),
    }
}

/// The error for a set with too many files. `surplus` is the first file over the limit.
pub(super) fn too_many(count: usize, surplus: &str) -> Findings {
    Findings(vec![Finding {
        severity: Severity::Error,
        file: surplus.to_owned(),
        line: At::START.line,
        column: At::START.column,
        message: format!("The set has {count} files, and the limit is {MAX_FILES}"),
        suggestion: None,
    }])
}

/// The result of a set, before the check for errors.
#[derive(Default)]
struct Built {
    scripts: BTreeMap<Hash, Object>,
    roles: BTreeMap<Hash, (Role, Object)>,
    barclamps: Vec<(String, Barclamp, Object)>,
}

impl Built {
    fn with(self, findings: Findings) -> Import {
        let barclamps = self.barclamps.iter().map(|(file, barclamp, object)| {
            let role = |hash| self.roles.get(hash).map(|(role, _)| role.clone());
            ImportedBarclamp {
                file: file.clone(),
                hash: object.hash,
                barclamp: barclamp.clone(),
                roles: barclamp.roles.values().filter_map(role).collect(),
            }
        });
        let barclamps = barclamps.collect();
        let roles = self.roles.into_values().map(|(_, object)| object);
        let documents = self.barclamps.into_iter().map(|(_, _, object)| object);
        Import {
            barclamps,
            objects: self.scripts.into_values().chain(roles).chain(documents).collect(),
            findings,
        }
    }
}

/// A value and its object. The value is parsed from the object's bytes, so that both agree.
fn stored<T: Serialize + DeserializeOwned>(
    kind: ObjectKind,
    value: &T,
) -> Result<(T, Object), serde_json::Error> {
    let object = Object::of(kind, value)?;
    Ok((serde_json::from_slice(&object.body)?, object))
}

fn values<'n, T: Clone + 'n>(named: &'n [Named<T>]) -> impl Iterator<Item = T> + 'n {
    named.iter().map(|named| named.value.clone())
}

/// The place of a declaration: in a file of the set, or in the base catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    File(usize),
    Base,
}

struct KnownJig<'a> {
    class: &'a JigClass,
    client_role: Option<&'a RoleName>,
    origin: Origin,
}

/// A role of the set or of the base, identified by its index in [`Linker::roles`].
enum KnownRole<'a> {
    New { file: usize, role: &'a DraftRole },
    Base(&'a Role),
}

impl<'a> KnownRole<'a> {
    fn name(&self) -> &'a RoleName {
        match self {
            Self::New { role, .. } => &role.name,
            Self::Base(role) => &role.name,
        }
    }

    fn is_implicit(&self) -> bool {
        match self {
            Self::New { role, .. } => role.flags.implicit,
            Self::Base(role) => role.flags.implicit,
        }
    }

    fn requires(&self) -> Box<dyn Iterator<Item = &RoleName> + '_> {
        match self {
            Self::New { role, .. } => {
                Box::new(role.requires.iter().map(|required| &required.value))
            }
            Self::Base(role) => Box::new(role.requires.iter()),
        }
    }
}

struct Linker<'a> {
    drafts: &'a [Draft],
    report: Report,
    /// Whether any file of the set is in OpenCrowbar's or Digital Rebar's format. Then the whole
    /// set is, because not every such file has a key that identifies its format.
    foreign: bool,
    /// The barclamp of each file; `None` for a root that only lists others.
    belongs: Vec<Option<BarclampName>>,
    jigs: BTreeMap<&'a JigName, KnownJig<'a>>,
    base_jigs: BTreeMap<&'a JigName, KnownJig<'a>>,
    /// Roles of the set first, in the order of the files.
    roles: Vec<KnownRole<'a>>,
    by_name: BTreeMap<&'a RoleName, usize>,
    /// For names that are not roles: the roles that provide them.
    providers: BTreeMap<&'a RoleName, Vec<usize>>,
    /// The role that owns an attribute; `None` for a node attribute.
    attribs: BTreeMap<&'a AttribName, Option<usize>>,
    /// Number of roles of the set that require a name.
    required: BTreeMap<&'a RoleName, usize>,
    /// Required names that no role has. Each is reported once.
    missing: BTreeSet<RoleName>,
}

/// Why a role waits for another, for messages.
#[derive(Debug, Clone)]
enum DependencyKind {
    Requires,
    Jig(JigName),
    Wants(AttribName),
    Preceeds,
}

/// A need of a role, with its position if a file of the set declares it.
struct Dependency {
    kind: DependencyKind,
    place: Option<(usize, At)>,
}

struct Graph {
    needs: cycle::Needs,
    /// Parallel to the targets of `needs`.
    reasons: Vec<Vec<Dependency>>,
}

impl<'a> Linker<'a> {
    fn new(drafts: &'a [Draft], base: &'a Catalog) -> Self {
        let mut report = Report::default();
        for draft in drafts {
            report.extend(draft.findings());
        }
        let mut linker = Self {
            drafts,
            report,
            foreign: drafts.iter().any(|draft| draft.foreign),
            belongs: Vec::new(),
            jigs: BTreeMap::new(),
            base_jigs: BTreeMap::new(),
            roles: Vec::new(),
            by_name: BTreeMap::new(),
            providers: BTreeMap::new(),
            attribs: BTreeMap::new(),
            required: BTreeMap::new(),
            missing: BTreeSet::new(),
        };
        linker.belongs = (0..drafts.len()).map(|file| linker.owner(file)).collect();
        let replaced: BTreeSet<BarclampName> = linker.belongs.iter().flatten().cloned().collect();
        linker.collect_set();
        linker.collect_base(base, &replaced);
        linker.collect_provided();
        linker
    }

    fn add_finding(
        &mut self,
        severity: Severity,
        file: usize,
        at: At,
        message: String,
        near: Option<String>,
    ) {
        self.report.add(Finding {
            severity,
            file: self.drafts[file].path.clone(),
            line: at.line,
            column: at.column,
            message,
            suggestion: near.map(suggestion_for),
        });
    }

    fn add_finding_with_advice(
        &mut self,
        severity: Severity,
        file: usize,
        at: At,
        message: String,
        advice: String,
    ) {
        self.report.add(Finding {
            severity,
            file: self.drafts[file].path.clone(),
            line: at.line,
            column: at.column,
            message,
            suggestion: Some(advice),
        });
    }

    fn error(&mut self, file: usize, at: At, message: String) {
        self.add_finding(Severity::Error, file, at, message, None);
    }

    /// The severity of a violation that is an error in Gantry's own format only.
    fn strict(&self) -> Severity {
        match self.foreign {
            true => Severity::Warning,
            false => Severity::Error,
        }
    }

    /// The severity of an undefined name. In other systems, the root files declare the jigs, and a
    /// set without any depends on such a root. If `base` has no root either, the name is likely
    /// defined there.
    fn absent(&self) -> Severity {
        match self.foreign && self.jigs.is_empty() && self.base_jigs.is_empty() {
            true => Severity::Note,
            false => self.strict(),
        }
    }

    /// The barclamp that a file declares, or the one named after the file.
    fn owner(&mut self, file: usize) -> Option<BarclampName> {
        let draft = &self.drafts[file];
        if let Some(name) = &draft.name {
            return Some(name.value.clone());
        }
        if draft.roles.is_empty() && draft.jigs.is_empty() && draft.attribs.is_empty() {
            return None;
        }
        match BarclampName::parse(draft.stem()) {
            Ok(name) => Some(name),
            Err(error) => {
                let message = format!(
                    "The file names no barclamp, and its file name cannot be used instead: {error}"
                );
                self.error(file, At::START, message);
                None
            }
        }
    }

    fn collect_set(&mut self) {
        let drafts = self.drafts;
        for (file, draft) in drafts.iter().enumerate() {
            for role in &draft.roles {
                self.roles.push(KnownRole::New { file, role });
                let number = self.roles.len() - 1;
                self.by_name.entry(&role.name).or_insert(number);
                for required in &role.requires {
                    *self.required.entry(&required.value).or_default() += 1;
                }
            }
            for attrib in &draft.attribs {
                self.attribs.entry(&attrib.value.name).or_insert(None);
            }
            for jig in &draft.jigs {
                self.jigs.entry(&jig.name).or_insert(KnownJig {
                    class: &jig.class,
                    client_role: jig.client_role.as_ref().map(|role| &role.value),
                    origin: Origin::File(file),
                });
            }
        }
        for (number, role) in self.roles.iter().enumerate() {
            if let KnownRole::New { role, .. } = role {
                for attrib in &role.attribs {
                    self.attribs.entry(&attrib.value.name).or_insert(Some(number));
                }
            }
        }
    }

    fn collect_base(&mut self, base: &'a Catalog, replaced: &BTreeSet<BarclampName>) {
        for (_, barclamp) in base.barclamps() {
            if replaced.contains(&barclamp.name) {
                continue;
            }
            for attrib in &barclamp.attribs {
                self.attribs.entry(&attrib.name).or_insert(None);
            }
            for (name, jig) in &barclamp.jigs {
                self.base_jigs.entry(name).or_insert(KnownJig {
                    class: &jig.class,
                    client_role: jig.client_role.as_ref(),
                    origin: Origin::Base,
                });
            }
        }
        for (_, role) in base.roles() {
            if role.gathers.is_some()
                || replaced.contains(&role.barclamp)
                || self.by_name.contains_key(&role.name)
            {
                continue;
            }
            self.roles.push(KnownRole::Base(role));
            let number = self.roles.len() - 1;
            self.by_name.insert(&role.name, number);
            for attrib in &role.attribs {
                self.attribs.entry(&attrib.name).or_insert(Some(number));
            }
        }
    }

    fn collect_provided(&mut self) {
        for (number, role) in self.roles.iter().enumerate() {
            let provided: Vec<&RoleName> = match role {
                KnownRole::New { role, .. } => role.provides.iter().map(|p| &p.value).collect(),
                KnownRole::Base(role) => role.provides.iter().collect(),
            };
            for name in provided {
                if !self.by_name.contains_key(name) {
                    self.providers.entry(name).or_default().push(number);
                }
            }
        }
    }

    /// Reports barclamps and roles whose name is already in use.
    fn check_names(&mut self) {
        let mut barclamps: BTreeMap<&BarclampName, usize> = BTreeMap::new();
        let mut twice = Vec::new();
        for (file, draft) in self.drafts.iter().enumerate() {
            let Some(name) = &draft.name else { continue };
            match barclamps.get(&name.value) {
                Some(first) => twice.push((
                    file,
                    name.at,
                    format!(
                        "Barclamp \"{}\" is declared twice. The first declaration is in {}",
                        name.value, self.drafts[*first].path
                    ),
                )),
                None => {
                    barclamps.insert(&name.value, file);
                }
            }
        }
        for role in &self.roles {
            let KnownRole::New { file, role } = role else { continue };
            let first = self.by_name.get(&role.name).map(|number| &self.roles[*number]);
            if let Some(KnownRole::New { file: first_file, role: first }) = first
                && !std::ptr::eq(*first, *role)
            {
                twice.push((
                    *file,
                    role.at,
                    format!(
                        "Role \"{}\" is declared twice. The first declaration is at {}:{}",
                        role.name, self.drafts[*first_file].path, first.at.line
                    ),
                ));
            }
        }
        for (file, at, message) in twice {
            self.error(file, at, message);
        }
    }

    /// Reports files that a root lists and that do not exist.
    fn check_children(&mut self) {
        let present: BTreeSet<BarclampName> = self.belongs.iter().flatten().cloned().collect();
        for (file, draft) in self.drafts.iter().enumerate() {
            for child in &draft.children {
                if !present.contains(&child.name) {
                    let message = format!(
                        "Barclamp \"{}\" is listed, but its file is not in the set",
                        child.name
                    );
                    self.add_finding(Severity::Note, file, At::START, message, None);
                }
            }
        }
    }

    /// Checks that all roles of a concurrency group agree on its limit. Roles without a group get
    /// one with their own name.
    fn check_concurrency_groups(&mut self) {
        let mut concurrency_groups: BTreeMap<
            ConcurrencyGroupName,
            (&RoleName, Option<u32>, ConcurrencyGroupMode),
        > = BTreeMap::new();
        let mut wrong = Vec::new();
        for role in &self.roles {
            let KnownRole::New { file, role } = role else { continue };
            let (name, limit, mode) = match &role.run.concurrency_group {
                Some(concurrency_group) => (
                    concurrency_group.name.clone(),
                    Some(concurrency_group.max_running),
                    concurrency_group.mode,
                ),
                None => (
                    ConcurrencyGroupName::of_role(&role.name),
                    None,
                    ConcurrencyGroupMode::default(),
                ),
            };
            match concurrency_groups.get(&name) {
                Some((first, its_limit, its_mode)) if (*its_limit, *its_mode) != (limit, mode) => {
                    wrong.push((
                        *file,
                        role.at,
                        format!(
                            "Role \"{}\" sets another limit or mode for concurrency group \"{name}\" than role \
                             \"{first}\"",
                            role.name
                        ),
                    ));
                }
                Some(_) => {}
                None => {
                    concurrency_groups.insert(name, (&role.name, limit, mode));
                }
            }
        }
        for (file, at, message) in wrong {
            self.error(file, at, message);
        }
    }

    /// Reports conflicting declarations of jigs, invalid client roles, undefined jigs, and roles
    /// whose jig has nothing to run.
    fn check_jigs(&mut self) {
        let drafts = self.drafts;
        for (file, draft) in drafts.iter().enumerate() {
            for jig in &draft.jigs {
                self.check_jig(file, jig);
            }
            for role in &draft.roles {
                self.check_role_jig(file, role);
            }
        }
    }

    fn check_jig(&mut self, file: usize, jig: &'a form::DraftJig) {
        let client = jig.client_role.as_ref().map(|role| &role.value);
        let differs = |known: &KnownJig<'_>| {
            known.origin != Origin::File(file)
                && (*known.class != jig.class || known.client_role != client)
        };
        let other = [self.jigs.get(&jig.name), self.base_jigs.get(&jig.name)]
            .into_iter()
            .flatten()
            .find(|known| differs(known))
            .map(|known| known.origin);
        if let Some(origin) = other {
            let by = match origin {
                Origin::File(other) => self.drafts[other].path.clone(),
                Origin::Base => "the catalog".to_owned(),
            };
            let message = format!(
                "Jig \"{}\" is declared with another class or implementor in {by}",
                jig.name
            );
            self.error(file, jig.at, message);
        }
        let Some(client) = &jig.client_role else { return };
        let found = self.by_name.get(&client.value).map(|number| &self.roles[*number]);
        let (implicit, its_jig) = match found {
            Some(KnownRole::New { role, .. }) => (role.flags.implicit, &role.jig.value),
            Some(KnownRole::Base(role)) => (role.flags.implicit, &role.jig),
            None => {
                let message = format!(
                    "Jig \"{}\" has the implementor \"{}\", which no barclamp has",
                    jig.name, client.value
                );
                let near = self.nearest_role(self.strict(), &client.value);
                return self.add_finding(self.strict(), file, client.at, message, near);
            }
        };
        let message = if *its_jig == jig.name {
            format!(
                "The implementor of jig \"{}\", role \"{}\", needs that jig itself",
                jig.name, client.value
            )
        } else if !implicit {
            format!(
                "The implementor of jig \"{}\", role \"{}\", is not implicit, so it may run on \
                 another node",
                jig.name, client.value
            )
        } else {
            return;
        };
        self.add_finding(self.strict(), file, client.at, message, None);
    }

    fn check_role_jig(&mut self, file: usize, role: &DraftRole) {
        self.check_base_jig(file, role);
        let Some((class, _)) = self.jig(&role.jig.value) else {
            let message = format!(
                "Role \"{}\" uses the jig \"{}\", which no barclamp declares",
                role.name, role.jig.value
            );
            let known = self.jigs.keys().chain(self.base_jigs.keys()).map(|name| name.as_str());
            let known = known.chain(JigClass::names());
            let near = self.report.nearest(self.absent(), role.jig.value.as_str(), known);
            return self.add_finding(self.absent(), file, role.jig.at, message, near);
        };
        if role.run.check.is_some() && class != JigClass::Script {
            let message = format!(
                "Role \"{}\" has a check, but its jig \"{}\" runs no scripts. Remove the check, or use \
                 a jig with class: script",
                role.name, role.jig.value
            );
            self.error(file, role.at, message);
        }
        let has_scripts = !role.scripts.is_empty();
        let runs_scripts = role.scripts.iter().any(|script| script.action.is_run());
        self.check_actions(file, role, &class);
        match class {
            // Other systems have scripts in other folders, so their files come without them.
            // Reviews warn about such roles when they are bound.
            JigClass::Script if !runs_scripts && !self.foreign => {
                let message = format!(
                    "Role \"{}\" has no scripts. Add some to scripts/{}/, or set jig: noop",
                    role.name, role.name
                );
                self.error(file, role.jig.at, message);
            }
            JigClass::Noop | JigClass::Test if has_scripts => {
                let message = format!(
                    "Role \"{}\" has scripts, but its jig \"{}\" runs no scripts",
                    role.name, role.jig.value
                );
                self.add_finding(Severity::Warning, file, role.jig.at, message, None);
            }
            _ => {}
        }
    }

    /// An action without anything to run would look like a removal that happened.
    fn check_actions(&mut self, file: usize, role: &DraftRole, class: &JigClass) {
        for action in &role.actions {
            let has_scripts = role.scripts.iter().any(|script| script.action == *action);
            let message = match class {
                JigClass::Script if !has_scripts => format!(
                    "Role \"{}\" declares the action {action}, which has no scripts. Add some to \
                     scripts/{}/{action}/, or remove it from actions",
                    role.name, role.name
                ),
                JigClass::Noop => format!(
                    "Role \"{}\" declares the action {action}, but its jig \"{}\" runs nothing. \
                     Remove it from actions",
                    role.name, role.jig.value
                ),
                _ => continue,
            };
            self.error(file, role.at, message);
        }
    }

    /// Reports a jig that only the catalog declares. The role's content would not state the jig's
    /// class, so workers would not know that they can run it.
    fn check_base_jig(&mut self, file: usize, role: &DraftRole) {
        let name = &role.jig.value;
        let Some(class) = self.base_jigs.get(name).map(|jig| jig.class.clone()) else { return };
        if matches!(class, JigClass::Other(_)) || self.declared_jig(name).0 == class {
            return;
        }
        let message = format!(
            "Role \"{}\" uses the jig \"{name}\", which only the catalog declares",
            role.name
        );
        let advice = format!("Declare it here too, with class: {}", class.as_str());
        self.add_finding_with_advice(self.strict(), file, role.jig.at, message, advice);
    }

    /// Reports attributes with more than one owner in the set.
    fn check_attribs(&mut self) {
        let mut first: BTreeMap<&AttribName, (usize, At)> = BTreeMap::new();
        let mut twice = Vec::new();
        for (file, draft) in self.drafts.iter().enumerate() {
            let owned = draft.roles.iter().flat_map(|role| &role.attribs);
            for attrib in draft.attribs.iter().chain(owned) {
                match first.get(&attrib.value.name) {
                    Some(place) => twice.push((file, attrib, *place)),
                    None => {
                        first.insert(&attrib.value.name, (file, attrib.at));
                    }
                }
            }
        }
        for (file, attrib, (first_file, first)) in twice {
            let message = format!(
                "Attribute \"{}\" is declared twice. The first declaration is at {}:{}",
                attrib.value.name, self.drafts[first_file].path, first.line
            );
            self.add_finding(self.strict(), file, attrib.at, message, None);
        }
    }

    /// Collects all needs of roles and reports undefined names.
    fn needs(&mut self) -> Graph {
        let mut graph = Graph {
            needs: cycle::Needs { of_role: vec![Vec::new(); self.roles.len()], groups: Vec::new() },
            reasons: (0..self.roles.len()).map(|_| Vec::new()).collect(),
        };
        let mut groups: BTreeMap<&RoleName, usize> = BTreeMap::new();
        for (name, members) in &self.providers {
            groups.insert(name, graph.needs.groups.len());
            graph.needs.groups.push(members.clone());
        }
        for number in 0..self.roles.len() {
            match self.roles[number] {
                KnownRole::New { file, role } => {
                    self.add_dependencies(number, file, role, &groups, &mut graph)
                }
                KnownRole::Base(role) => {
                    self.add_base_dependencies(number, role, &groups, &mut graph)
                }
            }
        }
        graph
    }

    fn add_dependencies(
        &mut self,
        number: usize,
        file: usize,
        role: &DraftRole,
        groups: &BTreeMap<&RoleName, usize>,
        graph: &mut Graph,
    ) {
        for required in &role.requires {
            match self.target(&required.value, groups) {
                Some(target) => {
                    graph.add(number, target, DependencyKind::Requires, Some((file, required.at)))
                }
                None => self.report_missing_requirement(file, role, required),
            }
        }
        if let Some((_, Some(client))) = self.jig(&role.jig.value)
            && *client != role.name
            && let Some(target) = self.target(client, groups)
        {
            let kind = DependencyKind::Jig(role.jig.value.clone());
            graph.add(number, target, kind, Some((file, role.jig.at)));
        }
        for attribute in &role.wants {
            match self.attribs.get(&attribute.value) {
                Some(Some(owner)) if *owner != number => {
                    let kind = DependencyKind::Wants(attribute.value.clone());
                    graph.add(number, Target::Role(*owner), kind, Some((file, attribute.at)));
                }
                Some(_) => {}
                None => {
                    let message = format!(
                        "Role \"{}\" wants the attribute \"{}\", which no barclamp has",
                        role.name, attribute.value
                    );
                    let near = self.report.nearest(
                        self.absent(),
                        attribute.value.as_str(),
                        self.attribs.keys().map(|name| name.as_str()),
                    );
                    let or = "Remove it, or import the barclamp that has it";
                    self.add_finding_with_advice(
                        self.absent(),
                        file,
                        attribute.at,
                        message,
                        near.map_or_else(|| or.into(), suggestion_for),
                    );
                }
            }
        }
        for later in &role.preceeds {
            match self.by_name.get(&later.value) {
                Some(other) => graph.add(
                    *other,
                    Target::Role(number),
                    DependencyKind::Preceeds,
                    Some((file, later.at)),
                ),
                None if self.providers.contains_key(&later.value) => {}
                None => self.report_undefined_name(file, self.lenient(), role, "preceeds", later),
            }
        }
        for other in &role.conflicts {
            if self.target(&other.value, groups).is_none() {
                self.report_undefined_name(file, self.lenient(), role, "conflicts with", other);
            }
        }
    }

    fn add_base_dependencies(
        &self,
        number: usize,
        role: &Role,
        groups: &BTreeMap<&RoleName, usize>,
        graph: &mut Graph,
    ) {
        for required in &role.requires {
            if let Some(target) = self.target(required, groups) {
                graph.add(number, target, DependencyKind::Requires, None);
            }
        }
        if let Some((_, Some(client))) = self.jig(&role.jig)
            && *client != role.name
            && !role.requires.contains(client)
            && let Some(target) = self.target(client, groups)
        {
            graph.add(number, target, DependencyKind::Jig(role.jig.clone()), None);
        }
        for attribute in &role.wants {
            if let Some(Some(owner)) = self.attribs.get(attribute)
                && *owner != number
            {
                graph.add(
                    number,
                    Target::Role(*owner),
                    DependencyKind::Wants(attribute.clone()),
                    None,
                );
            }
        }
        for later in &role.preceeds {
            if let Some(other) = self.by_name.get(later) {
                graph.add(*other, Target::Role(number), DependencyKind::Preceeds, None);
            }
        }
    }

    /// Reports an undefined name once, at its first use, with the number of further uses. The other
    /// uses get a note.
    fn report_missing_requirement(
        &mut self,
        file: usize,
        role: &DraftRole,
        required: &Named<RoleName>,
    ) {
        let message = format!(
            "Role \"{}\" requires \"{}\", which no barclamp has",
            role.name, required.value
        );
        let known = self.missing.contains(&required.value);
        if known && self.foreign {
            self.add_finding(Severity::Note, file, required.at, message, None);
            return;
        }
        self.missing.insert(required.value.clone());
        let severity = self.absent();
        let near = self.nearest_role(severity, &required.value);
        let advice = match near {
            Some(near) => suggestion_for(near),
            None if form::is_flag(required.value.as_str()) => {
                "This is a flag. Move it to flags".to_owned()
            }
            None => "Remove it, or import the barclamp that has it".to_owned(),
        };
        let others = self.required.get(&required.value).map_or(0, |count| count - 1);
        let message = match others {
            0 => message,
            _ if !self.foreign => message,
            1 => format!("{message}. Another role requires it too"),
            n => format!("{message}. {n} other roles require it too"),
        };
        self.add_finding_with_advice(severity, file, required.at, message, advice);
    }

    /// Notes redundant requirements: another required role already adds the role on a suitable
    /// node. An implicit role is added on the same node only, so only a path of implicit roles
    /// makes it redundant.
    fn note_redundant_requirements(&mut self) {
        let (mut implied, mut left) = (Vec::new(), MAX_CONSIDERED);
        for known in &self.roles {
            let KnownRole::New { file, role } = known else { continue };
            for required in &role.requires {
                if left == 0 {
                    break;
                }
                // Undefined names are already reported.
                if !self.by_name.contains_key(&required.value) {
                    continue;
                }
                let others = role.requires.iter().filter(|other| other.value != required.value);
                let by = others
                    .map(|other| &other.value)
                    .find(|other| left > 0 && self.implies(other, &required.value, &mut left));
                if let Some(by) = by {
                    let message = format!(
                        "Role \"{}\" requires \"{}\", which \"{by}\" already adds",
                        role.name, required.value
                    );
                    implied.push((*file, required.at, message));
                }
            }
        }
        for (file, at, message) in implied {
            self.add_finding_with_advice(
                Severity::Note,
                file,
                at,
                message,
                "You can remove it, unless you need the one on the same node".to_owned(),
            );
        }
    }

    /// Notes provided names that are not roles. This is the purpose of `provides`, but a typo looks
    /// the same.
    fn note_virtual_names(&mut self) {
        let mut found = Vec::new();
        for known in &self.roles {
            let KnownRole::New { file, role } = known else { continue };
            for provided in
                role.provides.iter().filter(|provided| self.providers.contains_key(&provided.value))
            {
                let message = format!(
                    "Role \"{}\" provides \"{}\", which is not the name of a role",
                    role.name, provided.value
                );
                found.push((*file, provided.at, message));
            }
        }
        for (file, at, message) in found {
            let advice = "This is a virtual name, which other roles can require".to_owned();
            self.add_finding_with_advice(Severity::Note, file, at, message, advice);
        }
    }

    /// Whether requiring `from` also adds `to`.
    fn implies(&self, from: &RoleName, to: &RoleName, left: &mut usize) -> bool {
        *left = left.saturating_sub(1);
        let same_node =
            self.by_name.get(to).is_some_and(|number| self.roles[*number].is_implicit());
        let (mut open, mut seen) = (vec![from.clone()], BTreeSet::new());
        while let Some(name) = open.pop() {
            let Some(role) = self.by_name.get(&name).map(|number| &self.roles[*number]) else {
                continue;
            };
            if same_node && !role.is_implicit() {
                continue;
            }
            for next in role.requires() {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                if next == to {
                    return true;
                }
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        false
    }

    /// The severity of an undefined name that is allowed but has no effect.
    fn lenient(&self) -> Severity {
        match self.foreign {
            true => Severity::Note,
            false => Severity::Warning,
        }
    }

    fn report_undefined_name(
        &mut self,
        file: usize,
        severity: Severity,
        role: &DraftRole,
        verb: &str,
        name: &Named<RoleName>,
    ) {
        let message =
            format!("Role \"{}\" {verb} \"{}\", which no barclamp has", role.name, name.value);
        let near = self.nearest_role(severity, &name.value);
        self.add_finding(severity, file, name.at, message, near);
    }

    fn nearest_role(&self, severity: Severity, name: &RoleName) -> Option<String> {
        let known = self.by_name.keys().chain(self.providers.keys());
        self.report.nearest(severity, name.as_str(), known.map(|name| name.as_str()))
    }

    fn target(&self, name: &RoleName, groups: &BTreeMap<&RoleName, usize>) -> Option<Target> {
        match self.by_name.get(name) {
            Some(number) => Some(Target::Role(*number)),
            None => groups.get(name).map(|group| Target::AnyOf(*group)),
        }
    }

    /// The class and client role of a jig, from the set, from the catalog or built in.
    fn jig(&self, name: &JigName) -> Option<(JigClass, Option<&'a RoleName>)> {
        let known = self.jigs.get(name).or_else(|| self.base_jigs.get(name));
        match known {
            Some(jig) => Some((jig.class.clone(), jig.client_role)),
            None => JigClass::built_in(name.as_str()).map(|class| (class, None)),
        }
    }

    /// The class and client role of a jig as the set declares it. An undeclared jig has the
    /// built-in class of that name, if any.
    fn declared_jig(&self, name: &JigName) -> (JigClass, Option<&'a RoleName>) {
        match self.jigs.get(name) {
            Some(jig) => (jig.class.clone(), jig.client_role),
            None => (JigClass::named(name.as_str()), None),
        }
    }

    fn check_cycles(&mut self, graph: &Graph) {
        for hops in cycle::cycles(&graph.needs) {
            let name = |number: usize| self.roles[number].name();
            let mut path = String::new();
            for (role, need) in &hops {
                path += name(*role).as_str();
                path += &match &graph.reasons[*role][*need].kind {
                    DependencyKind::Requires => " -> ".to_owned(),
                    DependencyKind::Jig(jig) => format!(" -(jig {jig})-> "),
                    DependencyKind::Wants(attrib) => format!(" -(wants {attrib})-> "),
                    DependencyKind::Preceeds => " -(is preceeded by)-> ".to_owned(),
                };
            }
            path += name(hops[0].0).as_str();
            let place = hops.iter().find_map(|(role, need)| graph.reasons[*role][*need].place);
            // A cycle without a position is in the base alone, and cannot be fixed in these files.
            if let Some((file, at)) = place {
                self.error(file, at, format!("Roles wait for each other in a cycle: {path}"));
            }
        }
    }

    fn build(&mut self) -> Built {
        let mut built = Built::default();
        for (name, files) in self.files_by_barclamp() {
            let mut barclamp = self.described(&name, &files);
            let path =
                files.first().map(|file| self.drafts[*file].path.clone()).unwrap_or_default();
            for file in files {
                let draft = &self.drafts[file];
                built.scripts.extend(draft.scripts.clone());
                for role in &draft.roles {
                    match stored(ObjectKind::Role, &self.role(role, &name)) {
                        Ok((content, object)) => {
                            barclamp.roles.insert(role.name.clone(), object.hash);
                            self.build_barrier(file, role, &content, &mut built);
                            built.roles.insert(object.hash, (content, object));
                        }
                        Err(error) => {
                            let message =
                                format!("Role \"{}\" cannot be stored: {error}", role.name);
                            self.error(file, role.at, message);
                        }
                    }
                }
            }
            match stored(ObjectKind::Barclamp, &barclamp) {
                Ok((barclamp, object)) => built.barclamps.push((path, barclamp, object)),
                Err(error) => {
                    let message = format!("Barclamp \"{name}\" cannot be stored: {error}");
                    self.error(0, At::START, message);
                }
            }
        }
        built
    }

    /// Stores a cluster role's barrier with it. Noderoles pin the barrier like any other role.
    fn build_barrier(&mut self, file: usize, draft: &DraftRole, content: &Role, built: &mut Built) {
        let Some(barrier) = content.barrier() else { return };
        if self.by_name.contains_key(&barrier.name) {
            let message = format!(
                "Role \"{}\" is a cluster, and its barrier needs the name \"{}\". Rename the role \
                 with that name",
                draft.name, barrier.name
            );
            self.error(file, draft.at, message);
            return;
        }
        match stored(ObjectKind::Role, &barrier) {
            Ok((content, object)) => drop(built.roles.insert(object.hash, (content, object))),
            Err(error) => self.error(
                file,
                draft.at,
                format!("The barrier of role \"{}\" cannot be stored: {error}", draft.name),
            ),
        }
    }

    /// The files of each barclamp by its name. Usually one; two if a root and its child have the
    /// same name.
    fn files_by_barclamp(&self) -> BTreeMap<BarclampName, Vec<usize>> {
        let mut files: BTreeMap<BarclampName, Vec<usize>> = BTreeMap::new();
        for (file, name) in self.belongs.iter().enumerate() {
            if let Some(name) = name {
                files.entry(name.clone()).or_default().push(file);
            }
        }
        files
    }

    /// A barclamp without its roles.
    fn described(&mut self, name: &BarclampName, files: &[usize]) -> Barclamp {
        let mut barclamp = Barclamp {
            name: name.clone(),
            version: String::new(),
            display: String::new(),
            description: String::new(),
            roles: BTreeMap::new(),
            jigs: BTreeMap::new(),
            attribs: Vec::new(),
            metadata: Value::Object(Map::new()),
        };
        for file in files {
            self.describe(*file, &mut barclamp);
        }
        if barclamp.version.is_empty() {
            barclamp.version = self.inherited_version(files, name);
        }
        barclamp
    }

    fn describe(&self, file: usize, barclamp: &mut Barclamp) {
        let draft = &self.drafts[file];
        let take = |into: &mut String, from: &str| {
            if into.is_empty() {
                from.clone_into(into);
            }
        };
        take(&mut barclamp.version, draft.version.as_deref().unwrap_or(""));
        take(&mut barclamp.display, &draft.display);
        take(&mut barclamp.description, &draft.description);
        if let Some(child) = self.listing(&barclamp.name).map(|(_, child)| child) {
            take(&mut barclamp.description, &child.description);
        }
        barclamp.jigs.extend(draft.jigs.iter().map(|jig| {
            let client_role = jig.client_role.as_ref().map(|role| role.value.clone());
            let content =
                Jig { class: jig.class.clone(), description: jig.description.clone(), client_role };
            (jig.name.clone(), content)
        }));
        barclamp.attribs.extend(values(&draft.attribs));
        if let Value::Object(metadata) = &mut barclamp.metadata {
            for (key, value) in &draft.metadata {
                metadata.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }

    /// The root that lists a barclamp as its child.
    fn listing(&self, name: &BarclampName) -> Option<(&'a Draft, &'a form::Child)> {
        self.drafts.iter().find_map(|draft| {
            let child = draft.children.iter().find(|child| child.name == *name)?;
            Some((draft, child))
        })
    }

    /// The version of the root that lists it, or of its parent, or "0".
    fn inherited_version(&mut self, files: &[usize], name: &BarclampName) -> String {
        let listed = self.listing(name).and_then(|(root, _)| root.version.clone());
        let parent = || {
            let parent = files.iter().find_map(|file| self.drafts[*file].parent.as_deref())?;
            let named = |draft: &&Draft| {
                let name = draft.name.as_ref();
                name.is_some_and(|name| name.value.as_str() == parent)
            };
            self.drafts.iter().find(named)?.version.clone()
        };
        if let Some(version) = listed.or_else(parent) {
            return version;
        }
        let file = files.first().copied().unwrap_or(0);
        let at = self.drafts[file].name.as_ref().map_or(At::START, |name| name.at);
        let message = format!("Barclamp \"{name}\" has no version, so \"0\" is used");
        self.add_finding(Severity::Note, file, at, message, None);
        "0".to_owned()
    }

    fn role(&self, draft: &DraftRole, barclamp: &BarclampName) -> Role {
        let (jig_class, client) = self.declared_jig(&draft.jig.value);
        let mut requires: Vec<RoleName> = values(&draft.requires).collect();
        if let Some(client) = client
            && *client != draft.name
            && !requires.contains(client)
        {
            requires.push(client.clone());
        }
        Role {
            name: draft.name.clone(),
            barclamp: barclamp.clone(),
            jig: draft.jig.value.clone(),
            jig_class,
            description: draft.description.clone(),
            flags: draft.flags.clone(),
            requires,
            provides: values(&draft.provides).collect(),
            conflicts: values(&draft.conflicts).collect(),
            preceeds: values(&draft.preceeds).collect(),
            wants: values(&draft.wants).collect(),
            template: draft.template.clone(),
            attribs: values::<Attrib>(&draft.attribs).collect(),
            run: draft.run.clone(),
            actions: draft.actions.clone(),
            scripts: draft.scripts.clone(),
            gathers: None,
            metadata: Value::Object(draft.metadata.clone()),
        }
    }
}

impl Graph {
    fn add(
        &mut self,
        role: usize,
        target: Target,
        kind: DependencyKind,
        place: Option<(usize, At)>,
    ) {
        self.needs.of_role[role].push(target);
        self.reasons[role].push(Dependency { kind, place });
    }
}
