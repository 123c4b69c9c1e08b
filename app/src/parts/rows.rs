//! Lists that change under the reader.

use std::collections::HashMap;
use std::hash::Hash;

use api::console::PAGE_SIZE;
use leptos::prelude::*;

/// How many there are, of what is shown as far as a page goes.
pub fn counted(shown: usize) -> String {
    if shown < PAGE_SIZE { shown.to_string() } else { format!("{shown} or more") }
}

/// One view for each item of a list, by key. A view stays in the page as long as its item is in the list, and follows it through its
/// signal: what is focused stays focused, what is open stays open. A change costs the list once, however many rows there are.
pub fn rows<T, K, V>(
    list: Signal<Vec<T>>,
    key: impl Fn(&T) -> K + Clone + Send + Sync + 'static,
    row: impl Fn(Memo<T>) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + PartialEq + Send + Sync + 'static,
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: IntoView + 'static,
{
    let key_of = key.clone();
    let by_key = Memo::new(move |_| {
        list.with(|list| list.iter().map(|item| (key_of(item), item.clone())).collect::<HashMap<K, T>>())
    });
    let key_of = key.clone();
    let one = move |first: T| {
        let wanted = key_of(&first);
        row(Memo::new(move |last: Option<&T>| {
            let now = by_key.with(|all| all.get(&wanted).cloned());
            // Gone from the list: it is about to leave the page, and shows what it was until then.
            now.or_else(|| last.cloned()).unwrap_or_else(|| first.clone())
        }))
    };
    view! { <For each=move || list.get() key=key children=one/> }.into_any()
}
