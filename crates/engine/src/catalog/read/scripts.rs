//! Reads the scripts of a barclamp's folder.
//!
//! A role's scripts are the files in `scripts/<role>/`, ordered by name (`10-configure`,
//! `20-start`), or those that its `scripts` key lists. The list contains names in that folder, or
//! paths below `scripts/` for files that several roles share. All these scripts form one step.
//!
//! The scripts of another action that the role declares are the files in
//! `scripts/<role>/<action>/`, also ordered by name. Their names contain that folder
//! (`remove/10-stop`).

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{At, Severity, quoted, unseen};
use super::form::Reader;
use super::{MAX_SCRIPTS_BYTES, Source};
use crate::canonical::{Hash, Object, ObjectKind};
use crate::catalog::{MAX_SCRIPT_BYTES, Script};
use crate::ids::{ActionName, MAX_NAME, RoleName};
use crate::text::{DeceptiveText, REVIEW_ADVICE, deceptive_character};

const ROOT: &str = "scripts/";

/// The files below `scripts/` in a folder. Paths are relative to the folder.
pub(super) struct ScriptFolder<'a> {
    files: &'a BTreeMap<String, Vec<u8>>,
    folder: &'a str,
    /// Files already checked, so that each is checked and reported once. `None`: invalid.
    checked: BTreeMap<&'a str, Option<(Hash, &'a [u8])>>,
}

impl<'a> ScriptFolder<'a> {
    pub(super) fn new(source: &Source<'a>, reader: &mut Reader<'_>) -> Self {
        let folder = Self { files: source.files, folder: source.folder, checked: BTreeMap::new() };
        let bytes: usize = folder.below(ROOT).map(|(_, body)| body.len()).sum();
        if bytes > MAX_SCRIPTS_BYTES {
            reader.error(
                At::START,
                format!(
                    "The scripts have {bytes} bytes, and the limit for one barclamp is \
                     {MAX_SCRIPTS_BYTES}"
                ),
            );
        }
        for (path, _) in folder.below(ROOT) {
            if let Some(c) = deceptive_character(path) {
                reader.in_file(
                    Severity::Error,
                    path,
                    format!("The path of the file has {}", unseen(c)),
                    None,
                );
            }
        }
        folder
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let (prefix, folder) = (format!("{}{prefix}", self.folder), self.folder.len());
        self.files
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(move |(path, body)| (&path[folder..], body.as_slice()))
    }

    /// All scripts in the role's own folder, by name.
    pub(super) fn all_of(&mut self, role: &RoleName, reader: &mut Reader<'_>) -> Vec<Script> {
        let folder = format!("{ROOT}{role}/");
        self.below(&folder)
            .filter(|(path, _)| !is_leftover(path) && !path[folder.len()..].contains('/'))
            .filter_map(|(path, body)| self.script(path, body, reader))
            .collect()
    }

    /// All scripts in the folder of one of the role's actions, by name.
    pub(super) fn all_of_action(
        &mut self,
        role: &RoleName,
        action: &ActionName,
        reader: &mut Reader<'_>,
    ) -> Vec<Script> {
        let folder = format!("{ROOT}{role}/{action}/");
        let found = self
            .below(&folder)
            .filter(|(path, _)| !is_leftover(path) && !path[folder.len()..].contains('/'))
            .filter_map(|(path, body)| self.script(path, body, reader));
        let in_folder = |script: Script| Script {
            name: format!("{action}/{}", script.name),
            action: action.clone(),
            ..script
        };
        found.map(in_folder).collect()
    }

    /// Reports a folder of scripts for an action that the role does not declare.
    pub(super) fn check_undeclared(
        &self,
        role: &RoleName,
        action: &ActionName,
        at: At,
        reader: &mut Reader<'_>,
    ) {
        let folder = format!("{ROOT}{role}/{action}/");
        if self.below(&folder).next().is_some() {
            reader.add_finding_with_advice(
                Severity::Warning,
                at,
                format!(
                    "Role \"{role}\" does not declare the action {action}, so the scripts in {} \
                     never run",
                    quoted(&folder)
                ),
                format!("Add actions: [{action}] to the role, or delete the folder"),
            );
        }
    }

    /// The script that an entry of the role's list names.
    pub(super) fn one_of(
        &mut self,
        role: &RoleName,
        file: &str,
        at: At,
        reader: &mut Reader<'_>,
    ) -> Option<Script> {
        let own = format!("{ROOT}{role}/{file}");
        let shared = format!("{ROOT}{file}");
        let Some((path, body)) = [&own, &shared].into_iter().find_map(|path| self.file(path))
        else {
            let folder = format!("{ROOT}{role}/");
            let files = self.below(&folder).map(|(path, _)| &path[folder.len()..]);
            let near = reader.nearest(Severity::Error, file, files);
            reader.error_with_suggestion(
                at,
                format!(
                    "Role \"{role}\" lists the script {}, but neither {} nor {} exists",
                    quoted(file),
                    quoted(&own),
                    quoted(&shared)
                ),
                near,
            );
            return None;
        };
        self.script(path, body, reader)
    }

    fn file(&self, path: &str) -> Option<(&'a str, &'a [u8])> {
        let (path, body) = self.files.get_key_value(&format!("{}{path}", self.folder))?;
        Some((&path[self.folder.len()..], body))
    }

    /// Reports folders that belong to no role.
    pub(super) fn check_folders(&self, roles: &BTreeMap<RoleName, u32>, reader: &mut Reader<'_>) {
        let folders: BTreeSet<&str> = self
            .below(ROOT)
            .filter(|(path, _)| !self.checked.contains_key(path))
            .filter_map(|(path, _)| path[ROOT.len()..].split_once('/'))
            .map(|(folder, _)| folder)
            .filter(|folder| roles.keys().all(|role| role.as_str() != *folder))
            .collect();
        for folder in folders {
            let near =
                reader.nearest(Severity::Warning, folder, roles.keys().map(RoleName::as_str));
            let path = format!("{ROOT}{folder}");
            reader.in_file(
                Severity::Warning,
                &path,
                format!("The scripts in {} belong to no role", quoted(&path)),
                near,
            );
        }
    }

    /// The bytes of these scripts as objects.
    pub(super) fn objects<'s>(
        &self,
        scripts: impl Iterator<Item = &'s Script>,
    ) -> BTreeMap<Hash, Object> {
        let required: BTreeSet<Hash> = scripts.map(|script| script.hash).collect();
        let taken: BTreeMap<Hash, &[u8]> = self.checked.values().flatten().copied().collect();
        let object = |body: &[u8]| Object::of_bytes(ObjectKind::Script, body.to_vec());
        required.iter().filter_map(|hash| Some((*hash, object(taken.get(hash)?)))).collect()
    }

    fn script(&mut self, path: &'a str, body: &'a [u8], reader: &mut Reader<'_>) -> Option<Script> {
        let name = file_name(path);
        let taken = *self
            .checked
            .entry(path)
            .or_insert_with(|| check(path, body, reader).map(|hash| (hash, body)));
        taken.map(|(hash, _)| Script { name: name.to_owned(), hash, action: ActionName::run() })
    }
}

/// The hash of a valid script. Reports an invalid one.
fn check(path: &str, body: &[u8], reader: &mut Reader<'_>) -> Option<Hash> {
    let name = file_name(path);
    let mut add_finding = |severity, message: String| reader.in_file(severity, path, message, None);
    if !is_name(name) {
        add_finding(
            Severity::Error,
            "The name of a script must consist of letters, digits, '-', '_' and '.', and start \
             with a letter or digit"
                .into(),
        );
        return None;
    }
    if body.len() > MAX_SCRIPT_BYTES {
        add_finding(
            Severity::Error,
            format!("The script has {} bytes, and the limit is {MAX_SCRIPT_BYTES}", body.len()),
        );
        return None;
    }
    let first_line = body.split(|byte| *byte == b'\n').next().unwrap_or(body);
    if !first_line.starts_with(b"#!") {
        add_finding(
            Severity::Warning,
            "The script does not name its interpreter. Its first line should be like #!/bin/sh"
                .into(),
        );
    } else if first_line.ends_with(b"\r") {
        add_finding(
            Severity::Error,
            "The first line ends in a carriage return, so the interpreter is not found. Save the \
             script with Unix line ends"
                .into(),
        );
        return None;
    }
    note_invisible_chars(path, body, reader);
    Some(Hash::of_bytes(body))
}

/// Notes invisible characters. A script may need them, so they are no error, but reviewers must
/// know where they are.
fn note_invisible_chars(path: &str, body: &[u8], reader: &mut Reader<'_>) {
    let Some(found) = DeceptiveText::within(body) else { return };
    let at = At { line: found.line, column: found.column };
    let message = format!("The script has {found}");
    reader.finding_at(Severity::Warning, path, at, message, Some(REVIEW_ADVICE.to_owned()));
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a file is a leftover of an editor or operating system.
fn is_leftover(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with('.') || name.ends_with('~')
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
