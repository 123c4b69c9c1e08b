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
pub(super) fn parse_position(id: &str) -> Option<JournalPosition> {
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
    requests: BTreeMap<K, TopicRequest>,
    /// The position of the last event, or the start of the connection before the first event.
    last: Option<JournalPosition>,
}

impl<K: Ord> Default for Subscriptions<K> {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), last: None }
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
        self.requests.insert(
            subscriber,
            TopicRequest { topics: topics.into_iter().collect(), after: Some(after) },
        );
    }

    /// Removes a subscription.
    pub(super) fn leave(&mut self, subscriber: &K) {
        self.requests.remove(subscriber);
    }

    /// Keeps the subscriptions for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.requests.retain(|subscriber, _| keep(subscriber));
    }

    pub(super) fn topics(&self) -> BTreeSet<Topic> {
        self.requests.values().flat_map(|request| request.topics.iter().copied()).collect()
    }

    /// Whether these topics fit next to those of all subscribers except this one.
    pub(super) fn has_room(&self, subscriber: &K, topics: &[Topic], limit: usize) -> bool {
        let others = self
            .requests
            .iter()
            .filter(|(other, _)| *other != subscriber)
            .flat_map(|(_, request)| request.topics.iter().copied());
        others.chain(topics.iter().copied()).collect::<BTreeSet<_>>().len() <= limit
    }

    /// Removes other subscriptions until these topics fit. Returns the removed ones.
    pub(super) fn make_room(&mut self, subscriber: &K, topics: &[Topic], limit: usize) -> Vec<K>
    where
        K: Clone,
    {
        let mut removed = Vec::new();
        while !self.has_room(subscriber, topics, limit) {
            let Some(other) =
                self.requests.keys().rev().find(|other| *other != subscriber).cloned()
            else {
                break;
            };
            self.leave(&other);
            removed.push(other);
        }
        removed
    }

    /// The topics and start position of a new connection. `None` if the connection with the topics
    /// `open` serves all subscribers. It does not if a new subscriber's data is older than the last
    /// event.
    pub(super) fn next_connection(
        &mut self,
        open: Option<&BTreeSet<Topic>>,
    ) -> Option<(BTreeSet<Topic>, JournalPosition)> {
        let topics = self.topics();
        let last = self.last.unwrap_or_default();
        let afters = self.requests.values_mut().filter_map(|request| request.after.take());
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
    pub(super) fn has_passed(&self, position: JournalPosition) -> bool {
        self.last.is_some_and(|last| position < last)
    }

    /// Sets the position after a reset, even backwards.
    pub(super) fn restart(&mut self, position: JournalPosition) {
        self.last = Some(position);
    }

    /// Advances to a position up to which all events were received.
    pub(super) fn advance(&mut self, position: JournalPosition) {
        self.last = self.last.max(Some(position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(requests: &[Topic]) -> BTreeSet<Topic> {
        requests.iter().copied().collect()
    }

    #[test]
    fn connection_covers_all_topics_from_earliest_position() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, [Topic::Nodes], (20, 0));
        subscriptions.join(2, [Topic::Runs], (10, 0));
        let both = topics(&[Topic::Nodes, Topic::Runs]);
        assert_eq!(subscriptions.next_connection(None), Some((both.clone(), (10, 0))));
        assert_eq!(subscriptions.next_connection(Some(&both)), None);
        subscriptions.leave(&2);
        subscriptions.advance((30, 4));
        assert_eq!(
            subscriptions.next_connection(Some(&both)),
            Some((topics(&[Topic::Nodes]), (30, 4))),
            "the connection covers only events after its last one"
        );
        subscriptions.restart((5, 1));
        assert!(!subscriptions.has_passed((6, 0)), "a restored journal starts over");
        subscriptions.retain(|subscriber| *subscriber == 2);
        assert!(subscriptions.topics().is_empty());
    }

    #[test]
    fn subscriber_with_older_data_reopens_connection() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, [Topic::Nodes], (10, 0));
        let open = topics(&[Topic::Nodes]);
        subscriptions.next_connection(None);
        subscriptions.advance((30, 1));
        subscriptions.join(2, [Topic::Nodes], (30, 1));
        assert_eq!(
            subscriptions.next_connection(Some(&open)),
            None,
            "the subscriber has all events already"
        );
        subscriptions.join(3, [Topic::Nodes], (30, 0));
        assert_eq!(subscriptions.next_connection(Some(&open)), Some((open.clone(), (30, 0))));
        assert!(!subscriptions.has_passed((30, 1)), "events are repeated for new subscribers");
        subscriptions.advance((30, 1));
        subscriptions.advance((29, 1));
        assert!(subscriptions.has_passed((30, 0)) && !subscriptions.has_passed((30, 1)));
    }

    #[test]
    fn lost_connection_resumes_at_last_position() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, [Topic::Nodes], (10, 0));
        subscriptions.next_connection(None);
        subscriptions.advance((12, 3));
        assert_eq!(subscriptions.next_connection(None).map(|(_, begin)| begin), Some((12, 3)));
    }

    #[test]
    fn topics_are_limited() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.join(1, [Topic::Nodes, Topic::Runs], (1, 0));
        assert!(
            subscriptions.has_room(&2, &[Topic::Runs], 2)
                && !subscriptions.has_room(&2, &[Topic::Blueprints], 2)
        );
        assert!(
            subscriptions.has_room(&1, &[Topic::Blueprints, Topic::Reviews], 2),
            "replaced topics do not count"
        );
        subscriptions.join(2, [Topic::Runs], (1, 0));
        subscriptions.join(3, [Topic::Blueprints], (1, 0));
        assert_eq!(subscriptions.make_room(&1, &[Topic::Nodes, Topic::Runs], 2), [3]);
        assert_eq!(subscriptions.make_room(&1, &[Topic::Nodes, Topic::Runs], 2), [0; 0]);
        assert_eq!(subscriptions.topics(), topics(&[Topic::Nodes, Topic::Runs]));
    }

    #[test]
    fn event_id_parses_to_position() {
        assert_eq!(parse_position("12-3"), Some((12, 3)));
        assert_eq!(parse_position("12"), None);
        assert_eq!(parse_position(""), None);
    }
}
