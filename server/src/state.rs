//! The shared state of all handlers.

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
use crate::places::Places;
use crate::proxies::TrustedProxies;
use crate::site::Site;
use crate::timeouts::Patience;

/// The shared state of all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppState {
    pub control: Arc<Control>,
    pub people: People,
    pub address: Arc<PublicAddress>,
    pub proxies: Arc<TrustedProxies>,
    pub site: Arc<Site>,
    pub feed: Feed,
    /// Permits for live streams.
    pub streams: Places,
    /// Intervals of live streams.
    pub rhythm: Rhythm,
    /// Permits for downloads.
    pub downloads: Places,
    /// Held by a readiness check: one at a time may use the database.
    pub readiness_check: Arc<Mutex<()>>,
    /// Permits for requests that wait for an event.
    pub waiting: Places,
    /// Permits for requests. A request keeps its permit until its work ends, whether it was
    /// answered or not.
    pub requests: Arc<Semaphore>,
    /// Timeouts of requests.
    pub patience: Patience,
    pub metrics: Metrics,
    /// Hash of the token that grants access to metrics.
    pub metrics_token: Option<Hash>,
    /// Signals shutdown.
    pub stopping: CancellationToken,
    pub leptos: LeptosOptions,
}

impl FromRef<AppState> for LeptosOptions {
    fn from_ref(state: &AppState) -> Self {
        state.leptos.clone()
    }
}
