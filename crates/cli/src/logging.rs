//! Logs: structured, on standard error, so that standard output is for people and programs.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging by this filter.
///
/// # Errors
/// When the filter can't be understood.
pub fn start(filter: &str, json: bool) -> Result<(), String> {
    // Libraries that tell every statement and request stay quiet unless somebody asks for them.
    let quiet = ["sqlx=warn", "sea_orm=warn", "hyper=warn", "tower=warn", "h2=warn"];
    let full = quiet.iter().fold(filter.to_owned(), |all, part| {
        match filter.contains(part.split('=').next().unwrap_or(part)) {
            true => all,
            false => format!("{all},{part}"),
        }
    });
    let filter =
        EnvFilter::try_new(&full).map_err(|e| format!("--log {filter:?} is no filter: {e}"))?;
    let format = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(format.json()).init();
    } else {
        registry
            .with(
                format
                    .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
                    .with_target(false),
            )
            .init();
    }
    Ok(())
}
