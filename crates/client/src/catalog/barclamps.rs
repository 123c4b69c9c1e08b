//! Commands for barclamps and their imports.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use engine::ids::actor_name;
use serde_json::{Value, json};

use crate::address::Query;
use crate::catalog::import::ImportFiles;
use crate::client::{Client, ListOptions};
use crate::exit::{Failure, Outcome};
use crate::output::list::{List, word};
use crate::output::{plain, value_text};
use crate::server::RequestOptions;

#[derive(Debug, Subcommand)]
pub(crate) enum Barclamp {
    /// List imported barclamps, newest version first
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// List imports with their barclamps and findings
    Imports {
        /// Name of a barclamp in the import
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Import barclamps from files and folders
    Import {
        /// Barclamp files, or folders that contain them
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

pub(crate) fn barclamp(client: &Client, command: &Barclamp) -> Outcome {
    match command {
        Barclamp::List { filter, list_options } => {
            client.list(&barclamp_list(), &Query::default().with("filter", filter), list_options)
        }
        Barclamp::Imports { barclamp, list_options } => {
            client.list(&import_list(), &Query::default().with("barclamp", barclamp), list_options)
        }
        Barclamp::Import { paths } => {
            let mut gathered = ImportFiles::default();
            for path in paths {
                let base = if path.is_dir() {
                    path.as_path()
                } else {
                    path.parent().unwrap_or(Path::new(""))
                };
                gathered.add(path, base)?;
            }
            if gathered.files.is_empty() {
                return Err(Failure::Nothing(
                    "No files found. Name barclamp files, or folders that \
                    contain them."
                        .into(),
                ));
            }
            let body = Some(json!({"files": gathered.files}));
            let with = RequestOptions { body, ..RequestOptions::default() };
            let response = client.server.request(&api::calls::import(), with)?.read()?;
            client.output.either(&response, &imported_text(&response).join("\n"))
        }
    }
}

/// The result of an import, one line per barclamp.
fn imported_text(response: &Value) -> Vec<String> {
    let list = |word: &str| response[word].as_array().map(Vec::as_slice).unwrap_or_default();
    let version = |barclamp: &Value| {
        let status = if barclamp["new"] == true {
            "is new"
        } else {
            "exists already, with the same content"
        };
        let hash: String = value_text(&barclamp["hash"]).chars().take(8).collect();
        format!(
            "Barclamp {} {} ({hash}) {status}.",
            plain(&word(barclamp, "name")),
            plain(&word(barclamp, "version"))
        )
    };
    let notes =
        list("removed_parts").iter().chain(list("findings")).map(|line| plain(&value_text(line)));
    list("barclamps").iter().map(version).chain(notes).collect()
}

pub(crate) fn barclamp_list() -> List {
    List {
        path: api::calls::List::Barclamps.path(""),
        items: "versions",
        cursor: "after",
        columns: &[
            ("BARCLAMP", |v, _| word(v, "barclamp")),
            ("VERSION", |v, _| word(v, "version")),
            ("CONTENT", |v, _| word(v, "hash").chars().take(8).collect()),
            ("ROLES", |v, _| word(v, "roles")),
            ("USED BY", |v, _| word(v, "used_by")),
            ("IMPORTED", |v, o| o.time(&v["imported"])),
            ("BY", |v, _| word(v, "by")),
            ("REMOVED", |v, _| word(v, "removed_parts")),
        ],
        none: "No barclamps found.",
    }
}

pub(crate) fn import_list() -> List {
    List {
        path: api::calls::List::Imports.path(""),
        items: "imports",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "id")),
            ("TIME", |v, o| o.time(&v["at"])),
            ("BY", |v, _| actor_name(v["by"].as_str()).to_owned()),
            ("BARCLAMPS", |v, _| {
                let versions = v["barclamps"].as_array().map(Vec::as_slice).unwrap_or_default();
                let named = versions.iter().map(|one| {
                    let known = if one["new"] == Value::Bool(true) { "" } else { " (known)" };
                    format!("{} {}{known}", word(one, "name"), word(one, "version"))
                });
                named.collect::<Vec<_>>().join(", ")
            }),
            ("FINDINGS", |v, _| {
                v["findings"].as_array().map(|lines| lines.len().to_string()).unwrap_or_default()
            }),
            ("REMOVED", |v, _| {
                v["removed_parts"]
                    .as_array()
                    .map(|lines| lines.len().to_string())
                    .unwrap_or_default()
            }),
        ],
        none: "No imports found.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_is_printed_line_by_line() {
        let response = json!(
            {
                "barclamps": [
                    {"name": "demo", "version": "2", "hash": "3e3390a70eb0", "new": false}
                ], "removed_parts": [], "findings": ["demo.yml:1:1: note: x"]
            }
        );
        let lines = imported_text(&response);
        assert_eq!(
            lines,
            [
                "Barclamp demo 2 (3e3390a7) exists already, with the same content.",
                "demo.yml:1:1: note: x"
            ]
        );
    }
}
