//! Everybody who may come in, and programs that may.

use api::people::{AccountKind, PeopleWanted, PersonPage, PersonView};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::use_query_map;

use super::{GrantFields, Sections, granted, in_words};
use crate::calls::people::{self, AddPerson};
use crate::clock::Moment;
use crate::parts::act::{problem_of, when_done};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, Same, SameList, Typed, icon, load, rows};
use crate::places;

/// The list of people.
#[component]
pub fn People() -> impl IntoView {
    view! { <Accounts kind=AccountKind::Human/> }
}

/// The list of service accounts.
#[component]
pub fn Services() -> impl IntoView {
    view! { <Accounts kind=AccountKind::Service/> }
}

fn place_of(kind: AccountKind) -> &'static str {
    match kind {
        AccountKind::Human => places::PEOPLE,
        AccountKind::Service => places::SERVICES,
    }
}

#[component]
fn Accounts(kind: AccountKind) -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        PeopleWanted {
            filter: query.get("filter").unwrap_or_default(),
            kind: Some(kind),
            disabled: query.get("disabled").and_then(|word| word.parse().ok()),
            after: query.get("after"),
        }
    });
    let found = Resource::new(move || wanted.get(), people::people);
    let title = if kind == AccountKind::Human { "People" } else { "Service accounts" };
    let chosen =
        move |word: &'static str| wanted.read().disabled.map(|off| off.to_string()).unwrap_or_default() == word;
    view! {
        <Title text=title/>
        <div class="head">
            <h1>{title}</h1>
            <Sections/>
        </div>
        <Form method="GET" action=place_of(kind) attr:class="filters" attr:role="search">
            <div class="field">
                <label for="people-filter">"Name contains"</label>
                <input class="input" id="people-filter" name="filter" autocomplete="off" value=move || wanted.read().filter.clone()/>
            </div>
            <div class="field">
                <label for="people-disabled">"Which"</label>
                <select class="input" id="people-disabled" name="disabled">
                    <option value="" selected=move || chosen("")>"All"</option>
                    <option value="false" selected=move || chosen("false")>"May come in"</option>
                    <option value="true" selected=move || chosen("true")>"Disabled"</option>
                </select>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
        </Form>
        <SameList of=api::calls::List::People given=vec![("kind", kind.as_str().to_owned())]/>
        {load(found, move |first| view! { <List first wanted=wanted.get_untracked() kind/> })}
    }
    .into_any()
}

#[component]
fn List(first: PersonPage, wanted: PeopleWanted, kind: AccountKind) -> impl IntoView {
    let place = place_of(kind);
    let disabled = wanted.disabled.map(|off| off.to_string()).unwrap_or_default();
    let next = first.next.as_deref().map(|after| {
        format!(
            "{place}?filter={}&disabled={disabled}&after={}",
            places::encoded(&wanted.filter),
            places::encoded(after)
        )
    });
    let is_filtered = !wanted.filter.is_empty() || wanted.after.is_some() || wanted.disabled.is_some();
    let again = wanted.clone();
    let feed = Feed::new(first, move || people::people(again.clone()));
    let list = Memo::new(move |_| feed.value().read().people.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let table = move || match (is_empty.get(), is_filtered) {
        (true, true) => view! {
            <Empty icon=Icon::Search title="Nobody fits">
                <a class="button" href=place>"All"</a>
            </Empty>
        }
        .into_any(),
        (true, false) => {
            view! { <Empty icon=Icon::Person title="Nobody yet"><p>"Add the first one below."</p></Empty> }.into_any()
        }
        (false, _) => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Name"</th>
                        <th scope="col">"May"</th>
                        <th scope="col">"Comes in"</th>
                        <th scope="col">"Last here"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |person| person.id, row)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {table}
            {next.map(|next| view! {
                <nav class="pager" aria-label="Pages of the list">
                    <span class="grow"></span>
                    <a class="button small" href=next>"Next" {icon(Icon::Right)}</a>
                </nav>
            })}
        </div>
        <Add kind added=Callback::new(move |()| feed.now())/>
    }
    .into_any()
}

fn row(person: Memo<PersonView>) -> impl IntoView {
    let way = move || match person.read() {
        person if person.disabled => {
            view! { <span class="pill" data-state="error">{icon(Icon::Dead)} "disabled"</span> }.into_any()
        }
        person if person.kind == AccountKind::Service => "by tokens".into_any(),
        person if person.password => "by a password".into_any(),
        _ => "by a link".into_any(),
    };
    view! {
        <tr>
            <td>{move || view! { <a href=places::person(person.read().id)><b>{person.read().name.clone()}</b></a> }}</td>
            <td data-label="May">{move || in_words(&person.read().grants)}</td>
            <td data-label="Comes in">{way}</td>
            <td data-label="Last here" class="muted">{move || match person.read().seen {
                Some(at) => view! { <Moment at/> }.into_any(),
                None => "not lately".into_any(),
            }}</td>
        </tr>
    }
    .into_any()
}

#[component]
fn Add(kind: AccountKind, added: Callback<()>) -> impl IntoView {
    let add = ServerAction::<AddPerson>::new();
    when_done(add, move |_| added.run(()));
    let service = kind == AccountKind::Service;
    let (title, about) = match service {
        true => (
            "Add a service account",
            "A program comes in by tokens alone, which you make on its page. It never reviews.",
        ),
        false => (
            "Add a person",
            "They come in by a link that you hand them; it works once, for a day, and asks them to set a password.",
        ),
    };
    let made = move || {
        let made = add.value().get().and_then(Result::ok)?;
        let link = made.link.map(|made| super::person::link_notice(made.link, made.minutes));
        Some(view! { {link} <p><a href=places::person(made.id)>"To the new account"</a></p> })
    };
    view! {
        <section class="card" aria-label=title>
            <header><h2>{title}</h2></header>
            <div class="inside">
                <p class="muted">{about}</p>
                <ActionForm action=add attr:class="form">
                    <input type="hidden" name="kind" value=kind.as_str()/>
                    <div class="field">
                        <label for="person-name">"Name"</label>
                        <input class="input" id="person-name" name="name" required maxlength="96" autocomplete="off" spellcheck="false" placeholder="ada"/>
                        <span class="hint">"Lower case letters, digits, '.', '_', '@' and '-'. It stays theirs for ever."</span>
                    </div>
                    <GrantFields id="add" grants=Vec::new() service/>
                    <ProblemNotice problem=problem_of(add)/>
                    <Same of=move |typed: Typed| vec![api::calls::add_person(&typed.or("name", "NAME"), kind, &granted(typed))]/>
                    {made}
                    <div class="buttons">
                        <button class="button primary" type="submit" disabled=move || add.pending().get()>{icon(Icon::Plus)} "Add"</button>
                    </div>
                    <noscript><p class="muted">"Without scripts the link can't be shown here: ask POST /api/v1/people, or make a new one by POST /api/v1/people/ID/link."</p></noscript>
                </ActionForm>
            </div>
        </section>
    }
    .into_any()
}
