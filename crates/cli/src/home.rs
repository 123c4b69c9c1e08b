//! Gantry's folders on this machine.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use etcetera::BaseStrategy as _;
use etcetera::base_strategy::Xdg;

/// The data folder. PostgreSQL may run as another account, so that account must be able to reach
/// the folder.
pub fn ensure_data_folder(requested: Option<PathBuf>) -> Result<PathBuf> {
    let root = nix::unistd::Uid::effective().is_root();
    let folder = match requested {
        Some(folder) => folder,
        None if root => PathBuf::from("/var/lib/gantry"),
        None => Xdg::new()
            .context(
                "Cannot find a data folder, because HOME is not set. Name a folder with --data.",
            )?
            .data_dir()
            .join("gantry"),
    };
    std::fs::create_dir_all(&folder).with_context(|| {
        format!("Cannot create the data folder {} (name another one with --data)", folder.display())
    })?;
    if root {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
    }
    folder
        .canonicalize()
        .with_context(|| format!("Cannot use the data folder {}", folder.display()))
}

/// The default secrets folder of the worker that `gantry up` starts.
pub fn secrets(data: &Path) -> PathBuf {
    data.join("secrets")
}

/// Creates a folder that other accounts can't enter. A folder of another owner is rejected, because
/// programs are staged and executed in it.
pub fn ensure_private_folder(folder: &Path) -> Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
        format!("Cannot create {} (name another folder with --folder)", folder.display())
    })?;
    let owner = std::fs::metadata(folder)?.uid();
    if owner != nix::unistd::Uid::effective().as_raw() {
        bail!(
            "Folder {} belongs to another account. Name another folder with --folder.",
            folder.display()
        );
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("Cannot make {} private", folder.display()))
}
