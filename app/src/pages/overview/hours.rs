//! Runs of the last 24 hours, as a bar chart and in words.

use api::overview::Hour;
use engine::counting::many;
use leptos::prelude::*;

use crate::addresses;

/// The width of an hour's bar, in units of the picture.
const BAR_WIDTH: i64 = 10;
const CHART_HEIGHT: i64 = 40;

/// The height of a bar for `n` if the highest bar is for `most`. Any non-zero number is visible.
fn height(n: i64, most: i64) -> i64 {
    if n == 0 { 0 } else { (n * CHART_HEIGHT / most.max(1)).max(1) }
}

/// The chart in words.
fn words(hours: &[Hour]) -> String {
    let runs: i64 = hours.iter().map(|hour| hour.runs).sum();
    let failed: i64 = hours.iter().map(|hour| hour.failed).sum();
    let most = hours.iter().map(|hour| hour.runs).max().unwrap_or_default();
    let time = match hours.len() {
        1 => "the last hour".to_owned(),
        n => format!("the last {n} hours"),
    };
    let all = many(runs, "run");
    match (runs, failed) {
        (0, _) => format!("No runs in {time}"),
        (_, 0) => format!("{all} in {time}, none failed. Most per hour: {most}"),
        _ => format!("{all} in {time}, {failed} failed or lost. Most per hour: {most}"),
    }
}

/// Bars by hour. The last one is the current hour.
#[component]
pub(super) fn Hours(hours: Memo<Vec<Hour>>) -> impl IntoView {
    let bars = move || {
        let hours = hours.read();
        let most = hours.iter().map(|hour| hour.runs).max().unwrap_or_default();
        let bar = |(hour, n): (&Hour, i64)| {
            let (all, failed) = (height(hour.runs, most), height(hour.failed, most));
            let bar = |class: &'static str, high: i64| {
                let [left, top, wide, high] =
                    [n * BAR_WIDTH + 1, CHART_HEIGHT - high, BAR_WIDTH - 2, high]
                        .map(|n| n.to_string());
                view! { <rect class=class x=left y=top width=wide height=high></rect> }
            };
            (bar("all", all), bar("failed", failed))
        };
        hours.iter().zip(0..).map(bar).collect_view()
    };
    let view_box = move || {
        format!(
            "0 0 {} {CHART_HEIGHT}",
            i64::try_from(hours.read().len()).unwrap_or_default() * BAR_WIDTH
        )
    };
    let text = Memo::new(move |_| words(&hours.read()));
    move || {
        (!hours.read().is_empty()).then(|| {
            view! {
                <div class="hours">
                    <svg viewBox=view_box preserveAspectRatio="none" role="img" aria-label=text>
                        {bars}
                    </svg>
                    <a href=addresses::RUNS>{text}</a>
                </div>
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::At;

    #[test]
    fn chart_matches_its_text() {
        let hour = |runs, failed| Hour { from: At(0), runs, failed };
        assert_eq!(words(&[hour(0, 0); 24]), "No runs in the last 24 hours");
        assert_eq!(
            words(&[hour(3, 0), hour(5, 0)]),
            "8 runs in the last 2 hours, none failed. Most per hour: 5"
        );
        let some = [hour(3, 1), hour(5, 0)];
        assert_eq!(words(&some), "8 runs in the last 2 hours, 1 failed or lost. Most per hour: 5");
        assert_eq!(
            (height(0, 5), height(5, 5), height(1, 1_000_000), height(0, 0)),
            (0, CHART_HEIGHT, 1, 0)
        );
    }
}
