//! Tabs of one browser among themselves: who has the line, and what is said over it.
//!
//! A lock of the browser ([Web Locks](https://www.w3.org/TR/web-locks/)) says which tab leads; the browser gives it to the next one
//! when that tab goes, however it goes. What is said goes over a broadcast channel, in the order in which it was said. Where there are
//! no such locks (pages that came over plain HTTP from another machine), each tab leads itself.

use api::live::Live as Event;
use js_sys::{Function, Object, Promise, Reflect};
use serde::{Deserialize, Serialize};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{BroadcastChannel, MessageEvent};

use super::wants::Place;

/// The lock and the channel. Another number for another form of [`Word`]: tabs of two versions leave each other alone.
const NAME: &str = "gantry-live-1";

/// What tabs say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// A tab wants to hear these topics, from there on. `asked` numbers what it asked.
    Want { tab: String, asked: u64, topics: Vec<String>, after: Place },
    /// A tab is still there.
    Here { tab: String },
    /// A tab wants nothing any more.
    Gone { tab: String },
    /// Another tab leads from now on: everybody says again what is wanted.
    Lead,
    /// What a tab asked for comes from now on.
    Taken { tab: String, asked: u64 },
    /// No topic more fits on the line: the tab needs one of its own.
    Full { tab: String },
    /// Something happened.
    News { place: Option<Place>, event: Event },
    /// The line is alive, and everything up to there was told.
    Beat { place: Option<Place> },
    /// Whether the line stands; since when it does not (milliseconds since 1970).
    Line { lost: Option<i64> },
}

/// A tab's end of the channel.
pub(super) struct Channel {
    channel: BroadcastChannel,
    _hear: Closure<dyn FnMut(MessageEvent)>,
}

impl Channel {
    /// None: this browser, or this page, has none, or nobody could lead on it.
    pub(super) fn open(hear: impl Fn(Word) + 'static) -> Option<Self> {
        locks()?;
        let channel = BroadcastChannel::new(NAME).ok()?;
        let hear = Closure::<dyn FnMut(_)>::new(move |message: MessageEvent| {
            // What can't be read is of another version.
            if let Some(word) =
                message.data().as_string().and_then(|text| serde_json::from_str(&text).ok())
            {
                hear(word);
            }
        });
        channel.set_onmessage(Some(hear.as_ref().unchecked_ref()));
        Some(Self { channel, _hear: hear })
    }

    pub(super) fn say(&self, word: &Word) {
        if let Ok(text) = serde_json::to_string(word) {
            // A closed channel has no listeners either.
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

/// Waits for the lead, or takes it from a tab that is not heard of any more. `lead` is called once it is had, `lost` when another tab
/// has taken it. Both outlive the page's parts.
pub(super) fn queue_for_lead(
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
    // Held until the tab goes: a promise that is never kept.
    let held = Closure::once_into_js(move |_: JsValue| {
        lead();
        Promise::new(&mut |_, _| {})
    });
    let Ok(ended) = request
        .call3(&locks, &JsValue::from_str(NAME), options.as_ref(), &held)
        .and_then(JsCast::dyn_into::<Promise>)
    else {
        return;
    };
    let lost = Closure::once(move |_: JsValue| lost());
    let _ = ended.catch(&lost);
    lost.forget();
}
