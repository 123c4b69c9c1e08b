//! What every handler can reach.

use std::sync::Arc;

use axum::extract::FromRef;
use control::Control;
use control::people::People;
use engine::Hash;
use leptos::config::LeptosOptions;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::address::PublicAddress;
use crate::feed::Feed;
use crate::live::Rhythm;
use crate::metrics::Metrics;
use crate::patient::Patience;
use crate::places::Places;
use crate::proxies::TrustedProxies;
use crate::site::Site;

/// What every handler can reach. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppState {
    pub control: Arc<Control>,
    pub people: People,
    pub address: Arc<PublicAddress>,
    /// Whose word counts about where a request comes from.
    pub proxies: Arc<TrustedProxies>,
    /// Where the site's files are.
    pub site: Arc<Site>,
    pub feed: Feed,
    /// Live streams that may still be opened.
    pub streams: Places,
    /// What those do by the clock.
    pub rhythm: Rhythm,
    /// Downloads that may still be begun.
    pub downloads: Places,
    /// Held by whoever asks whether the database is there: one at a time, however many want to know.
    pub asks_database: Arc<Mutex<()>>,
    /// Requests that may still wait for something to happen.
    pub waiting: Places,
    /// Requests that may still be begun. One holds its place until its work is over, answered or not.
    pub requests: Arc<Semaphore>,
    /// How long those may take.
    pub patience: Patience,
    /// What is counted.
    pub metrics: Metrics,
    /// The digest of the token that shows what is counted.
    pub metrics_token: Option<Hash>,
    /// The order to stop.
    pub stopping: CancellationToken,
    pub leptos: LeptosOptions,
}

impl FromRef<AppState> for LeptosOptions {
    fn from_ref(state: &AppState) -> Self {
        state.leptos.clone()
    }
}
