//! The audit: who did what, when, to what; its chain, checked part by part; and the way to take it along and check it without us.

use api::audit::{AuditEntry, AuditPage, CHECKED, ChainView};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::use_query_map;

use crate::calls::oversight as calls;
use crate::check::pretty;
use crate::clock::Moment;
use crate::parts::{Empty, Icon, SameList, icon, load};
use crate::places;

/// What the page is asked for; all of it is in the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    who: String,
    action: String,
    subject: String,
    since: String,
    until: String,
    before: Option<i64>,
    check: Option<Check>,
}

/// A part of the chain that is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    /// Behind this place.
    after: u64,
    /// What the part before ended with.
    link: String,
}

impl Wanted {
    fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let word = |name: &str| get(name).map(|text| text.trim().to_owned()).unwrap_or_default();
        let after = get("check").and_then(|place| place.parse().ok());
        Self {
            who: word("who"),
            action: word("action"),
            subject: word("subject"),
            since: word("since"),
            until: word("until"),
            before: get("before").and_then(|id| id.parse().ok()),
            check: after.map(|after| Check { after, link: word("link") }),
        }
    }

    fn address(&self) -> String {
        let said = [
            ("who", &self.who),
            ("action", &self.action),
            ("subject", &self.subject),
            ("since", &self.since),
            ("until", &self.until),
        ];
        let given = said.into_iter().filter(|(_, value)| !value.is_empty());
        let mut query: Vec<String> = given.map(|(key, value)| format!("{key}={}", places::encoded(value))).collect();
        query.extend(self.before.map(|before| format!("before={before}")));
        if let Some(Check { after, link }) = &self.check {
            query.push(format!("check={after}"));
            query.extend((!link.is_empty()).then(|| format!("link={}", places::encoded(link))));
        }
        match query.is_empty() {
            true => places::AUDIT.into(),
            false => format!("{}?{}", places::AUDIT, query.join("&")),
        }
    }

    /// The same list from its beginning.
    fn newest(&self) -> Self {
        Self { before: None, ..self.clone() }
    }

    fn checking(&self, after: u64, link: String) -> Self {
        Self { check: Some(Check { after, link }), ..self.clone() }
    }

    fn is_narrow(&self) -> bool {
        let all = [&self.who, &self.action, &self.subject, &self.since, &self.until];
        all.into_iter().any(|text| !text.is_empty())
    }
}

/// The audit.
#[component]
pub fn Audit() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        Wanted::read(|name| query.get(name))
    });
    let list = Memo::new(move |_| Wanted { check: None, ..wanted.get() });
    let entries = Resource::new(
        move || list.get(),
        |Wanted { who, action, subject, since, until, before, .. }| {
            calls::audit(who, action, subject, since, until, before)
        },
    );
    let check = Memo::new(move |_| wanted.get().check);
    let chain = Resource::new(
        move || check.get(),
        |check| async move {
            match check {
                None => Ok(None),
                Some(check) => calls::chain(check.after).await.map(Some),
            }
        },
    );
    let checked = move || {
        let wanted = wanted.get();
        wanted.check.is_some().then(|| load(chain, move |found| found.map(|found| held(&found, &wanted))))
    };
    view! {
        <Title text="Audit"/>
        <div class="head"><h1>"Audit"</h1></div>
        {load(entries, move |page| view! { <Found page wanted/> })}
        {checked}
        <SameList of=api::calls::List::Audit/>
    }
    .into_any()
}

/// The list, and what is done with the whole; nothing of it for who may not read it.
#[component]
fn Found(page: AuditPage, wanted: Memo<Wanted>) -> impl IntoView {
    let of = wanted.get_untracked();
    let next = page.next.map(|next| Wanted { before: Some(next), ..of.clone() }.address());
    let newest = of.before.map(|_| of.newest().address());
    let is_empty = page.entries.is_empty();
    let verify = move || wanted.get().checking(0, String::new()).address();
    let table = match (is_empty, of.is_narrow() || of.before.is_some()) {
        (true, true) => view! {
            <Empty icon=Icon::Search title="No entry fits">
                <a class="button" href=places::AUDIT>"The whole audit"</a>
            </Empty>
        }
        .into_any(),
        (true, false) => {
            view! { <Empty icon=Icon::Audit title="Nothing was done yet"><p>"Whatever anybody does is written here."</p></Empty> }
                .into_any()
        }
        (false, _) => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"When"</th>
                        <th scope="col">"Who"</th>
                        <th scope="col">"Did what"</th>
                        <th scope="col">"To what"</th>
                        <th scope="col" class="number">"Sealed"</th>
                    </tr>
                </thead>
                <tbody>{page.entries.into_iter().map(|entry| row(entry, &of)).collect_view()}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <Filters of=of.clone()/>
        <div class="card">
            {table}
            {(next.is_some() || newest.is_some()).then(|| view! {
                <nav class="pager" aria-label="Pages of the list">
                    {newest.map(|newest| view! { <a class="button small" href=newest>{icon(Icon::Up)} "Newest"</a> })}
                    <span class="grow"></span>
                    {next.map(|next| view! { <a class="button small" href=next>"Older" {icon(Icon::Right)}</a> })}
                </nav>
            })}
        </div>
        <section class="card" aria-label="The whole chain">
            <header><h2>"Is it whole?"</h2></header>
            <div class="inside">
                <p>"Entries are sealed, each link made of the one before: whoever changes or takes out an entry later breaks the chain behind it."</p>
                <div class="buttons">
                    <a class="button" href=verify>{icon(Icon::Check)} "Verify the chain"</a>
                    <a class="button" href=places::AUDIT_FILE rel="external" download="gantry-audit.jsonl">{icon(Icon::Download)} "Export what is sealed"</a>
                </div>
                <p class="muted">"The export is checked without any server, by who keeps it:"</p>
                <p><code>"gantry audit verify gantry-audit.jsonl"</code></p>
            </div>
        </section>
    }
    .into_any()
}

#[component]
fn Filters(of: Wanted) -> impl IntoView {
    let narrow = of.is_narrow();
    view! {
        <Form method="GET" action=places::AUDIT attr:class="filters" attr:role="search">
            <div class="field">
                <label for="audit-who">"Who"</label>
                <input class="input" id="audit-who" name="who" autocomplete="off" placeholder="ada, or gantry" value=of.who/>
            </div>
            <div class="field">
                <label for="audit-action">"Did what"</label>
                <input class="input" id="audit-action" name="action" autocomplete="off" placeholder="submission.commit" value=of.action/>
            </div>
            <div class="field">
                <label for="audit-subject">"To what"</label>
                <input class="input" id="audit-subject" name="subject" autocomplete="off" placeholder="a number or an id" value=of.subject/>
            </div>
            <div class="field">
                <label for="audit-since">"From (UTC)"</label>
                <input class="input" id="audit-since" name="since" type="datetime-local" value=of.since/>
            </div>
            <div class="field">
                <label for="audit-until">"Until (UTC)"</label>
                <input class="input" id="audit-until" name="until" type="datetime-local" value=of.until/>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
            {narrow.then(|| view! { <a class="button quiet" href=places::AUDIT>"Everything"</a> })}
        </Form>
    }
    .into_any()
}

fn row(entry: AuditEntry, of: &Wanted) -> impl IntoView + use<> {
    let AuditEntry { id, at, name, action, subject, detail, sealed, .. } = entry;
    let who = name.unwrap_or_else(|| "gantry".to_owned());
    let link = |wanted: Wanted| wanted.address();
    let base = Wanted { before: None, check: None, ..of.clone() };
    let by = link(Wanted { who: who.clone(), ..base.clone() });
    let of_action = link(Wanted { action: action.clone(), ..base.clone() });
    let about = (!subject.is_empty()).then(|| link(Wanted { subject: subject.clone(), ..base }));
    let is_more = detail.as_object().is_none_or(|fields| !fields.is_empty());
    let more = is_more.then(|| {
        let text = pretty(&detail);
        let label = format!("More of entry {id}");
        view! {
            <details class="about">
                <summary aria-label=label>"More"</summary>
                <pre tabindex="0">{text}</pre>
            </details>
        }
    });
    let subject = match about {
        Some(about) => view! { <a href=about><code>{subject}</code></a> }.into_any(),
        None => ().into_any(),
    };
    let seal = match sealed {
        Some(place) => view! { <span title="Its place in the chain">{place}</span> }.into_any(),
        None => view! { <span class="muted">"not yet"</span> }.into_any(),
    };
    view! {
        <tr>
            <td data-label="When" class="muted"><Moment at/></td>
            <td data-label="Who"><a href=by>{who}</a></td>
            <td data-label="Did what"><a href=of_action>{action}</a></td>
            <td data-label="To what"><div>{subject} {more}</div></td>
            <td data-label="Sealed" class="number">{seal}</td>
        </tr>
    }
    .into_any()
}

/// What came of checking a part of the chain.
fn held(found: &ChainView, wanted: &Wanted) -> AnyView {
    let link = wanted.check.as_ref().map(|check| check.link.clone()).unwrap_or_default();
    let other = (!link.is_empty() && link != found.chain.from.to_string())
        .then(|| "the link that this part goes on from is not the one that the part before ended with".to_owned());
    let broken = found.broken.clone().or(other);
    let far = found.chain.last;
    let (colour, shape, title) = match &broken {
        Some(_) => ("error", Icon::Error, "The chain is broken".to_owned()),
        None if found.end == 0 => ("todo", Icon::Todo, "Nothing is sealed yet".to_owned()),
        None if found.next.is_some() => {
            ("active", Icon::Active, format!("It holds up to entry {far} of {}", found.end))
        }
        None => ("active", Icon::Active, format!("The chain holds, to its end at entry {}", found.end)),
    };
    let said = match broken {
        Some(broken) => format!(
            "Up to entry {far} it holds; then {broken}. Somebody changed what is kept: compare it with an export or a backup."
        ),
        None => format!(
            "Note the end's link {} elsewhere: with it anybody can tell later whether something before it was changed.",
            found.hash
        ),
    };
    let go_on = found.next.map(|next| {
        let address = wanted.checking(next, found.chain.hash.to_string()).address();
        view! { <a class="button" href=address>"Go on, " {CHECKED} " at a time" {icon(Icon::Right)}</a> }
    });
    let unsealed = (found.unsealed > 0).then(|| {
        view! { <p class="muted">{found.unsealed} " entries are not sealed yet; that follows within a minute."</p> }
    });
    view! {
        <section class="notice" data-state=colour role="status" aria-label="What came of verifying">
            {icon(shape)}
            <div>
                <b>{title}</b>
                <p>{said}</p>
                {unsealed}
            </div>
            <div class="buttons">{go_on}</div>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_in_its_address() {
        let read = |query: &[(&str, &str)]| {
            Wanted::read(|name| query.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(read(&[]).address(), "/audit");
        let all = [
            ("who", "ada"),
            ("action", "a.b"),
            ("since", "2026-11-21T08:15"),
            ("before", "7"),
            ("check", "10000"),
            ("link", "ab"),
        ];
        let address = "/audit?who=ada&action=a.b&since=2026-11-21T08%3A15&before=7&check=10000&link=ab";
        assert_eq!(read(&all).address(), address);
        assert_eq!(read(&all).newest().before, None);
        assert!(read(&all).is_narrow() && !read(&[("check", "0")]).is_narrow());
    }
}
