//! Everybody who may come in, and programs that may.

use api::listing::PersonSort;
use api::people::{AccountKind, PeopleWanted, PersonPage, PersonView};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use super::{GrantFields, Sections, granted, in_words};
use crate::calls::people::{self, AddPerson};
use crate::clock::Moment;
use crate::failure::{Answer, Failure};
use crate::parts::act::{problem_of, when_done};
use crate::parts::list::{Listed, choice_field, filters, head, hidden, one_of, pager, text_field};
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

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    kind: AccountKind,
    filter: String,
    disabled: String,
    listed: Listed<PersonSort>,
}

impl Asked {
    fn read(kind: AccountKind, query: &ParamsMap) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        let (filter, disabled) = (word("filter"), word("disabled"));
        let listed = Listed::read(place_of(kind), query, "after").asked("filter", "name contains", &filter).asked(
            "disabled",
            "disabled is",
            &disabled,
        );
        Self { kind, filter, disabled, listed }
    }

    fn wanted(&self) -> Result<PeopleWanted, Failure> {
        let disabled = one_of("disabled", &self.disabled, &[false, true], |off| if off { "true" } else { "false" })?;
        Ok(PeopleWanted {
            filter: self.filter.clone(),
            kind: Some(self.kind),
            disabled,
            sort: self.listed.order()?,
            after: self.listed.place(),
        })
    }
}

async fn fetch(asked: Asked) -> Answer<PersonPage> {
    people::people(asked.wanted()?).await
}

#[component]
fn Accounts(kind: AccountKind) -> impl IntoView {
    let query = use_query_map();
    let asked = Memo::new(move |_| Asked::read(kind, &query.read()));
    let listed = Memo::new(move |_| asked.read().listed.clone());
    let found = Resource::new(move || asked.get(), fetch);
    let title = if kind == AccountKind::Human { "People" } else { "Service accounts" };
    let which = [("false", "may come in"), ("true", "disabled")];
    let fields = (
        text_field("people-filter", "filter", "Name contains", Signal::derive(move || asked.read().filter.clone())),
        choice_field(
            "people-disabled",
            "disabled",
            "Which",
            Signal::derive(move || asked.read().disabled.clone()),
            which,
        ),
    );
    view! {
        <Title text=title/>
        <div class="head">
            <h1>{title}</h1>
            <Sections/>
        </div>
        {filters(listed, &[(PersonSort::Name, "name")], fields)}
        <SameList of=api::calls::List::People given=vec![("kind", kind.as_str().to_owned())]/>
        {load(found, move |first| view! { <List first asked=asked.get_untracked()/> })}
    }
    .into_any()
}

#[component]
fn List(first: PersonPage, asked: Asked) -> impl IntoView {
    let (kind, listed) = (asked.kind, asked.listed.clone());
    let feed = Feed::new(first, move || fetch(asked.clone()));
    let list = Memo::new(move |_| feed.value().read().people.clone());
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let of = StoredValue::new(listed);
    let table = move || match is_empty.get() {
        true => of.with_value(|listed| hidden(listed, "account", "accounts")).unwrap_or_else(|| {
            view! { <Empty icon=Icon::Person title="Nobody yet"><p>"Add the first one below."</p></Empty> }.into_any()
        }),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        {of.with_value(|listed| head(listed, PersonSort::Name, "Name", false))}
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
            {move || of.with_value(|listed| pager(listed, next.get().as_ref()))}
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
