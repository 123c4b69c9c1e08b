//! Warnings about environment variables that start with `GANTRY_` but are no settings.
//!
//! A misspelled setting has no effect, and the user would not notice. In a file it is an error
//! ([`crate::configuration`]). The environment can contain foreign variables: a container platform
//! sets `GANTRY_PORT` for a service with the name `gantry`. So here it is only a warning. It names
//! the variable but not its value, which may be a secret.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::Command;

use crate::configuration;

/// Prefix of Gantry's variables. `DATABASE_URL` is the only setting without it.
const PREFIX: &str = "GANTRY_";
/// Variables of the client, of scripts on nodes, of builds and of tests. They are no settings.
const OTHER_VARIABLES: [&str; 19] = [
    api::calls::SERVER_VARIABLE,
    api::calls::TOKEN,
    api::calls::SESSION_VARIABLE,
    "GANTRY_CONTEXT",
    "GANTRY_ROOT",
    "GANTRY_NODE",
    "GANTRY_ROLE",
    "GANTRY_RUN",
    "GANTRY_INPUT",
    "GANTRY_OUTPUT",
    "GANTRY_SURROUNDINGS",
    "GANTRY_BIN",
    "GANTRY_CACHE",
    "GANTRY_EMBEDDED_SITE",
    "GANTRY_CORPUS",
    "GANTRY_MAKE_BEGAN",
    "GANTRY_ONE_FILE",
    "GANTRY_WRITE",
    configuration::FILE_VARIABLE,
];
/// Prefixes of open sets of variables: a script's data, tests and benchmarks.
const KNOWN_PREFIXES: [&str; 3] = ["GANTRY_DATA_", "GANTRY_TEST_", "GANTRY_BENCH_"];
/// Maximum number of variables that get a warning of their own.
const MAX_WARNINGS: usize = 20;

/// The warnings for the current environment.
pub fn warnings(command: &Command) -> Vec<String> {
    warnings_of(std::env::vars_os().map(|(name, _)| name), command)
}

fn warnings_of(names: impl Iterator<Item = OsString>, command: &Command) -> Vec<String> {
    let other_variables = OTHER_VARIABLES.into_iter().map(str::to_owned);
    let known: BTreeMap<String, String> = configuration::variables(command)
        .chain(other_variables)
        .map(|variable| (configuration::key_of(&variable), variable))
        .collect();
    let is_unknown = |name: &String| {
        name.starts_with(PREFIX)
            && !KNOWN_PREFIXES.iter().any(|family| name.starts_with(family))
            && !known.values().any(|variable| variable == name)
    };
    let mut unknown: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| is_unknown(name))
        .collect();
    unknown.sort();
    let omitted = unknown.len().saturating_sub(MAX_WARNINGS);
    let warning = |name: &String| {
        let display: String = name.chars().take(60).collect();
        let key = configuration::key_of(name);
        let suggestion = configuration::nearest(&key, known.keys().map(String::as_str))
            .and_then(|key| known.get(key));
        let suggestion =
            suggestion.map(|variable| format!(" (did you mean {variable}?)")).unwrap_or_default();
        format!(
            "unknown setting {display:?} in the environment{suggestion}. List all with `gantry \
             config`"
        )
    };
    let summary = (omitted > 0)
        .then(|| format!("{omitted} more variables begin with {PREFIX} and are not settings"));
    unknown.iter().take(MAX_WARNINGS).map(warning).chain(summary).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn of(names: &[&str]) -> Vec<String> {
        warnings_of(names.iter().map(OsString::from), &crate::command())
    }

    #[test]
    fn misspelled_variable_warning_has_a_suggestion() {
        let reported = of(&[
            "GANTRY_LISTN",
            "GANTRY_DATABASE_URL",
            "GANTRY_WORKER_CAPASITY",
            "GANTRY_TOKN",
            "GANTRY_XYZZY",
        ]);
        let parts = [
            ["\"GANTRY_DATABASE_URL\"", "did you mean DATABASE_URL?"],
            ["\"GANTRY_LISTN\"", "did you mean GANTRY_LISTEN?"],
            ["\"GANTRY_TOKN\"", "did you mean GANTRY_TOKEN?"],
            ["\"GANTRY_WORKER_CAPASITY\"", "did you mean GANTRY_WORKER_CAPACITY?"],
            ["\"GANTRY_XYZZY\"", "in the environment. List all with `gantry config`"],
        ];
        assert_eq!(reported.len(), parts.len(), "{reported:?}");
        for (reported, parts) in reported.iter().zip(parts) {
            assert!(parts.iter().all(|part| reported.contains(part)), "{reported}: {parts:?}");
        }
    }

    #[test]
    fn foreign_variables_are_ignored_and_many_counted() {
        assert_eq!(
            of(&["HOME", "DATABASE_URL", "MYGANTRY_X", "GANTRY", "GANTRY_DATA_APP_PORT"]),
            Vec::<String>::new()
        );
        let many: Vec<String> =
            (0..MAX_WARNINGS + 3).map(|n| format!("GANTRY_PORT_{n}_TCP_ADDR")).collect();
        let reported = of(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(reported.len(), MAX_WARNINGS + 1);
        assert!(reported[MAX_WARNINGS].starts_with("3 more"), "{reported:?}");
    }

    #[test]
    fn every_documented_variable_is_known() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages =
            fs::read_dir(docs).expect("the book").map(|entry| entry.expect("a page").path());
        let mut names = Vec::new();
        for page in pages.filter(|page| page.extension().is_some_and(|end| end == "md")) {
            let text = fs::read_to_string(&page).expect("text");
            let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
            let ours = words.filter(|word| word.len() > PREFIX.len() && word.starts_with(PREFIX));
            names.extend(ours.map(OsString::from));
        }
        assert!(names.len() > 50, "{names:?}");
        assert_eq!(warnings_of(names.into_iter(), &crate::command()), Vec::<String>::new());
    }
}
