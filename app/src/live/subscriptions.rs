//! Subscriptions: the topics of each subscriber, and their positions in the journal.
//!
//! Used twice: by a tab for the parts of its page, and by the leader for all tabs. In both cases
//! the result is one list of topics and one start position. This position is after the last
//! received event, but no later than the position of any new subscriber.

use std::collections::{BTreeMap, BTreeSet};

use super::Topic;

/// A position in the journal: transaction and event. A page's cursor has no event.
pub(super) type JournalPosition = (i64, i64);

/// Parses the id of an event, `transaction-event`.
pub(super) fn place(id: &str) -> Option<JournalPosition> {
    let (transaction, event) = id.split_once('-')?;
    Some((transaction.parse().ok()?, event.parse().ok()?))
}

#[derive(Debug)]
struct TopicRequest {
    topics: BTreeSet<Topic>,
    /// The start position. `None` once a connection covers it.
    after: Option<JournalPosition>,
}

/// All subscriptions that share one connection.
#[derive(Debug)]
pub(super) struct Subscriptions<K: Ord> {
    of: BTreeMap<K, TopicRequest>,
    /// The position of the last event, or the start of the connection before the first event.
    last: Option<JournalPosition>,
}

impl<K: Ord> Default for Subscriptions<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), last: None }
    }
}

impl<K: Ord> Subscriptions<K> {
    /// Adds or replaces a subscription.
    pub(super) fn join(
        &mut self,
        subscriber: K,
        topics: impl IntoIterator<Item = Topic>,
        after: JournalPosition,
    ) {
        self.of.insert(
            subscriber,
            TopicRequest { topics: topics.into_iter().collect(), after: Some(after) },
        );
    }

    /// Removes a subscription.
    pub(super) fn leave(&mut self, subscriber: &K) {
        self.of.remove(subscriber);
    }

    /// Keeps the subscriptions for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.of.retain(|subscriber, _| keep(subscriber));
    }

    pub(super) fn topics(&self) -> BTreeSet<Topic> {
        self.of.values().flat_map(|want| want.topics.iter().copied()).collect()
    }

    /// Whether these topics fit next to those of all subscribers except this one.
    pub(super) fn has_room(&self, subscriber: &K, topics: &[Topic], limit: usize) -> bool {
        let others = self
            .of
            .iter()
            .filter(|(other, _)| *other != subscriber)
            .flat_map(|(_, want)| want.topics.iter().copied());
        others.chain(topics.iter().copied()).collect::<BTreeSet<_>>().len() <= limit
    }

    /// Removes other subscriptions until these topics fit. Returns the removed ones.
    pub(super) fn make_room(&mut self, subscriber: &K, topics: &[Topic], limit: usize) -> Vec<K>
    where
        K: Clone,
    {
        let mut gone = Vec::new();
        while !self.has_room(subscriber, topics, limit) {
            let Some(other) = self.of.keys().rev().find(|other| *other != subscriber).cloned()
            else {
                break;
            };
            self.leave(&other);
            gone.push(other);
        }
        gone
    }

    /// The topics and start position of a new connection. `None` if the connection with the topics
    /// `open` serves all subscribers. It does not if a new subscriber's data is older than the last
    /// event.
    pub(super) fn lacking(
        &mut self,
        open: Option<&BTreeSet<Topic>>,
    ) -> Option<(BTreeSet<Topic>, JournalPosition)> {
        let topics = self.topics();
        let last = self.last.unwrap_or_default();
        let afters = self.of.values_mut().filter_map(|want| want.after.take());
        let earliest = afters.min();
        if open == Some(&topics) && earliest.is_none_or(|after| after >= last) {
            return None;
        }
        let begin = earliest.into_iter().chain(self.last).min().unwrap_or_default();
        self.last = Some(begin);
        Some((topics, begin))
    }

    /// Whether this position was passed. Several events may share a position, so only a later event
    /// passes it.
    pub(super) fn has_passed(&self, place: JournalPosition) -> bool {
        self.last.is_some_and(|last| place < last)
    }

    /// Sets the position after a reset, even backwards.
    pub(super) fn restart(&mut self, place: JournalPosition) {
        self.last = Some(place);
    }

    /// Advances to a position up to which all events were received.
    pub(super) fn advance(&mut self, place: JournalPosition) {
        self.last = self.last.max(Some(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(of: &[Topic]) -> BTreeSet<Topic> {
        of.iter().copied().collect()
    }

    #[test]
    fn connection_covers_all_topics_from_earliest_position() {
        let mut wants = Subscriptions::default();
        wants.join(1, [Topic::Nodes], (20, 0));
        wants.join(2, [Topic::Runs], (10, 0));
        let both = topics(&[Topic::Nodes, Topic::Runs]);
        assert_eq!(wants.lacking(None), Some((both.clone(), (10, 0))));
        assert_eq!(wants.lacking(Some(&both)), None);
        wants.leave(&2);
        wants.advance((30, 4));
        assert_eq!(
            wants.lacking(Some(&both)),
            Some((topics(&[Topic::Nodes]), (30, 4))),
            "after the last event"
        );
        wants.restart((5, 1));
        assert!(!wants.has_passed((6, 0)), "a restored journal starts over");
        wants.retain(|subscriber| *subscriber == 2);
        assert!(wants.topics().is_empty());
    }

    #[test]
    fn subscriber_with_older_data_reopens_connection() {
        let mut wants = Subscriptions::default();
        wants.join(1, [Topic::Nodes], (10, 0));
        let open = topics(&[Topic::Nodes]);
        wants.lacking(None);
        wants.advance((30, 1));
        wants.join(2, [Topic::Nodes], (30, 1));
        assert_eq!(wants.lacking(Some(&open)), None, "no new events");
        wants.join(3, [Topic::Nodes], (30, 0));
        assert_eq!(wants.lacking(Some(&open)), Some((open.clone(), (30, 0))));
        assert!(!wants.has_passed((30, 1)), "repeated for new subscribers");
        wants.advance((30, 1));
        wants.advance((29, 1));
        assert!(wants.has_passed((30, 0)) && !wants.has_passed((30, 1)));
    }

    #[test]
    fn lost_connection_resumes_at_last_position() {
        let mut wants = Subscriptions::default();
        wants.join(1, [Topic::Nodes], (10, 0));
        wants.lacking(None);
        wants.advance((12, 3));
        assert_eq!(wants.lacking(None).map(|(_, begin)| begin), Some((12, 3)));
    }

    #[test]
    fn topics_are_limited() {
        let mut wants = Subscriptions::default();
        wants.join(1, [Topic::Nodes, Topic::Runs], (1, 0));
        assert!(
            wants.has_room(&2, &[Topic::Runs], 2) && !wants.has_room(&2, &[Topic::Blueprints], 2)
        );
        assert!(
            wants.has_room(&1, &[Topic::Blueprints, Topic::Reviews], 2),
            "replaced topics do not count"
        );
        wants.join(2, [Topic::Runs], (1, 0));
        wants.join(3, [Topic::Blueprints], (1, 0));
        assert_eq!(wants.make_room(&1, &[Topic::Nodes, Topic::Runs], 2), [3]);
        assert_eq!(wants.make_room(&1, &[Topic::Nodes, Topic::Runs], 2), [0; 0]);
        assert_eq!(wants.topics(), topics(&[Topic::Nodes, Topic::Runs]));
    }

    #[test]
    fn event_id_parses_to_position() {
        assert_eq!(place("12-3"), Some((12, 3)));
        assert_eq!(place("12"), None);
        assert_eq!(place(""), None);
    }
}
