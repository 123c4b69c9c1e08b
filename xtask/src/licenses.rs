//! Checks the licenses of all dependencies.
//!
//! The rules are in `deny.toml`, in the format of cargo-deny, so that cargo-deny can use them too.
//! This module reads the parts that we need, offline. It checks the crates in `Cargo.lock` for our
//! platforms, and the npm packages of the site and the browser tests. Each package needs a license
//! expression that the allowed licenses satisfy. Nothing is downloaded, because the setup has done
//! that.
//!
//! cargo-deny itself is not used: it does not read npm packages, and `make test` would have to
//! download and compile it. Both evaluate license expressions with the crate `spdx`. Advisories
//! need the network, so this does not check them: run `cargo deny check advisories`.
//!
//! `deny.toml` also lists crates of which only one version may be in the tree. For example, two
//! versions of the database driver or the runtime would not share connections and tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::command::Step;
use crate::tree::Tree;

/// The platform of our WebAssembly. The other platform is the host.
const BROWSER_TARGET: &str = "wasm32-unknown-unknown";

/// Checks the lock files.
///
/// # Errors
/// Lists every package with a forbidden license, and every crate with several versions.
pub(crate) fn check(tree: &Tree) -> anyhow::Result<()> {
    let rules: Rules = read_toml(tree, "deny.toml")?;
    let mut packages = crates(tree)?;
    for lock in ["xtask/package-lock.json", "end2end/package-lock.json"] {
        packages.extend(npm_packages(tree, lock)?);
    }
    let mut findings: Vec<String> =
        packages.iter().filter_map(|package| rules.licenses.refuse(package)).collect();
    findings.extend(rules.bans.duplicate_crates(&read_toml(tree, "Cargo.lock")?));

    if findings.is_empty() {
        println!(
            "\n{} packages, all under licenses that deny.toml allows; no forbidden duplicate \
             crates",
            packages.len()
        );
        return Ok(());
    }
    bail!("{}\n(the rules are in deny.toml)", findings.join("\n"))
}

fn read_toml<T: for<'a> Deserialize<'a>>(tree: &Tree, name: &str) -> anyhow::Result<T> {
    let text = fs::read_to_string(tree.path(name)).with_context(|| name.to_owned())?;
    toml::from_str(&text).with_context(|| name.to_owned())
}

/// The part of cargo-deny's configuration that is checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

/// Additional licenses of one package.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    package: String,
    allow: BTreeSet<String>,
}

/// A dependency with its declared license.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

impl Licenses {
    /// Why this package is not allowed, if so.
    fn refuse(&self, package: &Package) -> Option<String> {
        let Package { name, version, license } = package;
        let Some(license) = license else {
            return Some(format!("{name} {version} names no license"));
        };
        // Old manifests write "MIT/Apache-2.0".
        let expression = match Expression::parse_mode(license, ParseMode::LAX) {
            Ok(expression) => expression,
            Err(error) => {
                return Some(format!(
                    "{name} {version}: its license `{license}` can't be read: {}",
                    error.reason
                ));
            }
        };
        let exception_for_package =
            self.exceptions.iter().find(|exception| exception.package == *name);
        let allowed = expression.evaluate(|requirement| {
            let term = requirement.to_string();
            self.allow.contains(&term)
                || exception_for_package.is_some_and(|exception| exception.allow.contains(&term))
        });
        (!allowed).then(|| format!("{name} {version} is under `{license}`, which is not allowed"))
    }
}

#[derive(Deserialize)]
struct Bans {
    #[serde(default)]
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    package: String,
    #[serde(default, rename = "deny-multiple-versions")]
    single: bool,
}

impl Bans {
    fn duplicate_crates(&self, lock: &Lock) -> Vec<String> {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for package in &lock.package {
            versions.entry(&package.name).or_default().push(&package.version);
        }
        let single = self.deny.iter().filter(|ban| ban.single).map(|ban| ban.package.as_str());
        single
            .filter_map(|name| match versions.get(name).map(Vec::as_slice) {
                Some([_]) => None,
                Some(several) => Some(format!(
                    "Cargo.lock has {name} {}: there must be one",
                    several.join(" and ")
                )),
                None => Some(format!("Cargo.lock has no {name}, of which there must be one")),
            })
            .collect()
    }
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Crate {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

/// The crates of a build for this machine or for the browser, including our own, test and build
/// dependencies.
fn crates(tree: &Tree) -> anyhow::Result<BTreeSet<Package>> {
    let rustc_info = Step::new(tree, "rustc").args(["-vV"]).output()?;
    let host = rustc_info
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc names no host")?;
    let mut found = BTreeSet::new();
    for platform in [host, BROWSER_TARGET] {
        let json = Step::cargo(tree)
            .args([
                "metadata",
                "--locked",
                "--offline",
                "--format-version=1",
                "--filter-platform",
                platform,
            ])
            .output()
            .context("if a crate isn't there yet: cargo fetch --locked")?;
        let metadata: Metadata = serde_json::from_str(&json).context("cargo metadata")?;
        // Even with a platform filter, `packages` lists the packages of other platforms.
        let used: BTreeSet<&str> =
            metadata.resolve.nodes.iter().map(|node| node.id.as_str()).collect();
        found.extend(metadata.packages.iter().filter(|one| used.contains(one.id.as_str())).map(
            |one| Package {
                name: one.name.clone(),
                version: one.version.clone(),
                license: one.license.clone(),
            },
        ));
    }
    Ok(found)
}

#[derive(Deserialize)]
struct NpmLock {
    packages: BTreeMap<String, NpmPackage>,
}

#[derive(Deserialize)]
struct NpmPackage {
    #[serde(default)]
    version: String,
    license: Option<String>,
}

fn npm_packages(tree: &Tree, path: &str) -> anyhow::Result<Vec<Package>> {
    let text = fs::read_to_string(tree.path(path)).with_context(|| path.to_owned())?;
    let lock: NpmLock = serde_json::from_str(&text).with_context(|| path.to_owned())?;
    let named = lock.packages.into_iter().filter_map(|(install_path, package)| {
        // The entry without a path is the folder itself.
        let (_, name) = install_path.rsplit_once("node_modules/")?;
        Some(Package { name: name.to_owned(), version: package.version, license: package.license })
    });
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        toml::from_str(
            r#"
            [licenses]
            allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause"]
            exceptions = [{ crate = "axe", allow = ["MPL-2.0"] }]
            [bans]
            deny = [{ crate = "sqlx", deny-multiple-versions = true }]
            "#,
        )
        .expect("rules")
    }

    fn refusal(name: &str, license: Option<&str>) -> Option<String> {
        let package = Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
        };
        rules().licenses.refuse(&package)
    }

    #[test]
    fn license_expression_is_evaluated_as_whole() {
        for fine in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "MIT/Apache-2.0",
            "MIT AND (BSD-3-Clause OR GPL-2.0-only)",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0-only",
        ] {
            assert_eq!(refusal("a", Some(fine)), None, "{fine}");
        }
        for refused in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MPL-2.0", "AGPL-3.0-or-later"] {
            let message = refusal("a", Some(refused)).expect("a refusal");
            assert!(message.contains("a 1.0.0") && message.contains(refused), "{message}");
        }
    }

    #[test]
    fn exception_applies_to_its_package_only() {
        assert_eq!(refusal("axe", Some("MPL-2.0")), None);
        assert!(refusal("axle", Some("MPL-2.0")).is_some());
    }

    #[test]
    fn missing_or_invalid_license_is_rejected() {
        assert!(refusal("a", None).expect("a refusal").contains("names no license"));
        assert!(refusal("a", Some("see the file")).expect("a refusal").contains("can't be read"));
    }

    #[test]
    fn duplicate_or_missing_single_crates_are_reported() {
        let lock = |versions: &[&str]| Lock {
            package: versions
                .iter()
                .map(|version| LockedPackage {
                    name: "sqlx".to_owned(),
                    version: (*version).to_owned(),
                })
                .collect(),
        };
        assert!(rules().bans.duplicate_crates(&lock(&["0.9.0"])).is_empty());
        assert_eq!(rules().bans.duplicate_crates(&lock(&["0.8.6", "0.9.0"])).len(), 1);
        assert_eq!(rules().bans.duplicate_crates(&lock(&[])).len(), 1);
    }
}
