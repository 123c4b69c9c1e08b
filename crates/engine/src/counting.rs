//! Counts with the correct singular or plural: `1 step`, `3 steps`. Plans, pages and commands share
//! this module.

use std::fmt;

/// The count with a noun whose plural ends in `s`: `0 steps`, `1 step`, `3 steps`.
pub fn many<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
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
        let said = [many(0_i64, "step"), many(1_i64, "step"), many(2_usize, "node")];
        assert_eq!(said, ["0 steps", "1 step", "2 nodes"]);
        assert_eq!([0_usize, 1, 2].map(|n| either(n, "is", "are")), ["are", "is", "are"]);
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
