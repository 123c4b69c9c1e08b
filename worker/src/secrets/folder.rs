//! Secrets as files of a folder, each with a descriptor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use engine::data::secret::{Descriptor, KnownSecret, SecretRef};
use engine::ids::DeploymentName;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::AsyncReadExt;

use super::{Purpose, SecretError, SecretSource};

/// File next to a secret's versions that says who may use the secret.
pub const DESCRIPTOR: &str = "secret.toml";
/// Maximum size of a descriptor in bytes.
const MAX_DESCRIPTOR: u64 = 64 << 10;
/// Maximum size of a secret in bytes.
const MAX_SECRET: u64 = 1 << 20;

fn parse(text: &str) -> Result<Descriptor, String> {
    // The parser's `Display` quotes the line, which may be a secret in the wrong file.
    let descriptor = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    if let Descriptor::Data { deployments } = &descriptor {
        let is_name = |name: &str| name == Descriptor::EVERY || DeploymentName::parse(name).is_ok();
        if let Some(invalid) = deployments.iter().find(|name| !is_name(name)) {
            return Err(format!("{invalid:?} is not the name of a deployment"));
        }
    }
    Ok(descriptor)
}

/// Checks whether the descriptor in this file allows the use. The error has the reason and the
/// remedy.
fn check(descriptor: &Descriptor, path: &Path, purpose: Purpose<'_>) -> Result<(), String> {
    let path = path.display();
    match (descriptor, purpose) {
        (Descriptor::NodeKey {}, Purpose::NodeKey) => Ok(()),
        (descriptor, Purpose::Data(deployment)) if descriptor.allows(deployment.as_str()) => Ok(()),
        (Descriptor::Data { deployments }, Purpose::Data(deployment)) => {
            let listed = match deployments.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            {
                none if none.is_empty() => "no deployment".to_owned(),
                listed => listed,
            };
            Err(format!(
                "{path} allows {listed}. To allow it, add {:?} to deployments in that file.",
                deployment.as_str()
            ))
        }
        (Descriptor::NodeKey {}, Purpose::Data(_)) => Err(format!(
            "{path} declares a node key, which runs never receive. Store the value that the role \
             needs as another secret."
        )),
        (Descriptor::Data { .. }, Purpose::NodeKey) => Err(format!(
            "{path} declares data, which never opens a connection to a node. Use a secret with \
             kind = \"node_key\"."
        )),
    }
}

/// Secrets as files of a folder: `<name>/<version>`, with `<name>/secret.toml` next to them.
/// Slashes in the name are folders.
///
/// Only the worker can read the folder. Deleting the file of a version revokes it for all runs that
/// start later.
#[derive(Debug, Clone)]
pub struct SecretFolder(pub Option<PathBuf>);

impl SecretSource for SecretFolder {
    fn resolve<'a>(
        &'a self,
        secret: &'a SecretRef,
        purpose: Purpose<'a>,
    ) -> BoxFuture<'a, Result<String, SecretError>> {
        async move {
            let secret_name = format!("Secret {secret}");
            let folder = self.0.as_ref().ok_or_else(|| {
                format!(
                    "{secret_name} is needed, but this worker has no secrets folder. Set \
                    GANTRY_SECRETS."
                )
            });
            let mut path = folder.map_err(SecretError::Unavailable)?.clone();
            let parts = secret.parts().ok_or_else(|| format!("{secret_name} has an invalid name."));
            path.extend(parts.map_err(SecretError::Unavailable)?);
            let descriptor = described(&secret_name, &path.join(DESCRIPTOR), purpose).await?;
            check(&descriptor, &path.join(DESCRIPTOR), purpose).map_err(|reason| {
                SecretError::Denied(match purpose {
                    Purpose::Data(deployment) => {
                        format!("{secret_name} can't be used in deployment {deployment}: {reason}")
                    }
                    Purpose::NodeKey => {
                        format!("{secret_name} can't be used as a node key: {reason}")
                    }
                })
            })?;
            path.push(secret.version.to_string());
            let text = read(&path, MAX_SECRET).await.map_err(|error| {
                SecretError::Unavailable(format!(
                    "{secret_name} cannot be read from {}: {error}",
                    path.display()
                ))
            })?;
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        .boxed()
    }
}

/// Reads a secret's descriptor.
async fn described(
    secret_name: &str,
    path: &Path,
    purpose: Purpose<'_>,
) -> Result<Descriptor, SecretError> {
    let text = read(path, MAX_DESCRIPTOR).await.map_err(|error| {
        let content = match purpose {
            Purpose::Data(deployment) => {
                format!("kind = \"data\" and deployments = [{:?}]", deployment.as_str())
            }
            Purpose::NodeKey => "kind = \"node_key\"".to_owned(),
        };
        let path = path.display();
        SecretError::Unavailable(match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!(
                    "{secret_name} can't be used: {path} does not exist. To allow it, write \
                    {content} to that file."
                )
            }
            _ => format!("{secret_name} can't be used: cannot read {path}: {error}"),
        })
    })?;
    parse(&text).map_err(|reason| {
        SecretError::Unavailable(format!(
            "{secret_name} can't be used: {} is not valid: {reason}",
            path.display()
        ))
    })
}

/// Maximum number of secrets that a worker reports.
const MAX_REPORTED: usize = 1_000;
/// Maximum number of versions that a worker reports for each secret, newest first.
const MAX_VERSIONS: usize = 20;
/// Maximum number of entries that one scan of the folder visits.
const MAX_ENTRIES: usize = 50_000;

impl SecretFolder {
    /// Names and versions of the secrets in the folder, without content. Blocks, because it reads
    /// the folder.
    pub fn known(&self) -> Vec<KnownSecret> {
        let (mut found, mut entries) = (Vec::new(), 0);
        let mut folders: Vec<(PathBuf, String)> =
            self.0.iter().map(|folder| (folder.clone(), String::new())).collect();
        while let Some((folder, name)) = folders.pop() {
            let mut versions = BTreeSet::new();
            let mut described = false;
            let Ok(read) = std::fs::read_dir(&folder) else { continue };
            for entry in read.flatten() {
                entries += 1;
                if entries > MAX_ENTRIES || found.len() == MAX_REPORTED {
                    return sorted(found);
                }
                let Ok(part) = entry.file_name().into_string() else { continue };
                // `is_dir` follows links. Mounted secrets are links.
                if entry.path().is_dir() {
                    if !part.starts_with('.') {
                        let name = if name.is_empty() { part } else { format!("{name}/{part}") };
                        folders.push((entry.path(), name));
                    }
                } else if part == DESCRIPTOR {
                    described = true;
                } else if let Some(version) = part.parse().ok().filter(|version| *version > 0) {
                    versions.insert(version);
                }
            }
            if name.is_empty() || (versions.is_empty() && !described) {
                continue;
            }
            while versions.len() > MAX_VERSIONS {
                versions.pop_first();
            }
            let path = folder.join(DESCRIPTOR);
            let is_small = path.metadata().is_ok_and(|file| file.len() <= MAX_DESCRIPTOR);
            let text = is_small.then(|| std::fs::read_to_string(&path).ok()).flatten();
            found.push(KnownSecret {
                name,
                versions,
                descriptor: text.and_then(|text| parse(&text).ok()),
            });
        }
        sorted(found)
    }
}

fn sorted(mut known: Vec<KnownSecret>) -> Vec<KnownSecret> {
    known.sort();
    known
}

/// Reads a small text file.
async fn read(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut text = String::new();
    let read =
        tokio::fs::File::open(path).await?.take(max_bytes + 1).read_to_string(&mut text).await?;
    if u64::try_from(read).is_ok_and(|read| read > max_bytes) {
        return Err(std::io::Error::other(format!("the file is larger than {max_bytes} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str) -> DeploymentName {
        DeploymentName::parse(name).unwrap()
    }

    #[tokio::test]
    async fn descriptor_decides_purpose_and_deployment() {
        let folder = tempfile::tempdir().unwrap();
        let source = SecretFolder(Some(folder.path().to_owned()));
        let described = |name: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("1"), "plain-text\n").unwrap();
            std::fs::write(folder.path().join(name).join(DESCRIPTOR), text).unwrap();
        };
        described("db/admin", "kind = \"data\"\ndeployments = [\"web\"]\n");
        described("every", "kind = \"data\"\ndeployments = [\"*\"]\n");
        described("ssh", "kind = \"node_key\"\n");
        let (web, edge) = (deployment("web"), deployment("edge"));
        let cases = [
            ("db/admin", Purpose::Data(&web), Ok(())),
            ("db/admin", Purpose::Data(&edge), Err("can't be used in deployment edge")),
            ("db/admin", Purpose::NodeKey, Err("declares data")),
            ("every", Purpose::Data(&edge), Ok(())),
            ("ssh", Purpose::NodeKey, Ok(())),
            ("ssh", Purpose::Data(&web), Err("declares a node key")),
        ];
        for (name, purpose, expected) in cases {
            let secret = SecretRef { name: name.to_owned(), version: 1 };
            match (source.resolve(&secret, purpose).await, expected) {
                (Ok(text), Ok(())) => assert_eq!(text, "plain-text"),
                (Err(SecretError::Denied(error)), Err(part)) => {
                    assert!(
                        error.contains(part)
                            && error.contains(&secret.to_string())
                            && !error.contains("plain"),
                        "{error}"
                    );
                }
                other => panic!("{name} {purpose:?}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn missing_or_invalid_descriptor_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let source = SecretFolder(Some(folder.path().to_owned()));
        let (secret, web) = (SecretRef { name: "db".to_owned(), version: 1 }, deployment("web"));
        std::fs::create_dir_all(folder.path().join("db")).unwrap();
        std::fs::write(folder.path().join("db/1"), "plain-text").unwrap();
        let path = folder.path().join("db").join(DESCRIPTOR);
        let error = source.resolve(&secret, Purpose::Data(&web)).await.unwrap_err().to_string();
        let content = r#"write kind = "data" and deployments = ["web"] to that file"#;
        assert!(error.contains(&path.display().to_string()) && error.contains(content), "{error}");
        for text in [
            "plain-text",
            "kind = \"data\"",
            "kind = \"data\"\ndeployments = [\"we b\"]",
            "kind = \"data\"\ndeployments = [\"web\"]\nnote = \"plain-text\"",
            "kind = \"node_key\"\ndeployments = [\"web\"]",
            "kind = \"any\"",
            "deployments = [\"web\"]",
            &format!("kind = \"data\"\ndeployments = [\"web\"]\n#{}", "x".repeat(64 << 10)),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = source.resolve(&secret, Purpose::Data(&web)).await.unwrap_err();
            assert!(matches!(&error, SecretError::Unavailable(_)), "{text}: {error}");
            assert!(!error.to_string().contains("plain-text"), "{error}");
        }
    }

    #[test]
    fn known_secrets_have_no_content() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("db/admin/1", "plain-text"),
            ("db/admin/12", "plain-text"),
            ("db/admin/secret.toml", "kind = \"data\"\ndeployments = [\"web\"]\n"),
            ("ssh/1", "plain-text"),
            ("ssh/1.pub", "plain-text"),
            ("ssh/secret.toml", "kind = \"node_key\"\n"),
            ("undescribed/3", "plain-text"),
            (".git/1", "plain-text"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let known = SecretFolder(Some(folder.path().to_owned())).known();
        let of = |name: &str, versions: &[i64], descriptor| KnownSecret {
            name: name.to_owned(),
            versions: versions.iter().copied().collect(),
            descriptor,
        };
        let expected = [
            of(
                "db/admin",
                &[1, 12],
                Some(Descriptor::Data { deployments: ["web".to_owned()].into() }),
            ),
            of("ssh", &[1], Some(Descriptor::NodeKey {})),
            of("undescribed", &[3], None),
        ];
        assert_eq!(known, expected);
        assert_eq!(SecretFolder(None).known(), []);
    }
}
