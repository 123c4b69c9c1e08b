//! Contexts: named servers with their credentials.
//!
//! Contexts are in `contexts.toml` in `$XDG_CONFIG_HOME/gantry`, readable only by its owner. The
//! file is replaced atomically, so an interrupted command leaves either the old or the new content.
//!
//! Invariants:
//! * Credentials are never printed and not in any `Debug` output.
//! * A context's credentials are sent only to its server. With an explicit server, the client uses
//!   the token of the environment, or a context with the same address. With an explicit context, it
//!   uses that context's credentials and never the token of the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use etcetera::base_strategy::Xdg;
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::exit::{Failure, Outcome};

/// A credential. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Credentials of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Key {
    /// An API token.
    Token(Secret),
    /// Name and value of a session cookie.
    Session(Secret),
}

impl Key {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Session(_) => "session",
        }
    }
}

/// A server with its credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) insecure_http: bool,
    pub(crate) key: Key,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// Gantry's folder in the person's configuration folder. `None` without a home folder.
pub fn config_folder() -> Option<PathBuf> {
    Xdg::new().ok().map(|folders| folders.config_dir().join("gantry"))
}

/// Path of the file with the contexts.
pub(crate) fn default_path() -> Outcome<PathBuf> {
    let folder = config_folder().ok_or_else(|| {
        Failure::Usage(
            "Cannot find a folder for contexts. Set HOME, or use GANTRY_SERVER and GANTRY_TOKEN."
                .into(),
        )
    })?;
    Ok(folder.join("contexts.toml"))
}

impl Contexts {
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let wrong = |message: String| {
            Failure::Usage(format!("Cannot use context file {}: {message}", path.display()))
        };
        let metadata = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(wrong(format!("{error}."))),
            Ok(metadata) => metadata,
        };
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(wrong(format!(
                "other users can read your credentials. Run `chmod 600 {}`.",
                path.display()
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("{error}.")))?;
        // Report the position, but not the line: it may contain a token.
        toml::from_str(&text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start).min(text.len())];
            wrong(format!("invalid content in line {}.", before.matches('\n').count() + 1))
        })
    }

    pub(crate) fn write(&self, path: &Path) -> Outcome {
        let wrong =
            |error: String| Failure::Usage(format!("Cannot write {}: {error}.", path.display()));
        let text = toml::to_string(self).map_err(|error| wrong(error.to_string()))?;
        replace(path, &text).map_err(|error| wrong(error.to_string()))
    }

    /// The context of a name. The error lists the existing names.
    pub(crate) fn named(&self, name: &str) -> Outcome<&Context> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "No contexts yet. Add one: gantry context add NAME --server URL --link-file \
                    FILE"
                    .to_owned(),
                names => format!("Known contexts: {}.", names.join(", ")),
            };
            Failure::Nothing(format!("Context {name:?} does not exist. {known}"))
        })
    }

    /// The name of a context for this server, preferably the current one.
    pub(crate) fn at(&self, address: &Address) -> Option<&str> {
        let is_for_server = |name: &&String| {
            self.contexts.get(*name).is_some_and(|context| context.server == address.to_string())
        };
        self.current
            .as_ref()
            .filter(is_for_server)
            .or_else(|| self.contexts.keys().find(is_for_server))
            .map(String::as_str)
    }
}

/// Replaces a file atomically, with permissions for its owner only.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary = path.with_extension(format!("toml.{}", std::process::id()));
    let written = create_private(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn create_private(path: &Path, text: &str) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The user's settings that select the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSettings {
    /// From the options.
    pub(crate) context: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) insecure_http: bool,
    /// From the environment.
    pub(crate) env_context: Option<String>,
    pub(crate) env_server: Option<String>,
    pub(crate) env_token: Option<Secret>,
}

/// The selected server with its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedServer {
    pub(crate) address: Address,
    pub(crate) key: Option<Key>,
    /// The context that the credentials come from.
    pub(crate) context: Option<String>,
}

/// Selects the server. Options take precedence over the environment, and the environment over the
/// current context. A server takes precedence over a context.
pub(crate) fn choose(settings: &ServerSettings, contexts: &Contexts) -> Outcome<SelectedServer> {
    let token = || settings.env_token.clone().map(Key::Token);
    let explicit_server = settings.server.as_ref().or(if settings.context.is_none() {
        settings.env_server.as_ref()
    } else {
        None
    });
    if let Some(server) = explicit_server {
        let address = Address::parse(server, settings.insecure_http)?;
        let context =
            contexts.at(&address).filter(|_| settings.env_token.is_none()).map(str::to_owned);
        let stored = context
            .as_ref()
            .and_then(|name| contexts.contexts.get(name))
            .map(|context| context.key.clone());
        return Ok(SelectedServer { address, key: token().or(stored), context });
    }
    let name = settings
        .context
        .as_ref()
        .or(settings.env_context.as_ref())
        .or(contexts.current.as_ref())
        .ok_or_else(|| {
            Failure::Usage(
            "No server is selected. Use `gantry context add NAME --server URL --link-file FILE`, \
             or --server URL and GANTRY_TOKEN.".into(),
        )
        })?;
    let context = contexts.named(name)?;
    let address = Address::parse(&context.server, context.insecure_http || settings.insecure_http)?;
    // The token of the environment belongs to the server of the environment, not to an explicit
    // context.
    let token = if settings.context.is_none() { token() } else { None };
    let used_context = token.is_none().then(|| name.clone());
    Ok(SelectedServer {
        address,
        key: token.or_else(|| Some(context.key.clone())),
        context: used_context,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Contexts {
        let context =
            |server: &str, key| Context { server: server.into(), insecure_http: false, key };
        Contexts {
            current: Some("lab".into()),
            contexts: BTreeMap::from([
                (
                    "lab".into(),
                    context(
                        "http://127.0.0.1:7780",
                        Key::Session(Secret::new("gantry_session=hush")),
                    ),
                ),
                (
                    "far".into(),
                    context("https://far.example", Key::Token(Secret::new("gantry_hush"))),
                ),
            ]),
        }
    }

    #[test]
    fn contexts_file_is_private_and_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/contexts.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        two().write(&path).unwrap();
        two().write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
        assert_eq!(Contexts::read(&path).unwrap(), two());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Contexts::read(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn invalid_file_error_hides_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        create_private(&path, "current = 'a'\n[contexts.a]\ntoken = gantry_hush\n").unwrap();
        let error = Contexts::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 3") && !error.contains("hush"), "{error}");
        assert!(!format!("{:?}", two()).contains("hush"));
    }

    #[test]
    fn option_overrides_environment_overrides_current_context() {
        let chosen = |message: ServerSettings| choose(&message, &two()).unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(chosen(ServerSettings::default()).context.as_deref(), Some("lab"));
        let far = chosen(ServerSettings { env_context: text("far"), ..ServerSettings::default() });
        assert_eq!(far.address.to_string(), "https://far.example");
        let lab = chosen(ServerSettings {
            context: text("lab"),
            env_context: text("far"),
            env_server: text("https://x.example"),
            ..ServerSettings::default()
        });
        assert_eq!(lab.context.as_deref(), Some("lab"));
        let token = chosen(ServerSettings {
            env_token: Some(Secret::new("t")),
            ..ServerSettings::default()
        });
        assert_eq!((token.key, token.context), (Some(Key::Token(Secret::new("t"))), None));
    }

    #[test]
    fn credentials_go_only_to_their_own_server() {
        let other = choose(
            &ServerSettings {
                server: Some("https://other.example".into()),
                ..ServerSettings::default()
            },
            &two(),
        )
        .unwrap();
        assert_eq!((other.key, other.context), (None, None));
        let same = choose(
            &ServerSettings {
                server: Some("https://far.example/".into()),
                ..ServerSettings::default()
            },
            &two(),
        )
        .unwrap();
        assert_eq!(same.context.as_deref(), Some("far"));
        // The explicit server replaces the server of the environment.
        let named = ServerSettings {
            context: Some("far".into()),
            env_server: Some("https://other.example".into()),
            env_token: Some(Secret::new("other")),
            ..ServerSettings::default()
        };
        let far = choose(&named, &two()).unwrap();
        assert_eq!(far.address.to_string(), "https://far.example");
        assert_eq!(
            (far.key, far.context.as_deref()),
            (Some(Key::Token(Secret::new("gantry_hush"))), Some("far"))
        );
    }

    #[test]
    fn unknown_context_error_lists_existing_contexts() {
        let text = ServerSettings { context: Some("lap".into()), ..ServerSettings::default() };
        let failure = choose(&text, &two()).unwrap_err();
        assert_eq!((failure.code(), failure.to_string().contains("far, lab")), (4, true));
        assert_eq!(choose(&ServerSettings::default(), &Contexts::default()).unwrap_err().code(), 2);
    }
}
