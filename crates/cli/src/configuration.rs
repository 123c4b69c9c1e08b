//! Configuration from the command line, the environment and the configuration file.
//!
//! Every setting is one CLI option with one environment variable and one key of the file. The key
//! is the variable's name (`GANTRY_LISTEN`, `listen`). An option is shorter where the command gives
//! the context: `gantry worker --capacity`, but `GANTRY_WORKER_CAPACITY`. Precedence: command line,
//! environment, file, default. There is no separate list of settings. A file's values become clap
//! defaults, so the same parsers read and reject them.
//!
//! Invariants:
//! * An unknown key is an error, with a suggestion: a setting must never be ignored silently.
//! * An invalid value is an error that names the file or variable, for all commands.
//! * Secrets (database URLs, the metrics token) are never printed.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use serde::Serialize;

/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Environment variable with the path of the file.
pub const FILE_VARIABLE: &str = "GANTRY_CONFIG";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the documentation's table of all settings, regardless of the values here
    #[arg(long)]
    markdown: bool,
}

/// Values of a configuration file.
#[derive(Debug, Default)]
pub struct File {
    path: Option<PathBuf>,
    values: BTreeMap<String, String>,
}

impl File {
    /// Reads the file that the command line or the environment names. By default, reads the file at
    /// the default path if it exists.
    ///
    /// # Errors
    /// If a named file does not exist, or a file has an unknown key or an invalid value.
    pub fn find(line: &[OsString], command: &Command) -> Result<Self> {
        let named = path_from_args(line).or_else(|| {
            std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
        });
        let path = match named {
            Some(path) => path,
            None => match default_path().filter(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let shown = path.display();
        let length = std::fs::metadata(&path)
            .with_context(|| format!("Cannot read the configuration file {shown}"))?
            .len();
        if length > MAX_FILE_BYTES {
            bail!("The configuration file {shown} has more than {MAX_FILE_BYTES} bytes.");
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("Cannot read the configuration file {shown}"))?;
        let values =
            read(&text, command).with_context(|| format!("Invalid configuration file {shown}"))?;
        // Child processes have another working directory.
        Ok(Self { path: Some(path.canonicalize().unwrap_or(path)), values })
    }

    /// The path of the file, if one was found.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Makes the values of the file the defaults of the options.
    pub fn below(&self, command: Command) -> Command {
        let with_default = |arg: Arg| match key_for_arg(&arg).and_then(|key| self.values.get(&key))
        {
            Some(value) => {
                let hidden = arg.is_hide_env_values_set();
                arg.default_value(value.clone()).required(false).hide_default_value(hidden)
            }
            None => arg,
        };
        command.mut_args(with_default).mut_subcommands(|command| self.below(command))
    }
}

/// Adds the option that names the file. [`File::find`] reads its value before clap parses the
/// command line, so no command has it as a field.
pub fn with_option(command: Command) -> Command {
    let option =
        Arg::new("config").long("config").env(FILE_VARIABLE).value_name("FILE").global(true);
    command.arg(option.help(
        "Configuration file [default: /etc/gantry/gantry.toml for root, \
             ~/.config/gantry/gantry.toml for others]",
    ))
}

/// Finds `--config FILE` or `--config=FILE` before clap parses the command line.
fn path_from_args(line: &[OsString]) -> Option<PathBuf> {
    let mut words = line.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") => return None,
            Some("--config") => return words.next().map(PathBuf::from),
            Some(word) => {
                if let Some(path) = word.strip_prefix("--config=") {
                    return Some(PathBuf::from(path));
                }
            }
            None => {}
        }
    }
    None
}

fn default_path() -> Option<PathBuf> {
    if nix::unistd::Uid::effective().is_root() {
        return Some(PathBuf::from("/etc/gantry/gantry.toml"));
    }
    Some(client::config_folder()?.join("gantry.toml"))
}

/// The file's key for a variable: lower case, without the `GANTRY_` prefix.
pub fn key_of(variable: &str) -> String {
    variable.strip_prefix("GANTRY_").unwrap_or(variable).to_ascii_lowercase()
}

/// The file's key for an option, if a file may set it. A file can't name another file.
fn key_for_arg(arg: &Arg) -> Option<String> {
    let variable = arg.get_env()?.to_str().filter(|variable| *variable != FILE_VARIABLE)?;
    Some(key_of(variable))
}

fn read(text: &str, command: &Command) -> Result<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // Report the line number and the reason, but not the line: it may contain a password.
        let before = &text[..error.span().map_or(0, |span| span.start).min(text.len())];
        anyhow!("line {}: {}", before.matches('\n').count() + 1, error.message())
    })?;
    let settings: BTreeMap<String, Setting> =
        settings(command).into_iter().map(|setting| (setting.key.clone(), setting)).collect();
    let known: BTreeSet<String> = settings.keys().cloned().collect();
    let entry = |(key, value)| {
        let key = validate_key(key, &known)?;
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(yes) => yes.to_string(),
            _ => bail!("{key} must be a string, a number, true or false"),
        };
        if let Some(setting) = settings.get(&key) {
            setting.check(&text).with_context(|| format!("invalid value of {key}"))?;
        }
        Ok((key, text))
    };
    table.into_iter().map(entry).collect()
}

fn validate_key(key: String, known: &BTreeSet<String>) -> Result<String> {
    if known.contains(&key) {
        return Ok(key);
    }
    let shown: String = key.chars().take(60).collect();
    match nearest(&key, known.iter().map(String::as_str)) {
        Some(other) => {
            bail!(
                "unknown setting {shown:?} (did you mean {other:?}?). List all with `gantry \
                 config`."
            )
        }
        None => bail!("unknown setting {shown:?}. List all with `gantry config`."),
    }
}

/// The most similar known word, with at most three edits and at most half as many edits as letters.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let (distance, other) =
        known.map(|other| (strsim::damerau_levenshtein(word, other), other)).min()?;
    (distance <= 3.min(word.chars().count() / 2)).then_some(other)
}

#[derive(Debug, Serialize)]
struct Setting {
    key: String,
    variable: String,
    option: String,
    /// Commands that have the setting. Empty for all commands.
    commands: Vec<String>,
    about: String,
    #[serde(skip)]
    built_in: Option<String>,
    #[serde(skip)]
    secret: bool,
    /// The option, for its parser.
    #[serde(skip)]
    arg: Arg,
}

impl Setting {
    /// Parses a value with the option's parser.
    fn check(&self, value: &str) -> Result<()> {
        // A copy of the option alone, so that its conflicts and requirements do not apply.
        let mut arg = Arg::new("value")
            .long("value")
            .action(self.arg.get_action().clone())
            .default_value(value.to_owned());
        if self.arg.get_action().takes_values() {
            arg = arg.value_parser(self.arg.get_value_parser().clone());
        }
        let read =
            Command::new("gantry").no_binary_name(true).arg(arg).try_get_matches_from([""; 0]);
        let Err(error) = read else { return Ok(()) };
        let quoted_value = if self.secret { String::new() } else { format!("{value:?}: ") };
        bail!("{quoted_value}{}", reason(&error))
    }
}

/// The reason of an error, without clap's text about the command line.
fn reason(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(known)) => format!("must be one of {}", known.join(", ")),
        _ => error.to_string().trim_start_matches("error: ").trim_end().to_owned(),
    }
}

/// Checks the variables of all settings, even if the current command does not use them.
///
/// # Errors
/// If a value is invalid: the variable and the reason.
pub fn check_environment(command: &Command) -> Result<()> {
    for setting in settings(command) {
        let Some(value) = std::env::var_os(&setting.variable) else { continue };
        setting
            .check(&value.to_string_lossy())
            .with_context(|| format!("Invalid value of {}", setting.variable))?;
    }
    Ok(())
}

pub fn variables(command: &Command) -> impl Iterator<Item = String> {
    settings(command).into_iter().map(|setting| setting.variable)
}

fn settings(command: &Command) -> Vec<Setting> {
    let mut all = BTreeMap::new();
    collect(command, "", &mut all);
    all.into_values().collect()
}

fn collect(command: &Command, path: &str, all: &mut BTreeMap<String, Setting>) {
    for arg in command.get_arguments().filter(|arg| !arg.is_global_set() || path.is_empty()) {
        let (Some(key), Some(variable)) = (key_for_arg(arg), arg.get_env()) else { continue };
        let built_in =
            arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let setting = all.entry(key.clone()).or_insert_with(|| Setting {
            variable: variable.to_string_lossy().into_owned(),
            option: arg.get_long().map(|long| format!("--{long}")).unwrap_or_default(),
            commands: Vec::new(),
            about: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            built_in: None,
            secret: arg.is_hide_env_values_set(),
            arg: arg.clone(),
            key,
        });
        // A command that needs to know whether an option was set has no default for it.
        setting.built_in = setting.built_in.take().or(built_in);
        if !path.is_empty() {
            setting.commands.push(path.to_owned());
        }
    }
    for sub in command.get_subcommands() {
        let name = sub.get_name();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        collect(sub, &path, all);
    }
}

/// A setting with its current value and the source of the value.
#[derive(Debug, Serialize)]
struct CurrentSetting {
    #[serde(flatten)]
    setting: Setting,
    /// `None` if nothing is set or the value is a secret.
    value: Option<String>,
    source: &'static str,
}

fn current(
    setting: Setting,
    file: &File,
    environment: impl Fn(&str) -> Option<String>,
) -> CurrentSetting {
    let (value, source) = if let Some(value) = environment(&setting.variable) {
        (Some(value), "environment")
    } else if let Some(value) = file.values.get(&setting.key) {
        (Some(value.clone()), "file")
    } else if let Some(value) = &setting.built_in {
        (Some(value.clone()), "built in")
    } else if let Some(value) = computed_default(&setting.about) {
        (Some(value.to_owned()), "computed")
    } else {
        (None, "not set")
    };
    CurrentSetting { value: value.filter(|_| !setting.secret), source, setting }
}

/// The default that the help of a setting states, because it depends on other things.
fn computed_default(about: &str) -> Option<&str> {
    about.split_once("[default: ")?.1.strip_suffix(']')
}

/// Prints the current settings.
pub fn run(arguments: &Arguments, file: &File, command: &Command) -> Result<()> {
    let text = match (arguments.markdown, arguments.json) {
        (true, _) => markdown(command),
        (_, true) => {
            let path = file.path().map(|path| path.to_string_lossy().into_owned());
            serde_json::to_string_pretty(
                &serde_json::json!({"file": path, "settings": current_settings(file, command)}),
            )? + "\n"
        }
        _ => table(file, &current_settings(file, command)),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe is not an error: the reader has enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("Cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn current_settings(file: &File, command: &Command) -> Vec<CurrentSetting> {
    let environment =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    settings(command).into_iter().map(|setting| current(setting, file, environment)).collect()
}

fn table(file: &File, all: &[CurrentSetting]) -> String {
    let mut text = match file.path() {
        Some(path) => format!("file: {}\n\n", path.display()),
        None => {
            format!(
                "file: none (--config FILE, {FILE_VARIABLE}, or {})\n\n",
                default_path().unwrap_or_default().display()
            )
        }
    };
    let width = all.iter().map(|current| current.setting.key.len()).max().unwrap_or_default();
    for CurrentSetting { setting, value, source } in all {
        let shown = match (value, *source) {
            (_, "not set") => "-",
            (None, _) => "(hidden)",
            (Some(value), _) => value,
        };
        let _ = writeln!(text, "{:width$}  {shown}  [{source}]", setting.key);
    }
    text
}

fn markdown(command: &Command) -> String {
    let mut text = String::from(
        "| Key | Option | Variable | Commands | Default | Description \
         |\n|---|---|---|---|---|---|\n",
    );
    for setting in settings(command) {
        let commands = match setting.commands.is_empty() {
            true => "all".to_owned(),
            false => setting
                .commands
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let built_in = setting.built_in.map(|value| format!("`{value}`")).unwrap_or_default();
        let about = setting.about.replace('|', "\\|").replace('\n', " ");
        let Setting { key, option, variable, .. } = setting;
        let _ = writeln!(
            text,
            "| `{key}` | `{option}` | `{variable}` | {commands} | {built_in} | {about} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        crate::command()
    }

    fn file(text: &str) -> Result<File> {
        Ok(File { path: None, values: read(text, &command())? })
    }

    fn worker(file: &File, words: &[&str]) -> clap::ArgMatches {
        let line = ["gantry", "worker"].iter().chain(words);
        let matches = file.below(command()).try_get_matches_from(line).expect("valid settings");
        matches.subcommand_matches("worker").expect("a worker").clone()
    }

    #[test]
    fn file_overrides_defaults_but_not_options() {
        let file = file("worker_capacity = 3\ndatabase_url = 'postgres://a'\nlog_json = true\n")
            .expect("valid settings");
        let capacity =
            |words: &[&str]| *worker(&file, words).get_one::<u32>("capacity").expect("a number");
        assert_eq!((capacity(&[]), capacity(&["--capacity", "7"])), (3, 7));
        assert_eq!(
            worker(&file, &[]).get_one::<String>("database_url").map(String::as_str),
            Some("postgres://a")
        );
        assert!(
            worker(&file, &[]).get_flag("log_json"),
            "global options are read from the file, too"
        );
    }

    #[test]
    fn unknown_key_error_has_a_suggestion() {
        let message = |text: &str| format!("{:#}", file(text).expect_err(text));
        assert!(message("worker_capasity = 3").contains("\"worker_capacity\""));
        assert!(message("hello = 3").contains("unknown setting \"hello\". List all"));
        assert!(message("listen = [1]").contains("listen must be a string"));
        assert!(
            message("config = 'x'").contains("unknown setting"),
            "a file cannot name another configuration file"
        );
        assert!(message("log = 'x'\nlisten = ").contains("line 2"));
        let unquoted = message("\ndatabase_url = postgres://gantry:hunter22@db/gantry\n");
        assert!(unquoted.contains("line 2") && !unquoted.contains("hunter22"), "{unquoted}");
    }

    #[test]
    fn invalid_value_is_rejected_as_on_command_line() {
        let message = |text: &str| format!("{:#}", file(text).expect_err(text));
        assert!(
            message("worker_capacity = 'many'")
                .starts_with("invalid value of worker_capacity: \"many\": ")
        );
        let idle = message("worker_capacity = 0");
        assert!(
            idle.starts_with("invalid value of worker_capacity: \"0\": ") && idle.contains("1.."),
            "{idle}"
        );
        assert!(message("max_running = 0").starts_with("invalid value of max_running: "));
        let line = command().try_get_matches_from([
            "gantry",
            "worker",
            "--database-url",
            "x",
            "--capacity",
            "0",
        ]);
        assert!(
            line.expect_err("a worker without capacity")
                .to_string()
                .contains("'--capacity <CAPACITY>'")
        );
        assert_eq!(
            message("listen = 'localhost:80'"),
            "invalid value of listen: \"localhost:80\": must be an IP address and a port, such as \
             127.0.0.1:7780"
        );
        assert!(
            message("log_json = 'perhaps'").contains("true, false"),
            "{}",
            message("log_json = 'perhaps'")
        );
        let secret = message("metrics_token = 'hunter22'");
        assert!(secret.contains("too short") && !secret.contains("hunter22"), "{secret}");
    }

    #[test]
    fn packaged_files_are_valid() {
        file(include_str!("../../../packaging/gantry.toml")).expect("known settings");
        file(include_str!("../../../packaging/worker.toml")).expect("known settings");
    }

    #[test]
    fn secret_values_are_not_printed() {
        let file = file("database_url = 'postgres://gantry:hunter22@db'\nlisten = '[::1]:80'")
            .expect("valid settings");
        let all: Vec<CurrentSetting> = settings(&command())
            .into_iter()
            .map(|setting| current(setting, &file, |_| None))
            .collect();
        let text = serde_json::to_string(&all).expect("JSON");
        assert!(!text.contains("hunter22") && text.contains("[::1]:80"), "{text}");
        let of = |key: &str| all.iter().find(|current| current.setting.key == key).expect(key);
        assert_eq!((of("database_url").source, &of("database_url").value), ("file", &None));
        let folder = of("worker_folder");
        assert!(folder.value.as_deref().unwrap_or_default().contains("for root"), "{folder:?}");
        assert_eq!((folder.source, of("public_address").source), ("computed", "not set"));
        let help = file
            .below(command())
            .try_get_matches_from(["gantry", "worker", "--help"])
            .expect_err("the help text");
        assert!(!help.to_string().contains("hunter22"), "{help}");
    }

    #[test]
    fn config_option_is_found_before_parsing() {
        let named =
            |words: &[&str]| path_from_args(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named(&["gantry", "worker", "--config", "a"]), Some("a".into()));
        assert_eq!(named(&["gantry", "--config=b", "worker"]), Some("b".into()));
        assert_eq!(named(&["gantry", "worker", "--", "--config", "a"]), None);
    }

    #[test]
    fn documentation_lists_every_setting() {
        let page = include_str!("../../../docs/configuration.md");
        assert!(
            page.contains(&markdown(&command())),
            "docs/configuration.md is outdated: insert the output of `gantry config --markdown`"
        );
    }
}
