//! Structured logs on standard error. Standard output is for results.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging with a filter.
///
/// # Errors
/// If the filter is invalid.
pub fn start(filter: &str, json: bool) -> Result<(), String> {
    // Some libraries log every statement and request. They stay quiet unless the filter names them.
    let quiet = ["sqlx=warn", "sea_orm=warn", "hyper=warn", "tower=warn", "h2=warn"];
    let full_filter = quiet.iter().fold(filter.to_owned(), |all, part| {
        match filter.contains(part.split('=').next().unwrap_or(part)) {
            true => all,
            false => format!("{all},{part}"),
        }
    });
    let filter = EnvFilter::try_new(&full_filter)
        .map_err(|e| format!("Invalid filter {filter:?} of --log: {e}"))?;
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
