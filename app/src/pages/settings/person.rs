//! One account, for admins.

use api::people::{AccessChangeView, AccountKind, PersonDetails, PersonView, TokenView};
use engine::counting::many;
use engine::ids::PersonId;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use super::passkeys::Passkeys;
use super::server_functions::{
    self, ChangeGrants, ConfirmPerson, CreateLink, ResetFactor, SetDisabled,
};
use super::tokens::Tokens;
use super::{ADMIN, GRANTS_ID, GrantFields, SettingsTabs, granted, grants_text, no_grants_warning};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::action::{last_of, on_success, problem_of};
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, load_one,
};

type PersonData = (PersonDetails, Vec<TokenView>);

#[component]
pub fn PersonPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let found = Resource::new(move || id.get(), server_functions::person);
    view! {
        <div class="head">
            <h1>"Account"</h1>
            <SettingsTabs/>
        </div>
        {load_one(found, (addresses::PEOPLE, "All people"), move |first| view! {
            <PersonSettings first/>
        })}
    }
    .into_any()
}

/// A link that is shown only once.
pub(super) fn link_notice(link: String, minutes: u64) -> impl IntoView {
    let hours = many(minutes / 60, "hour");
    // The server returns only the path. The origin is that of the page.
    let origin = RwSignal::new(String::new());
    Effect::new(move |_| origin.set(window().location().origin().unwrap_or_default()));
    view! {
        <div class="notice" role="status">
            <p>
                "Send this link to the person now, over a private channel. It is shown only once, \
                 works once, and is valid for "
                {hours} "."
            </p>
            <pre class="data" tabindex="0" role="group" aria-label="Link">
                {move || origin.get()} {link}
            </pre>
        </div>
    }
    .into_any()
}

#[component]
fn PersonSettings(first: PersonData) -> impl IntoView {
    let id = first.0.person.id;
    let service = first.0.person.kind == AccountKind::Service;
    let name = first.0.person.name.clone();
    let of = name.clone();
    let feed = Feed::new(first, move || server_functions::person(of.clone()));
    let found = feed.value();
    let person = Memo::new(move |_| found.read().0.person.clone());
    let tokens = Signal::derive(move || found.read().1.clone());
    let manages =
        Signal::derive(move || person.read().grants.iter().any(|grant| grant.permission == ADMIN));
    let passkeys = Signal::derive(move || found.read().0.passkeys.clone());
    let state = move || match person.read().disabled {
        true => {
            view! { <span class="pill" data-state="error">{icon(Icon::Dead)} "disabled"</span> }
                .into_any()
        }
        false => {
            view! { <span class="pill" data-state="active">{icon(Icon::Active)} "enabled"</span> }
                .into_any()
        }
    };
    view! {
        <Title text=name.clone()/>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        {move || no_grants_warning(&person.read().grants, format!("#{GRANTS_ID}"))}
        <section class="card" aria-label="Account">
            <header><h2>{name}</h2></header>
            <div class="padded">
                <dl class="facts">
                    <dt>"State"</dt>
                    <dd>{state}</dd>
                    <dt>"Permissions"</dt>
                    <dd>{move || grants_text(&person.read().grants)}</dd>
                    <dt>"Created"</dt>
                    <dd><TimeText at=person.read_untracked().created/></dd>
                </dl>
                <AccountActions id service person feed/>
            </div>
        </section>
        {(!service).then(|| view! {
            <Access id feed/>
            <section class="card" aria-label="Passkeys">
                <header><h2>"Passkeys"</h2></header>
                <Passkeys passkeys own=false changed=Callback::new(move |()| feed.now())/>
            </section>
        })}
        <Grants id service person feed/>
        <Tokens tokens
            person=Some(id)
            admin=manages
            makes=service
            changed=Callback::new(move |()| feed.now())
        />
    }
    .into_any()
}

/// Disabling, and a new sign-in link.
#[component]
fn AccountActions(
    id: PersonId,
    service: bool,
    person: Memo<PersonView>,
    feed: Feed<PersonData>,
) -> impl IntoView {
    let disable = ServerAction::<SetDisabled>::new();
    let link = ServerAction::<CreateLink>::new();
    let reset = ServerAction::<ResetFactor>::new();
    on_success(disable, move |()| feed.now());
    on_success(reset, move |()| feed.now());
    let last = last_of(link);
    let made = move || last.get().map(|made| link_notice(made.link, made.minutes));
    let word = move || if person.read().disabled { "Enable account" } else { "Disable account" };
    view! {
        <p class="muted">
            "Disabling takes effect on the next request. Sessions end, links and tokens are \
             revoked permanently, and approvals no longer count."
        </p>
        <div class="buttons">
            <ActionForm action=disable>
                <input type="hidden" name="person" value=id.to_string()/>
                <input
                    type="hidden"
                    name="disabled"
                    value=move || (!person.read().disabled).to_string()
                />
                <button class="button" type="submit" disabled=move || disable.pending().get()>
                    {word}
                </button>
            </ActionForm>
            {(!service).then(|| view! {
                <ActionForm action=link attr:class="needs-scripts">
                    <input type="hidden" name="person" value=id.to_string()/>
                    <button class="button" type="submit" disabled=move || link.pending().get()>
                        "Create one-time link"
                    </button>
                </ActionForm>
                <ActionForm action=reset>
                    <input type="hidden" name="person" value=id.to_string()/>
                    <button class="button" type="submit" disabled=move || reset.pending().get()>
                        "Reset second factor"
                    </button>
                </ActionForm>
            })}
        </div>
        {(!service).then(|| view! {
            <p class="muted">
                "A reset removes the authenticator app, revokes all passkeys and ends all sessions."
            </p>
        })}
        {(!service).then(|| view! {
            <p class="no-scripts muted">
                "To create a link without JavaScript, use POST /api/v1/people/ID/link."
            </p>
        })}
        <ProblemNotice problem=problem_of(disable)/>
        <ProblemNotice problem=problem_of(link)/>
        <ProblemNotice problem=problem_of(reset)/>
        <EquivalentCommands of=move |_: FormValues| {
            let switch = if person.read().disabled { api::calls::enable_person(id) } else {
                api::calls::disable_person(id)
            };
            let more = if service { Vec::new() } else {
                vec![api::calls::create_link(id), api::calls::reset_factor(id)]
            };
            [switch].into_iter().chain(more).collect::<Vec<_>>()
        }/>
        {made}
    }
    .into_any()
}

/// The admin who granted the access, and the confirmation by a second admin.
#[component]
fn Access(id: PersonId, feed: Feed<PersonData>) -> impl IntoView {
    let confirm = ServerAction::<ConfirmPerson>::new();
    on_success(confirm, move |_| feed.now());
    let found = feed.value();
    let limits = Memo::new(move |_| found.read().0.approvals_limited.clone());
    let changes = Memo::new(move |_| found.read().0.access_changes.clone());
    let limited = move || {
        let line = |limit: api::people::AccessLimitView| {
            view! {
                <li>
                    "Access from " <b>{limit.admin}</b> ": until " <TimeText at=limit.until/>
                    ", neither person's approvals count on changes of the other, unless another \
                     admin confirms the access."
                </li>
            }
        };
        let limits = limits.get();
        (!limits.is_empty()).then(|| {
            view! {
                <ul class="reason-list">{limits.into_iter().map(line).collect_view()}</ul>
                <ActionForm action=confirm>
                    <input type="hidden" name="person" value=id.to_string()/>
                    <button class="button" type="submit" disabled=move || confirm.pending().get()>
                        "Confirm access"
                    </button>
                </ActionForm>
                <EquivalentCommands of=move |_: FormValues| vec![api::calls::confirm_person(id)]/>
            }
        })
    };
    let row = |change: AccessChangeView| {
        let by = change.by.clone().unwrap_or_else(|| "the owner of the installation".to_owned());
        let confirmed = change.confirmed_by.clone().map(|by| format!("confirmed by {by}"));
        view! {
            <tr>
                <td>{changed(&change)}</td>
                <td data-label="By">{by}</td>
                <td data-label="When"><TimeText at=change.at/></td>
                <td data-label="Confirmation" class="muted">{confirmed}</td>
            </tr>
        }
    };
    view! {
        <section class="card" aria-label="Access">
            <header><h2>"Access"</h2></header>
            <div class="padded">
                {limited}
                <ProblemNotice problem=problem_of(confirm)/>
            </div>
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Change"</th>
                        <th scope="col">"By"</th>
                        <th scope="col">"When"</th>
                        <th scope="col">"Confirmation"</th>
                    </tr>
                </thead>
                <tbody>{move || changes.get().into_iter().map(row).collect_view()}</tbody>
            </table>
        </section>
    }
    .into_any()
}

fn changed(change: &AccessChangeView) -> String {
    let permission = change.permission.as_deref().unwrap_or_default();
    match (change.kind.as_str(), change.deployment.as_deref()) {
        ("created", _) => "account created".to_owned(),
        ("granted", None) => format!("{permission} granted"),
        ("granted", Some(deployment)) => format!("{permission} granted in {deployment}"),
        ("enabled", _) => "account enabled".to_owned(),
        ("link", _) => "sign-in link created".to_owned(),
        ("reset", _) => "password set with a sign-in link".to_owned(),
        ("token", _) => "API token created".to_owned(),
        ("factor_removed", _) => "second factor removed".to_owned(),
        (other, _) => other.to_owned(),
    }
}

#[component]
fn Grants(
    id: PersonId,
    service: bool,
    person: Memo<PersonView>,
    feed: Feed<PersonData>,
) -> impl IntoView {
    let change = ServerAction::<ChangeGrants>::new();
    on_success(change, move |_| feed.now());
    let grants = Memo::new(move |_| person.read().grants.clone());
    view! {
        <section class="card" id=GRANTS_ID aria-label="Permissions">
            <header><h2>"Permissions"</h2></header>
            <div class="padded">
                <p class="muted">
                    "A new reviewer or admin is signed out everywhere and must sign in again, \
                     except in the session that makes this change. A revoked permission ends with \
                     the next request."
                </p>
                <ActionForm action=change attr:class="form">
                    <input type="hidden" name="person" value=id.to_string()/>
                    <input
                        type="hidden"
                        name="version"
                        value=move || person.read().version.to_string()
                    />
                    {move || view! { <GrantFields id="change" grants=grants.get() service/> }}
                    <ProblemNotice problem=problem_of(change)/>
                    <EquivalentCommands of=move |typed: FormValues| {
                        let grants = if typed.is_checked("person") { granted(typed) } else { grants.get() };
                        vec![api::calls::change_grants(id, person.read().version, &grants)]
                    }/>
                    <div class="buttons">
                        <button
                            class="button primary"
                            type="submit"
                            disabled=move || change.pending().get()
                        >
                            "Change permissions"
                        </button>
                    </div>
                </ActionForm>
            </div>
        </section>
    }
    .into_any()
}
