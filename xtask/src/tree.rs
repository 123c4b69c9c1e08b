//! Where things are: the source tree, what is built from it, and the cache that outlives it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::command::Step;

/// The source tree that this program was started for.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree of the running `cargo xtask`.
    ///
    /// # Errors
    /// When it wasn't started by cargo: a path compiled in would be wrong after the folder was moved.
    pub(crate) fn here() -> anyhow::Result<Self> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask`")?;
        let root = Path::new(&manifest).parent().context("xtask lies in no tree")?.to_path_buf();
        Ok(Self { root })
    }

    #[cfg(test)]
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path in the tree.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// The folder of native builds and of the site.
    pub(crate) fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| self.path("target"), |dir| self.root.join(dir))
    }

    /// The site: what `gantry` serves beside its pages.
    pub(crate) fn site(&self) -> PathBuf {
        self.target().join("site")
    }

    /// A folder that outlives clones of this tree; the same as in `scripts/places.sh`.
    ///
    /// # Errors
    /// When no variable says where.
    pub(crate) fn cache(&self) -> anyhow::Result<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("GANTRY_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("gantry")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/gantry")))
            .context("HOME is not set: set GANTRY_CACHE to a folder for downloaded tools")
    }

    /// Runs a script of the set-up; its one line of output.
    ///
    /// # Errors
    /// When the script fails; it has said why.
    pub(crate) fn script(&self, name: &str, arguments: &[&str]) -> anyhow::Result<String> {
        Step::new(self, self.path("scripts").join(name)).args(arguments).output()
    }
}
