//! The wrapper: the script on a node that runs attempts.
//!
//! `wrapper.sh` makes all decisions that need the node: lock, token, ledger, and which processes
//! belong to an attempt. This module stages it, starts attempts with it, follows them to their end
//! and reads its report. The wrapper enforces the timeout too, so the timeout also holds if the
//! worker dies.
//!
//! The check of a role is no attempt ([`CheckEnd`]): it changes neither tokens nor the ledger.
//!
//! The worker may be killed at any moment. Its scripts then continue, and another worker adopts the
//! attempt ([`Attempt::adopt`]): it reads on where the log ends, and takes the report. If the
//! attempt can't be adopted, the wrapper of the next attempt ends its scripts before it starts its
//! own.
//!
//! An adoption is safe because it starts nothing and changes no token:
//! * The database gives a run to another worker only after its lease has expired, and to one worker
//!   (`guard_run_adoption`). From then on, it ignores the log and the result of the first one.
//! * The run keeps its token, so the fencing rules apply to it as before. `follow` and `take` only
//!   read. If a newer attempt of the step came first, its wrapper ended this one, and there is
//!   nothing to adopt.
//! * The report has been written by the supervisor of exactly this attempt, in the folder with its
//!   token. A restored database has another epoch, so it never adopts attempts from before.
//! * If the first worker returns, it ends the attempt. The adopting worker then reports the run as
//!   lost, never as failed or succeeded.

use engine::Hash;

mod attempt;
mod check;
mod commands;
mod deadline;
mod error;
mod filter;
mod report;
mod scripts;
mod streams;

pub use attempt::{Attempt, AttemptEnd};
pub use check::{CheckEnd, MAX_CHECK_OUTPUT};
pub use commands::LostRun;
pub(super) use commands::{Staged, Wrapper};
pub use error::AttemptError;
pub use report::{Cause, Report};
pub use scripts::ScriptSource;

/// Seconds between SIGTERM and SIGKILL to the processes of a run.
const KILL_GRACE_SECONDS: u64 = 5;

const EXIT_REFUSED: i32 = 71;
const EXIT_MISSING_SCRIPT: i32 = 72;
/// The wrapper is missing or does not match its hash.
const EXIT_NO_WRAPPER: i32 = 75;
const EXIT_NOT_STARTED: i32 = 76;
const EXIT_ORPHANED: i32 = 77;

pub const WRAPPER: &str = include_str!("wrapper.sh");

/// The hash that names the wrapper on nodes.
fn wrapper_hash() -> Hash {
    Hash::of_bytes(WRAPPER.as_bytes())
}

/// Runs the wrapper `$2`, whose hash is `$1`, with the remaining arguments. Exits with
/// `EXIT_NO_WRAPPER` if the wrapper is missing or does not match its hash.
const CALL_WRAPPER: &str = r#"
sum=$1 wrapper=$2
shift 2
[ "$(sha256sum <"$wrapper" 2>/dev/null)" = "$sum  -" ] || exit 75
exec sh "$wrapper" "$@"
"#;

/// Writes the wrapper from standard input to `$1` and lists the scripts on the node, up to the
/// number that a worker remembers. Then runs the wrapper with the remaining arguments, if any.
pub const STAGE_WRAPPER: &str = r#"
umask 077
mkdir -p "${1%/*}" && cat >"$1.$$" && mv -f "$1.$$" "$1" || {
    rm -f "$1.$$"
    exit 1
}
ls "${1%/bin/*}/scripts" 2>/dev/null | head -n 10000
[ $# = 1 ] || exec sh "$@"
"#;
