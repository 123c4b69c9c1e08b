//! The lists of people and of service accounts.

use api::calls::List;
use api::people::PersonSort;
use api::people::{AccountKind, CreatedPerson, Grant, PeopleQuery, PersonPage, PersonView};
use engine::ids::PersonId;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;

use super::server_functions::{self, AddPerson};
use super::{GRANTS_ID, GrantFields, SettingsTabs, granted, grants_text, no_grants_warning};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::action::{on_success, problem_of};
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{
    Empty, EquivalentCommands, FormValues, Icon, ProblemNotice, icon, reset_on_success,
};
use crate::failure::ServerResult;

#[component]
pub fn People() -> impl IntoView {
    view! { <Accounts kind=AccountKind::Human/> }
}

#[component]
pub fn Services() -> impl IntoView {
    view! { <Accounts kind=AccountKind::Service/> }
}

columns_of!(Part {
    Name "name" "Name",
    Permissions "permissions" "Permissions",
    SignIn "sign_in" "Signs in with",
    LastSeen "last_seen" "Last seen",
});

/// The accounts of one kind.
#[derive(Clone, Copy)]
struct AllAccounts {
    kind: AccountKind,
    /// The account that was added last. Its link is shown only once, so it remains when the list
    /// changes.
    made: RwSignal<Option<Added>>,
}

/// The added account and its grants.
type Added = (CreatedPerson, Vec<Grant>);

impl ListPage for AllAccounts {
    type Sort = PersonSort;
    type Part = Part;
    type Page = PersonPage;
    type Key = PersonId;

    const ID: &'static str = "people";
    const NAMES: (&'static str, &'static str) = ("account", "accounts");
    const CURSOR_PARAM: &'static str = "after";
    const FIELDS: &'static [Field] = &[
        Field::text("filter", "Name contains", "name contains"),
        Field::choice("disabled", "State", "disabled is", || {
            vec![("false", "enabled"), ("true", "disabled")]
        }),
    ];
    const SORTS: &'static [(PersonSort, &'static str)] = &[(PersonSort::Name, "name")];
    const API_LIST: List = List::People;

    fn path(self) -> String {
        let path = match self.kind {
            AccountKind::Human => addresses::PEOPLE,
            AccountKind::Service => addresses::SERVICES,
        };
        path.to_owned()
    }

    async fn fetch(self, address: ListAddress<PersonSort>) -> ServerResult<PersonPage> {
        let disabled =
            address.one_of("disabled", &[false, true], |off| if off { "true" } else { "false" })?;
        let (sort, after) = address.page_position()?;
        server_functions::people(PeopleQuery {
            filter: address.param("filter"),
            kind: Some(self.kind),
            disabled,
            sort,
            limit: None,
            after,
        })
        .await
    }

    fn sorted_by(column: Part) -> Option<(PersonSort, bool)> {
        (column == Part::Name).then_some((PersonSort::Name, false))
    }

    fn key(person: &PersonView) -> PersonId {
        person.id
    }

    fn api_param(self, address: &ListAddress<PersonSort>, word: &str) -> Option<String> {
        Some(if word == "kind" { self.kind.as_str().to_owned() } else { address.param(word) })
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Person title="No accounts yet">
                <p>"Add the first one below."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, person: Memo<PersonView>, with: RowContext<Self>) -> AnyView {
        let sign_in_method = move || match person.read() {
            person if person.disabled => {
                view! { <span class="pill" data-state="error">{icon(Icon::Dead)} "disabled"</span> }
                    .into_any()
            }
            person if person.kind == AccountKind::Service => "tokens".into_any(),
            person if person.password => "password".into_any(),
            _ => "one-time link".into_any(),
        };
        let seen = move || match person.read().last_seen {
            Some(at) => view! { <TimeText at/> }.into_any(),
            None => "never".into_any(),
        };
        view! {
            <tr>
                <td>
                    {move || view! {
                        <a href=addresses::person(&person.read().name)>
                            <b>{person.read().name.clone()}</b>
                        </a>
                    }}
                </td>
                {with.cell(Part::Permissions, "", move || grants_text(&person.read().grants))}
                {with.cell(Part::SignIn, "", sign_in_method)}
                {with.cell(Part::LastSeen, "muted", seen)}
            </tr>
        }
        .into_any()
    }

    fn below(self, _: RowContext<Self>, again: Callback<()>) -> AnyView {
        view! { <AddForm kind=self.kind made=self.made added=again/> }.into_any()
    }
}

#[component]
fn Accounts(kind: AccountKind) -> impl IntoView {
    let list = ListOf::new(AllAccounts { kind, made: RwSignal::new(None) });
    let title = if kind == AccountKind::Human { "People" } else { "Service accounts" };
    view! {
        <Title text=title/>
        <div class="head">
            <h1>{title}</h1>
            <SettingsTabs/>
        </div>
        {list.view()}
    }
    .into_any()
}

#[component]
fn AddForm(kind: AccountKind, made: RwSignal<Option<Added>>, added: Callback<()>) -> impl IntoView {
    let add = ServerAction::<AddPerson>::new();
    on_success(add, move |person| {
        made.set(Some(person));
        added.run(());
    });
    let service = kind == AccountKind::Service;
    let (title, about) = match service {
        true => (
            "Add a service account",
            "An API client authenticates with tokens, which you create on the account's page. It \
             cannot review changes.",
        ),
        false => (
            "Add a person",
            "You send the person a one-time link, which is valid for one day. The person then \
             sets a password.",
        ),
    };
    let shown = move || {
        let (made, grants) = made.get()?;
        let page = addresses::person(&made.name);
        let nothing = no_grants_warning(&grants, format!("{page}#{GRANTS_ID}"));
        let link = made.link.map(|made| super::person::link_notice(made.link, made.minutes));
        Some(view! { {link} {nothing} <p><a href=page>"Open the new account"</a></p> })
    };
    let fields = reset_on_success(add, move |refused| {
        view! {
            <div class="field">
                <label for="person-name">"Name"</label>
                <input
                    class="input"
                    id="person-name"
                    name="name" required
                    maxlength="96"
                    autocomplete="off"
                    spellcheck="false"
                    placeholder=if service { "nightly-backup" } else { "ada" }
                    value=refused.typed("name")
                />
                <span class="hint">
                    "Lower-case letters, digits, '.', '_', '@' and '-'. The name cannot be changed \
                     later."
                </span>
            </div>
            <GrantFields id="add" grants=Vec::new() service refused=refused.clone()/>
            <ProblemNotice problem=problem_of(add)/>
            <EquivalentCommands
                of=move |typed: FormValues| vec![
                    api::calls::add_person(&typed.or("name", "NAME"), kind, &granted(typed))
                ]
            />
        }
        .into_any()
    });
    view! {
        <section class="card" aria-label=title>
            <header><h2>{title}</h2></header>
            <div class="padded">
                <p class="muted">{about}</p>
                <ActionForm action=add attr:class="form">
                    <input type="hidden" name="kind" value=kind.as_str()/>
                    {fields}
                    <div class="buttons">
                        <button
                            class="button primary"
                            type="submit"
                            disabled=move || add.pending().get()
                        >
                            {icon(Icon::Plus)} "Add account"
                        </button>
                    </div>
                    <noscript>
                        <p class="muted">
                            "Without JavaScript, the link cannot be shown here. Use POST \
                             /api/v1/people, or create a new link with POST /api/v1/people/ID/link."
                        </p>
                    </noscript>
                    {shown}
                </ActionForm>
            </div>
        </section>
    }
    .into_any()
}
