//! Times for people: a relative time, with the exact time on hover.
//!
//! The whole page has one clock, so a hundred times cost one timer. The server renders with its own
//! clock, and the browser continues from there.

use std::time::Duration;

use api::At;
use engine::counting::duration;
use leptos::prelude::*;
use time::OffsetDateTime;

#[derive(Clone, Copy)]
pub struct Clock(RwSignal<At>);

impl Clock {
    pub fn start() -> Self {
        let clock = Self(RwSignal::new(now()));
        Effect::new(move |_| {
            let tick = set_interval_with_handle(move || clock.0.set(now()), Duration::from_secs(1));
            on_cleanup(move || {
                if let Ok(tick) = tick {
                    tick.clear();
                }
            });
        });
        clock
    }

    /// The current time in seconds, tracked.
    pub fn now(self) -> At {
        self.0.get()
    }
}

/// The page's clock, or a stopped one if the page has none.
pub fn use_clock() -> Clock {
    use_context().unwrap_or_else(|| Clock(RwSignal::new(now())))
}

#[cfg(feature = "ssr")]
fn now() -> At {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    At(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(not(feature = "ssr"))]
fn now() -> At {
    // Whole milliseconds of this century fit both an `f64` and an `i64`.
    At(js_sys::Date::now() as i64)
}

/// Characters of a time up to its minutes: `2026-11-21 08:15`.
const MINUTES_LEN: usize = 16;

/// A relative time: `now`, `12 s ago`, `5 min ago`, `3 h ago`, `2 days ago`, then the date. A
/// future time is shown with date and time. A small difference between clocks does not count as
/// future.
pub fn ago(now: At, at: At) -> String {
    let seconds = (now.0 - at.0) / 1000;
    match seconds {
        ..=-60 => format!("{} UTC", exact(at).chars().take(MINUTES_LEN).collect::<String>()),
        -59..5 => "now".into(),
        5..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        172_800..2_592_000 => format!("{} days ago", seconds / 86_400),
        _ => exact(at).chars().take(10).collect(),
    }
}

/// A duration: `480 ms`, `12.3 s`, `5 min 2 s`, `3 h 10 min`.
pub fn span(from: At, to: At) -> String {
    duration(u64::try_from(to.0 - from.0).unwrap_or_default())
}

fn to_datetime(at: At) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// `2026-11-21 08:15:02 UTC`.
pub fn exact(at: At) -> String {
    let t = to_datetime(at);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        t.year(),
        u8::from(t.month()),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    )
}

/// `08:15:02.250`, for log lines.
pub fn time_of_day(at: At) -> String {
    let t = to_datetime(at);
    format!("{:02}:{:02}:{:02}.{:03}", t.hour(), t.minute(), t.second(), t.millisecond())
}

/// RFC 3339: `2026-11-21T08:15:02Z`.
fn machine(at: At) -> String {
    exact(at).replacen(' ', "T", 1).replace(" UTC", "Z")
}

/// The value of a `datetime-local` field: `2026-11-21T08:15`, with seconds unless they are 0.
pub fn field(at: At) -> String {
    let text = machine(at).replace('Z', "");
    text.strip_suffix(":00").map(str::to_owned).unwrap_or(text)
}

/// Parses a UTC time: `2026-11-21`, `2026-11-21T08:15` or `2026-11-21 08:15:02`.
pub fn parse_time(text: &str) -> Option<At> {
    let text = text.trim().trim_end_matches('Z');
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut day = day.splitn(3, '-');
    let year = day.next()?.parse().ok()?;
    let month: u8 = day.next()?.parse().ok()?;
    let date =
        time::Date::from_calendar_date(year, month.try_into().ok()?, day.next()?.parse().ok()?)
            .ok()?;
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let second = time.next().unwrap_or("0").split('.').next()?.parse().ok()?;
    let moment = date.with_time(time::Time::from_hms(hour, minute, second).ok()?).assume_utc();
    moment.unix_timestamp().checked_mul(1000).map(At)
}

/// A relative time, with the exact time on hover.
#[component]
pub fn TimeText(at: At) -> impl IntoView {
    let clock = use_clock();
    let text = Memo::new(move |_| ago(clock.now(), at));
    view! { <time datetime=machine(at) title=exact(at)>{text}</time> }.into_any()
}

/// A duration. It keeps counting while `to` is `None`.
#[component]
pub fn Elapsed(from: At, to: Option<At>) -> impl IntoView {
    let clock = use_clock();
    let text = Memo::new(move |_| match to {
        Some(to) => span(from, to),
        // The clock ticks once a second, so tenths would only flicker.
        None => {
            span(from, At(from.0 + (clock.now().0 - from.0) / 1000 * 1000)).replace(".0 s", " s")
        }
    });
    view! { <span class="nowrap">{text}</span> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_for_people() {
        let now = At(1_795_248_902_250);
        assert_eq!(exact(now), "2026-11-21 08:15:02 UTC");
        assert_eq!(time_of_day(now), "08:15:02.250");
        assert_eq!(machine(now), "2026-11-21T08:15:02Z");
        for (seconds, text) in [
            (-86_400, "2026-11-22 08:15 UTC"),
            (-59, "now"),
            (-3, "now"),
            (4, "now"),
            (59, "59 s ago"),
            (60, "1 min ago"),
            (7300, "2 h ago"),
            (172_800, "2 days ago"),
            (3_000_000, "2026-10-17"),
        ] {
            assert_eq!(ago(now, At(now.0 - seconds * 1000)), text, "{seconds}");
        }
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (12_345, "12.3 s"),
            (302_000, "5 min 2 s"),
            (11_400_000, "3 h 10 min"),
        ] {
            assert_eq!(span(now, At(now.0 + ms)), text);
        }
    }

    #[test]
    fn datetime_field_value_is_valid() {
        for (text, shown) in
            [("2026-11-21", "2026-11-21T00:00"), ("2026-11-21 08:15:02Z", "2026-11-21T08:15:02")]
        {
            assert_eq!(parse_time(text).map(field).as_deref(), Some(shown), "{text}");
        }
    }

    #[test]
    fn time_formats_are_parsed() {
        for text in ["2026-11-21T08:15:02", "2026-11-21 08:15:02", "2026-11-21T08:15:02.250Z"] {
            assert_eq!(parse_time(text), Some(At(1_795_248_902_000)), "{text}");
        }
        assert_eq!(parse_time("2026-11-21"), parse_time("2026-11-21T00:00"));
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-30",
            "2026-11-21T25:00",
            "2026-11-21T08",
            "1795248902000",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn impossible_date_does_not_panic() {
        assert_eq!(exact(At(i64::MAX)), "1970-01-01 00:00:00 UTC");
    }
}
