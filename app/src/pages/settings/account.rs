//! Your own account: permissions, password, second factor, sessions and tokens.

use api::limits;
use api::people::{MyAccount, SessionView, TokenView};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::passkeys::{PASSKEYS_ID, Passkeys, RegisterForm};
use super::server_functions::{self, DismissNotices, EndOtherSessions, EndSession, SetPassword};
use super::tokens::Tokens;
use super::{ADMIN, SettingsTabs, grants_text};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::action::{on_success, problem_of};
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, load, reset_on_success,
};

type AccountData = (MyAccount, Vec<TokenView>);

#[component]
pub fn Account() -> impl IntoView {
    let query = use_query_map();
    let is_welcome = query.read_untracked().get("set").is_some();
    let account = Resource::new(|| (), |()| server_functions::account());
    view! {
        <Title text="My account"/>
        <div class="head">
            <h1>"My account"</h1>
            <SettingsTabs/>
        </div>
        {load(account, move |first| view! { <AccountSettings first is_welcome/> })}
    }
    .into_any()
}

#[component]
fn AccountSettings(first: AccountData, is_welcome: bool) -> impl IntoView {
    let is_admin = first.0.permissions.iter().any(|word| word == ADMIN);
    let feed = Feed::new(first, server_functions::account);
    let own = feed.value();
    let tokens = Signal::derive(move || own.read().1.clone());
    let person = Memo::new(move |_| own.read().0.person.clone());
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <Notices feed/>
        <section class="card" aria-label="Account">
            <header><h2>{move || person.read().name.clone()}</h2></header>
            <div class="padded">
                <dl class="facts">
                    <dt>"Permissions"</dt>
                    <dd>{move || grants_text(&person.read().grants)}</dd>
                    <dt>"Password"</dt>
                    <dd>
                        {move || if person.read().password { "set" } else { "none: you sign in \
                            with one-time links" }}
                    </dd>
                </dl>
            </div>
        </section>
        <PasswordCard feed is_welcome/>
        <FactorCard feed/>
        <PasskeysCard feed/>
        <Sessions feed/>
        <Tokens tokens
            person=None
            admin=is_admin
            makes=true
            changed=Callback::new(move |()| feed.now())
        />
    }
    .into_any()
}

/// Notices about resets by admins, until the user dismisses them.
#[component]
fn Notices(feed: Feed<AccountData>) -> impl IntoView {
    let dismiss = ServerAction::<DismissNotices>::new();
    on_success(dismiss, move |()| feed.now());
    let own = feed.value();
    let notices = Memo::new(move |_| own.read().0.notices.clone());
    let shown = move || {
        let line = |notice: api::people::AccessNotice| {
            view! {
                <p>
                    "A password was set with a sign-in link that " <b>{notice.by}</b> " created, "
                    <TimeText at=notice.at/> ". If that was not you, tell another admin."
                </p>
            }
        };
        let notices = notices.get();
        (!notices.is_empty()).then(|| {
            view! {
                <div class="notice" data-state="warn" role="status">
                    <div>
                        {notices.into_iter().map(line).collect_view()}
                        <ActionForm action=dismiss>
                            <button
                                class="button small"
                                type="submit"
                                disabled=move || dismiss.pending().get()
                            >
                                "Dismiss"
                            </button>
                        </ActionForm>
                        <EquivalentCommands
                            of=move |_: FormValues| vec![api::calls::dismiss_notices()]
                        />
                    </div>
                </div>
            }
        })
    };
    view! {
        {shown}
        <ProblemNotice problem=problem_of(dismiss)/>
    }
    .into_any()
}

#[component]
fn PasswordCard(feed: Feed<AccountData>, is_welcome: bool) -> impl IntoView {
    let set = ServerAction::<SetPassword>::new();
    on_success(set, move |()| feed.now());
    let own = feed.value();
    let asks_old = Memo::new(move |_| own.read().0.requires_old_password);
    let is_set = Memo::new(move |_| own.read().0.person.password);
    let done = move || {
        set.value().get().and_then(Result::ok)?;
        Some(view! {
            <div class="notice" role="status">
                <p>"The password is set. Other sessions have ended."</p>
            </div>
        })
    };
    let needed = Memo::new(move |_| own.read().0.password_needed);
    let first = move || {
        needed.get().then(|| {
            view! {
                <div class="notice" role="status">
                    <p>
                        "Set a password first. An admin created your sign-in link, so you can do \
                         nothing else in this session until then."
                    </p>
                </div>
            }
        })
    };
    let welcome = move || {
        (is_welcome && !is_set.get() && !needed.get()).then(|| {
            view! {
                <div class="notice" role="status">
                    <p>
                        "You are signed in. Set a password now, because your sign-in link works \
                         only once."
                    </p>
                </div>
            }
        })
    };
    let old = move || {
        asks_old.get().then(|| {
            view! {
                <div class="field">
                    <label for="old">"Current password"</label>
                    <input
                        class="input"
                        id="old"
                        name="old"
                        type="password" required
                        autocomplete="current-password"
                    />
                </div>
            }
        })
    };
    let fields = reset_on_success(set, move |_| {
        view! {
            {old}
            <div class="field">
                <label for="new">"New password"</label>
                <input
                    class="input"
                    id="new"
                    name="new"
                    type="password" required
                    minlength=limits::MIN_PASSWORD
                    maxlength=limits::MAX_PASSWORD
                    autocomplete="new-password"
                />
                <span class="hint">
                    "At least " {limits::MIN_PASSWORD}
                    " characters. Several words are easy to remember."
                </span>
            </div>
            <div class="field">
                <label for="again">"Repeat password"</label>
                <input
                    class="input"
                    id="again"
                    name="again"
                    type="password" required
                    autocomplete="new-password"
                />
            </div>
            <ProblemNotice problem=problem_of(set)/>
            <EquivalentCommands of=move |_: FormValues| vec![api::calls::set_password()]/>
        }
        .into_any()
    });
    view! {
        <section class="card" aria-label="Password" id="password">
            <header>
                <h2>{move || if is_set.get() { "Change password" } else { "Set password" }}</h2>
            </header>
            <div class="padded">
                {first}
                {welcome}
                <ActionForm action=set attr:class="form">
                    <input
                        type="hidden"
                        name="username"
                        autocomplete="username"
                        value=move || own.read().0.person.name.clone()
                    />
                    {fields}
                    {done}
                    <div class="buttons">
                        <button
                            class="button primary"
                            type="submit"
                            disabled=move || set.pending().get()
                        >
                            "Set password"
                        </button>
                    </div>
                </ActionForm>
            </div>
        </section>
    }
    .into_any()
}

/// The state of the second factor, and the authenticator app. The forms are plain ones, as on the
/// page of the second factor.
#[component]
fn FactorCard(feed: Feed<AccountData>) -> impl IntoView {
    let own = feed.value();
    let state = Memo::new(move |_| own.read().0.second_factor);
    let app = move || {
        let (act, label, class) = match state.get().totp {
            true => ("remove", "Remove the authenticator app", "button danger"),
            false => ("start", "Set up an authenticator app", "button"),
        };
        view! {
            <form method="post" action=addresses::SECOND_FACTOR>
                <input type="hidden" name="act" value=act/>
                <input type="hidden" name="next" value=addresses::ACCOUNT/>
                <div class="buttons"><button class=class type="submit">{label}</button></div>
            </form>
        }
    };
    let hint = move || match (state.get().any(), state.get().required) {
        (true, _) => "Gantry asks for it each time you sign in.",
        (false, true) => "The policy requires a second factor for everyone.",
        (false, false) => "Protects your account if someone learns your password.",
    };
    view! {
        <section class="card" aria-label="Second factor" id="second-factor">
            <header><h2>"Second factor"</h2></header>
            <div class="padded">
                <dl class="facts">
                    <dt>"Authenticator app"</dt>
                    <dd>{move || if state.get().totp { "set up" } else { "none" }}</dd>
                </dl>
                <p class="muted">{hint}</p>
                {app}
                <EquivalentCommands
                    of=move |_: FormValues| state
                        .get().totp
                        .then(api::calls::remove_totp)
                        .into_iter()
                        .collect()
                />
            </div>
        </section>
    }
    .into_any()
}

#[component]
fn PasskeysCard(feed: Feed<AccountData>) -> impl IntoView {
    let own = feed.value();
    let passkeys = Signal::derive(move || own.read().0.passkeys.clone());
    let changed = Callback::new(move |()| feed.now());
    view! {
        <section class="card" aria-label="Passkeys" id=PASSKEYS_ID>
            <header><h2>"Passkeys"</h2></header>
            <Passkeys passkeys own=true changed/>
            <div class="padded"><RegisterForm changed/></div>
        </section>
    }
    .into_any()
}

#[component]
fn Sessions(feed: Feed<AccountData>) -> impl IntoView {
    let end = ServerAction::<EndSession>::new();
    let end_others = ServerAction::<EndOtherSessions>::new();
    on_success(end, move |()| feed.now());
    on_success(end_others, move |_| feed.now());
    let own = feed.value();
    let sessions = Memo::new(move |_| own.read().0.sessions.clone());
    let one = move |session: SessionView| {
        let agent =
            if session.agent.is_empty() { "an unknown client".to_owned() } else { session.agent };
        let label = format!("End session of {agent}");
        view! {
            <tr>
                <td>
                    {agent}
                    {session.current.then(|| view! {
                        " "
                        <span class="pill" data-state="active">
                            {icon(Icon::Active)} "this session"
                        </span>
                    })}
                </td>
                <td data-label="Address" class="muted">{session.address}</td>
                <td data-label="Started"><TimeText at=session.since/></td>
                <td data-label="Last used"><TimeText at=session.last_seen/></td>
                <td data-label="Actions">
                    {(!session.current).then(|| view! {
                        <ActionForm action=end>
                            <input type="hidden" name="session" value=session.id.to_string()/>
                            <button
                                class="button quiet small"
                                type="submit"
                                aria-label=label.clone()
                                title=label
                            >
                                {icon(Icon::Cross)} "End session"
                            </button>
                        </ActionForm>
                    })}
                </td>
            </tr>
        }
    };
    view! {
        <section class="card" aria-label="Sessions">
            <header><h2>"Sessions"</h2></header>
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Client"</th>
                        <th scope="col">"Address"</th>
                        <th scope="col">"Started"</th>
                        <th scope="col">"Last used"</th>
                        <th scope="col">"Actions"</th>
                    </tr>
                </thead>
                <tbody>{move || sessions.get().into_iter().map(one).collect_view()}</tbody>
            </table>
            <div class="padded">
                <ProblemNotice problem=problem_of(end)/>
                <ProblemNotice problem=problem_of(end_others)/>
                <EquivalentCommands of=move |_: FormValues| {
                    let others = sessions.get()
                        .into_iter()
                        .filter(|session| !session.current)
                        .take(1);
                    let each = others.map(|session| api::calls::end_session(session.id));
                    each.chain([api::calls::end_other_sessions()]).collect::<Vec<_>>()
                }/>
                <ActionForm action=end_others>
                    <button
                        class="button"
                        type="submit"
                        disabled=move || end_others.pending().get()
                    >
                        {icon(Icon::Leave)} "End all other sessions"
                    </button>
                </ActionForm>
            </div>
        </section>
    }
    .into_any()
}
