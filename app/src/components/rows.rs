//! Lists that change while they are displayed.
//!
//! The keyed list of the framework compares and moves rows, which is much code for each type of
//! item. So this module maps keys to numbers and instantiates that code once, for lists of numbers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use api::listing::PAGE_SIZE;
use leptos::prelude::*;

/// A list and the numbers of its rows. A key keeps its number while it is in the list.
#[derive(Clone, PartialEq)]
struct NumberedRows<T, K: Eq + Hash> {
    order: Vec<u32>,
    items: HashMap<u32, T>,
    numbers: HashMap<K, u32>,
    next: u32,
}

impl<T: Clone, K: Eq + Hash> NumberedRows<T, K> {
    fn after(last: Option<&Self>, list: &[T], key: impl Fn(&T) -> K) -> Self {
        let next = last.map_or(0, |last| last.next);
        let room = list.len();
        let (items, numbers) = (HashMap::with_capacity(room), HashMap::with_capacity(room));
        let mut new = Self { order: Vec::with_capacity(room), items, numbers, next };
        for item in list {
            let key = key(item);
            let number =
                last.and_then(|last| last.numbers.get(&key).copied()).unwrap_or_else(|| {
                    new.next = new.next.wrapping_add(1);
                    new.next
                });
            new.order.push(number);
            new.items.insert(number, item.clone());
            new.numbers.insert(key, number);
        }
        new
    }
}

/// The number of visible rows, which a page may limit.
pub fn counted(shown: usize) -> String {
    if shown < PAGE_SIZE { shown.to_string() } else { format!("{shown} or more") }
}

/// Renders one view for each item, by key. The view stays in the page while its item is in the
/// list, and follows the item through a signal. So the focus and open sections survive. A change
/// costs one pass over the list.
pub fn rows<T, K, V>(
    list: Signal<Vec<T>>,
    key: impl Fn(&T) -> K + Clone + Send + Sync + 'static,
    row: impl Fn(Memo<T>) -> V + Clone + Send + Sync + 'static,
) -> AnyView
where
    T: Clone + PartialEq + Send + Sync + 'static,
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: IntoView + 'static,
{
    let numbered = Memo::new(move |last: Option<&NumberedRows<T, K>>| {
        list.with(|list| NumberedRows::after(last, list, &key))
    });
    let one = move |number: u32| {
        let Some(first) = numbered.with_untracked(|all| all.items.get(&number).cloned()) else {
            return ().into_any();
        };
        let item = Memo::new(move |last: Option<&T>| {
            let now = numbered.with(|all| all.items.get(&number).cloned());
            // The item was removed and its view is about to leave the page. Until then it shows the
            // last value.
            now.or_else(|| last.cloned()).unwrap_or_else(|| first.clone())
        });
        row(item).into_any()
    };
    by_number(Memo::new(move |_| numbered.with(|all| all.order.clone())), Arc::new(one))
}

fn by_number(order: Memo<Vec<u32>>, one: Arc<dyn Fn(u32) -> AnyView + Send + Sync>) -> AnyView {
    view! {
        <For each=move || order.get() key=|number| *number children=move |number| one(number)/>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(
        last: Option<&NumberedRows<(char, u8), char>>,
        list: &[(char, u8)],
    ) -> NumberedRows<(char, u8), char> {
        NumberedRows::after(last, list, |(key, _)| *key)
    }

    #[test]
    fn row_numbers_are_stable_and_never_reused() {
        let first = after(None, &[('a', 1), ('b', 1)]);
        assert_eq!(first.order, [1, 2]);
        let second = after(Some(&first), &[('c', 1), ('b', 2)]);
        assert_eq!(second.order, [3, 2], "b keeps its row with another value, and a is removed");
        assert_eq!(second.items[&2], ('b', 2));
        let third = after(Some(&second), &[('a', 3), ('c', 1)]);
        assert_eq!(third.order, [4, 3], "a gets a new row when it returns");
    }
}
