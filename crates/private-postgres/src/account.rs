//! The account that runs PostgreSQL's programs.
//!
//! For a regular user, it is that user. PostgreSQL does not run as root, so root switches to
//! another account: the owner of an existing data folder (no other account can use it), or else
//! `postgres`, or else `nobody`. To find out whether the account can enter a folder, a process
//! tries it as that account. Mode bits alone would ignore access control lists.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, User, chown, geteuid};

use crate::Error;
use crate::error::At as _;

/// The accounts of the server and its clients.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// Runs the server and owns its folder.
    pub(crate) name: String,
    /// Connects to the server: the account of this process.
    pub(crate) client: String,
    switch_to: Option<(Uid, Gid)>,
    uid: Uid,
}

impl Account {
    /// Chooses the account for a data folder, which need not exist.
    pub(crate) fn choose(data_dir: &Path) -> Result<Self, Error> {
        let me = geteuid();
        let client = name_of(me);
        let owner = std::fs::metadata(data_dir).ok().map(|found| Uid::from_raw(found.uid()));
        if !me.is_root() {
            return match owner {
                Some(owner) if owner != me => Err(Error::WrongOwner {
                    folder: data_dir.to_owned(),
                    owner: name_of(owner),
                    me: client,
                }),
                _ => Ok(Self { name: client.clone(), client, switch_to: None, uid: me }),
            };
        }
        let user = owner
            .filter(|owner| !owner.is_root())
            .and_then(|owner| User::from_uid(owner).ok().flatten())
            .or_else(|| User::from_name("postgres").ok().flatten())
            .or_else(|| User::from_name("nobody").ok().flatten())
            .ok_or(Error::NoUnprivilegedAccount)?;
        Ok(Self { name: user.name, client, switch_to: Some((user.uid, user.gid)), uid: user.uid })
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// A command that runs as this account, in a folder that it may enter and without the caller's
    /// `PG...` variables.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG"))
        {
            command.env_remove(name);
        }
        if let Some((uid, gid)) = self.switch_to {
            command.uid(uid.as_raw()).gid(gid.as_raw()).env("HOME", "/");
        }
        command
    }

    /// Makes this account the owner of a path.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        match self.switch_to {
            Some((uid, gid)) => {
                chown(path, Some(uid), Some(gid)).at("Cannot change the owner of", path)
            }
            None => Ok(()),
        }
    }

    /// Fails if this account can't enter a folder.
    pub(crate) fn require_access(&self, folder: &Path) -> Result<(), Error> {
        if self.switch_to.is_none() {
            return Ok(());
        }
        let entered = self
            .command("/bin/sh")
            .args(["-c", "cd -- \"$1\"", "sh"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .at("Cannot run a shell to check", folder)?;
        if entered.success() {
            return Ok(());
        }
        Err(Error::Inaccessible { folder: folder.to_owned(), account: self.name.clone() })
    }
}

fn name_of(uid: Uid) -> String {
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}
