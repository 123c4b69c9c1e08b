//! Suggestions for misspelled names.

/// The most similar name, if at most a third of its characters differ. Names with more differences
/// are unlikely to be what the user meant.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let length = name.chars().count();
    let alike = names.filter_map(|other| {
        let of_other = other.chars().count();
        // The threshold depends on the length of each name, so each is tested before names are
        // compared by distance.
        let is_near = |distance: usize| distance * 3 <= length.max(of_other);
        // The distance is at least the difference in length. This check comes first because input
        // can have any length.
        let distance =
            is_near(length.abs_diff(of_other)).then(|| strsim::damerau_levenshtein(name, other))?;
        is_near(distance).then_some((distance, other))
    });
    alike.min().map(|(_, best)| best.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let of = |name: &str| nearest(name, ["web", "runtime", "dns-client"].into_iter());
        assert_eq!(of("runtme").as_deref(), Some("runtime"));
        assert_eq!(of("dnsclient").as_deref(), Some("dns-client"));
        for far in ["db", "app", "zzz", "nothing", "x", "ööö", &"web".repeat(1_000_000)] {
            assert_eq!(of(far), None, "{far:.20}");
        }
        assert_eq!(nearest("ap", ["a", "app", "b"].into_iter()).as_deref(), Some("app"));
    }
}
