//! The protocol between tabs of one browser: which one leads, and the messages of the shared
//! connection.
//!
//! A [Web Lock](https://www.w3.org/TR/web-locks/) elects the leader. The browser passes it on when
//! the leader's tab closes or crashes. Messages use a broadcast channel, which preserves their
//! order. Where Web Locks are missing (pages over plain HTTP from another machine), each tab has
//! its own connection.

use api::live::Live as Event;
use js_sys::{Function, Object, Promise, Reflect};
use serde::{Deserialize, Serialize};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{BroadcastChannel, MessageEvent};

use super::subscriptions::JournalPosition;

/// The name of the lock and the channel. Increment its number when [`TabMessage`] changes, so that
/// tabs of two versions ignore each other.
const CHANNEL_NAME: &str = "gantry-live-2";

/// A message between tabs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TabMessage {
    /// A tab subscribes to topics from a position. `request` is the number of this request.
    Subscribe { tab: String, request: u64, topics: Vec<String>, after: JournalPosition },
    /// A tab is still alive.
    Alive { tab: String },
    /// A tab has no subscriptions any more.
    Unsubscribe { tab: String },
    /// A new tab leads: all tabs repeat their subscriptions.
    Lead,
    /// The subscription of a tab is active.
    Subscribed { tab: String, request: u64 },
    /// The shared connection has no room for the tab's topics. The tab needs its own connection.
    Full { tab: String },
    /// An event.
    Event { position: Option<JournalPosition>, event: Event },
    /// The connection is alive, and all events up to `position` were sent.
    Beat { position: Option<JournalPosition> },
    /// The state of the connection: `lost` is the time at which it failed, in milliseconds since
    /// 1970.
    Connection { lost: Option<i64> },
}

/// A tab's end of the channel.
pub(super) struct Channel {
    channel: BroadcastChannel,
    _listener: Closure<dyn FnMut(MessageEvent)>,
}

impl Channel {
    /// Returns `None` if the browser or the page has no broadcast channel or no locks.
    pub(super) fn open(on_message: impl Fn(TabMessage) + 'static) -> Option<Self> {
        locks()?;
        let channel = BroadcastChannel::new(CHANNEL_NAME).ok()?;
        let on_message = Closure::<dyn FnMut(_)>::new(move |message: MessageEvent| {
            // A message that cannot be parsed is of another version.
            if let Some(message) =
                message.data().as_string().and_then(|text| serde_json::from_str(&text).ok())
            {
                on_message(message);
            }
        });
        channel.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        Some(Self { channel, _listener: on_message })
    }

    pub(super) fn send(&self, message: &TabMessage) {
        if let Ok(text) = serde_json::to_string(message) {
            // If the channel is closed, it has no listeners either.
            let _ = self.channel.post_message(&JsValue::from_str(&text));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.channel.set_onmessage(None);
        self.channel.close();
    }
}

fn locks() -> Option<JsValue> {
    let navigator = web_sys::window()?.navigator();
    let locks = Reflect::get(&navigator, &JsValue::from_str("locks")).ok()?;
    locks.is_object().then_some(locks)
}

/// Waits for the lock, or steals it from a silent leader. Calls `lead` once this tab leads, and
/// `lost` when another tab has stolen the lock. Both outlive the page's components.
pub(super) fn request_lead(
    steal: bool,
    lead: impl FnOnce() + 'static,
    lost: impl FnOnce() + 'static,
) {
    let Some(locks) = locks() else { return };
    let Ok(request) =
        Reflect::get(&locks, &JsValue::from_str("request")).and_then(JsCast::dyn_into::<Function>)
    else {
        return;
    };
    let options = Object::new();
    let _ = Reflect::set(&options, &JsValue::from_str("steal"), &JsValue::from_bool(steal));
    // This promise never resolves, so the tab keeps the lock until it closes.
    let callback = Closure::once_into_js(move |_: JsValue| {
        lead();
        Promise::new(&mut |_, _| {})
    });
    let Ok(ended) = request
        .call3(&locks, &JsValue::from_str(CHANNEL_NAME), options.as_ref(), &callback)
        .and_then(JsCast::dyn_into::<Promise>)
    else {
        return;
    };
    let lost = Closure::once(move |_: JsValue| lost());
    let _ = ended.catch(&lost);
    lost.forget();
}
