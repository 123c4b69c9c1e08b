//! Writes the cluster's configuration files at every start.
//!
//! JIT compilation is off: it added 50 ms to a claim and never paid off. Settings that trade
//! durability for speed are in one place, and apply only to throwaway clusters.

use std::fmt::Write as _;
use std::path::Path;

use crate::account::Account;
use crate::error::At as _;
use crate::folder::Folder;
use crate::{ADMIN_ROLE, Durability, Error, OWNER_ROLE, PROGRAM_ROLES, Settings};

/// The number in the socket's file name. Each cluster has its own socket folder, so it never
/// collides.
pub(crate) const PORT: u16 = 5432;

/// File for the user's own settings.
const LOCAL_FILE: &str = "local.conf";

const HEADER: &str = "# Gantry overwrites this file at every start. Put your own settings into \
     local.conf in this folder.\n";

pub(crate) fn write(folder: &Folder, account: &Account, settings: &Settings) -> Result<(), Error> {
    let data = folder.data();
    write_file(account, &data.join("postgresql.conf"), &server(folder.socket_dir(), settings))?;
    write_file(
        account,
        &data.join("pg_hba.conf"),
        &format!("{HEADER}local all all peer map=gantry\n"),
    )?;
    write_file(account, &data.join("pg_ident.conf"), &pg_ident_conf(account))
}

fn pg_ident_conf(account: &Account) -> String {
    let mut text = HEADER.to_owned();
    for role in [ADMIN_ROLE, OWNER_ROLE].into_iter().chain(PROGRAM_ROLES) {
        let _ = writeln!(text, "gantry {} {role}", quoted(&account.client, '"'));
    }
    text
}

fn server(socket_dir: &Path, settings: &Settings) -> String {
    let socket = quoted(&socket_dir.to_string_lossy(), '\'');
    let mut text = HEADER.to_owned();
    let _ = write!(
        text,
        "listen_addresses = ''\n\
         unix_socket_directories = {socket}\n\
         unix_socket_permissions = 0700\n\
         port = {PORT}\n\
         max_connections = {}\n\
         shared_buffers = 128MB\n\
         jit = off\n\
         timezone = 'UTC'\n\
         log_timezone = 'UTC'\n\
         log_line_prefix = '%m [%p] %u@%d '\n",
        settings.max_connections
    );
    text.push_str(match settings.durability {
        Durability::Durable => {
            "max_wal_size = 1GB\n\
             logging_collector = on\n\
             log_directory = 'log'\n\
             log_filename = 'postgres-%a.log'\n\
             log_rotation_age = 1d\n\
             log_rotation_size = 0\n\
             log_truncate_on_rotation = on\n"
        }
        Durability::Throwaway => {
            "fsync = off\n\
             synchronous_commit = off\n\
             full_page_writes = off\n\
             wal_level = minimal\n\
             max_wal_senders = 0\n\
             max_wal_size = 1GB\n\
             log_checkpoints = off\n"
        }
    });
    let _ = writeln!(text, "include_if_exists = '{LOCAL_FILE}'");
    text
}

/// In these files, a quote inside quotes is doubled.
fn quoted(text: &str, quote: char) -> String {
    let doubled: String = [quote, quote].iter().collect();
    format!("{quote}{}{quote}", text.replace(quote, &doubled))
}

fn write_file(account: &Account, path: &Path, text: &str) -> Result<(), Error> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).at("Cannot write", &fresh)?;
    account.own(&fresh)?;
    std::fs::rename(&fresh, path).at("Cannot replace", path)
}
