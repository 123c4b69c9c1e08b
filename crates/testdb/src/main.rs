//! A throwaway cluster for a test run: `testdb run COMMAND...`, or `testdb serve` until stdin
//! closes.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use testdb::{SHARED_URL, SharedCluster};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: testdb run COMMAND [ARGUMENT...]   run the command with GANTRY_TEST_POSTGRES set
       testdb serve                       print the URL, and serve until stdin closes or a signal arrives";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", "--", program, rest @ ..] | ["run", program, rest @ ..] => run(program, rest).await,
        ["serve"] => serve().await,
        _ => bail!("{USAGE}"),
    }
}

async fn run(program: &str, arguments: &[&str]) -> Result<ExitCode> {
    let cluster = SharedCluster::start().await?;
    let mut child = Command::new(program)
        .args(arguments)
        .env(SHARED_URL, cluster.url())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    // Ctrl-C also reaches the command. Wait for its end, so that it can still use the database.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => child.start_kill()?,
        }
    };
    cluster.stop().await?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

async fn serve() -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let cluster = SharedCluster::start().await?;
    println!("{}", cluster.url());
    let stdin_closed =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::select! {
        _ = stdin_closed => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    cluster.stop().await?;
    // A read of stdin can't be canceled, and the runtime would wait for it.
    std::process::exit(0)
}
