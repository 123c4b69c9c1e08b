//! Lists that change under the reader.

use std::hash::Hash;

use leptos::prelude::*;

/// One view for each item of a list, by key. A view stays in the page as long as its item is in the list, and follows it through its
/// signal: what is focused stays focused, what is open stays open.
pub fn rows<T, K, V>(
    list: Signal<Vec<T>>,
    key: impl Fn(&T) -> K + Clone + Send + Sync + 'static,
    row: impl Fn(Memo<T>) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + PartialEq + Send + Sync + 'static,
    K: Eq + Hash + Send + Sync + 'static,
    V: IntoView + 'static,
{
    let key_of = key.clone();
    let one = move |first: T| {
        let (key, wanted) = (key_of.clone(), key_of(&first));
        row(Memo::new(move |last: Option<&T>| {
            let now = list.with(|list| list.iter().find(|item| key(item) == wanted).cloned());
            // Gone from the list: it is about to leave the page, and shows what it was until then.
            now.or_else(|| last.cloned()).unwrap_or_else(|| first.clone())
        }))
    };
    view! { <For each=move || list.get() key=key children=one/> }.into_any()
}
