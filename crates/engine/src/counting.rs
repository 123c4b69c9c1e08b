//! Counts with the correct singular or plural: `1 step`, `3 steps`. Plans, pages and commands share
//! this module.

use std::fmt;

/// The count with a noun whose plural ends in `s`: `0 steps`, `1 step`, `3 steps`.
pub fn many<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// The count with separators: `1,234,567`.
pub fn grouped(count: i64) -> String {
    let digits = count.unsigned_abs().to_string();
    let mut text = String::from(if count < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The first value for a count of one, the second for any other count.
pub fn either<N: PartialEq + From<u8>, T>(count: N, of_one: T, of_others: T) -> T {
    if count == N::from(1) { of_one } else { of_others }
}

/// The count in a sentence: `one node`, `3 nodes`.
pub fn count(n: usize, noun: &str) -> String {
    match n {
        1 => format!("one {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// A duration: `480 ms`, `12.3 s`, `5 min 2 s`, `3 h 10 min`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A duration that is set and not measured: `20 s`, `5 min`, `1 h`.
pub fn period(ms: u64) -> String {
    match ms {
        0 => "0 s".to_owned(),
        ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => duration(ms),
    }
}

/// The names as a list: `n1, n2 and 3 more`.
pub fn some_of(names: &[String]) -> String {
    first_of(names, names.len())
}

/// Like [`some_of`], if only the first names of a longer list are known.
pub fn first_of(names: &[String], count: usize) -> String {
    match names {
        [] => String::new(),
        [a] => a.clone(),
        [a, b] => format!("{a} and {b}"),
        [a, b, c] if count <= 3 => format!("{a}, {b} and {c}"),
        [a, b, ..] => format!("{a}, {b} and {} more", count.saturating_sub(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_one_is_singular() {
        let text = [many(0_i64, "step"), many(1_i64, "step"), many(2_usize, "node")];
        assert_eq!(text, ["0 steps", "1 step", "2 nodes"]);
        assert_eq!([0_usize, 1, 2].map(|n| either(n, "is", "are")), ["are", "is", "are"]);
    }

    #[test]
    fn large_counts_are_grouped() {
        let texts = [0, 999, 1_000, 1_234_567, -12_000].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567", "-12,000"]);
    }

    #[test]
    fn periods_have_the_largest_whole_unit() {
        let texts = [0, 250, 1_500, 20_000, 90_000, 300_000, 7_200_000].map(period);
        assert_eq!(texts, ["0 s", "250 ms", "1.5 s", "20 s", "90 s", "5 min", "2 h"]);
    }

    #[test]
    fn counts_and_lists_are_formatted() {
        assert_eq!(count(1, "node"), "one node");
        assert_eq!(count(0, "node"), "0 nodes");
        let names = |n: usize| (1..=n).map(|i| format!("n{i}")).collect::<Vec<_>>();
        assert_eq!(some_of(&names(2)), "n1 and n2");
        assert_eq!(some_of(&names(3)), "n1, n2 and n3");
        assert_eq!(some_of(&names(5)), "n1, n2 and 3 more");
    }
}
