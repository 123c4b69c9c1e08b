//! Paths: the source tree, its build results, and the cache that outlives it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The folder of this package, which cargo sets for `cargo xtask`.
pub(crate) const MANIFEST_DIR: &str = "CARGO_MANIFEST_DIR";

/// The source tree of the running `cargo xtask`.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Finds the tree of the running `cargo xtask`.
    ///
    /// # Errors
    /// If cargo did not start this program. A compiled-in path would be wrong after the folder is
    /// moved.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let manifest = env::var_os(MANIFEST_DIR).context("start this as `cargo xtask`")?;
        let root =
            Path::new(&manifest).parent().context("xtask is not in a source tree")?.to_path_buf();
        Ok(Self { root })
    }

    #[cfg(test)]
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// The folder of native builds and of the site.
    pub(crate) fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| self.path("target"), |dir| self.root.join(dir))
    }

    pub(crate) fn site(&self) -> PathBuf {
        self.target().join("site")
    }

    /// The cache folder, which all clones of this tree share. Must match `scripts/cache.sh`.
    ///
    /// # Errors
    /// If no environment variable defines it.
    pub(crate) fn cache(&self) -> anyhow::Result<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("GANTRY_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("gantry")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/gantry")))
            .context("HOME is not set: set GANTRY_CACHE to a folder for downloaded tools")
    }
}
