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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_one_is_singular() {
        let said = [many(0_i64, "step"), many(1_i64, "step"), many(2_usize, "node")];
        assert_eq!(said, ["0 steps", "1 step", "2 nodes"]);
        assert_eq!([0_usize, 1, 2].map(|n| either(n, "is", "are")), ["are", "is", "are"]);
    }
}
