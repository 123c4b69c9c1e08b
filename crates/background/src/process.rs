//! The process that runs tasks.

use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    Server,
    Worker,
}

impl ProcessKind {
    /// The name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
        }
    }
}

/// One start of a server or worker.
#[derive(Debug, Clone)]
pub struct Process {
    pub kind: ProcessKind,
    /// Generated at each start. The id of a worker is also the id of its row.
    pub id: Uuid,
    /// `server@host/1a2b3c4d`: unique, because it contains the id.
    pub name: String,
}

impl Process {
    /// A new process with this first part of its name.
    pub fn start(kind: ProcessKind, name: &str) -> Self {
        let id = Uuid::new_v4();
        let name = format!("{name}@{}/{}", host(), &id.simple().to_string()[..8]);
        Self { kind, id, name }
    }
}

/// The name of this machine.
fn host() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}
