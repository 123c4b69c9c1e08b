//! The tokens of a person. A token is shown once, which requires JavaScript. So without JavaScript
//! no token is created: the form is missing, and the server refuses a form that was posted before
//! hydration.

use api::calls::Call;
use api::limits;
use api::people::TokenView;
use engine::ids::PersonId;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::server_functions::{CreateToken, RevokeToken};
use crate::clock::TimeText;
use crate::components::action::{last_of, on_success, problem_of};
use crate::components::{
    EquivalentCommands, FormValues, Icon, ProblemNotice, Refused, icon, reset_on_success,
};

/// The card. `person` is a service account. `None`: the reader.
#[component]
pub(super) fn Tokens(
    tokens: Signal<Vec<TokenView>>,
    person: Option<PersonId>,
    #[prop(into)] admin: Signal<bool>,
    makes: bool,
    changed: Callback<()>,
) -> impl IntoView {
    let revoke = ServerAction::<RevokeToken>::new();
    on_success(revoke, move |()| changed.run(()));
    let none =
        move || tokens.read().is_empty().then(|| view! { <p class="muted">"No tokens yet."</p> });
    // The list has its maximum length, so older invalid tokens may be missing.
    let older = move || {
        let is_full = tokens.read().len() >= limits::LISTED_TOKENS;
        is_full.then(|| view! { <p class="muted">"Only the newest invalid tokens are shown."</p> })
    };
    view! {
        <section class="card" aria-label="Tokens">
            <header><h2>"Tokens"</h2></header>
            <div class="padded">
                <p class="muted">
                    "With a token, an API client uses the account's permissions, within the \
                     token's own limits. It cannot review changes or create tokens. It can manage \
                     accounts only if it belongs to a service account with the permission admin. \
                     Send the token as " <code>"Authorization: Bearer gantry_…"</code> "."
                </p>
                {none}
                <ul class="plain tokens">
                    {
                        move || tokens.get()
                            .into_iter()
                            .map(|token| one(token, revoke))
                            .collect_view()
                    }
                </ul>
                {older}
                <ProblemNotice problem=problem_of(revoke)/>
                <EquivalentCommands of=move |_: FormValues| {
                    let holding = tokens.get().into_iter().filter(|token| token.valid);
                    holding.map(|token| api::calls::revoke_token(token.id)).collect::<Vec<_>>()
                }/>
                {makes.then(|| view! { <CreateForm person admin changed/> })}
            </div>
        </section>
    }
    .into_any()
}

fn one(token: TokenView, revoke: ServerAction<RevokeToken>) -> impl IntoView {
    let state = match (token.valid, token.revoked) {
        (true, _) => {
            view! { <span class="muted">"until " <TimeText at=token.expires/></span> }.into_any()
        }
        (false, Some(at)) => {
            view! { <span class="muted">"revoked " <TimeText at/></span> }.into_any()
        }
        (false, None) => {
            view! { <span class="muted">"not valid, expiry " <TimeText at=token.expires/></span> }
                .into_any()
        }
    };
    let used = match token.used {
        Some(at) => view! { <span class="muted">", used " <TimeText at/></span> }.into_any(),
        None => view! { <span class="muted">", never used"</span> }.into_any(),
    };
    let place = token.deployment.map(|name| format!(" in {name}")).unwrap_or_default();
    let label = format!("Revoke token {}", token.name);
    view! {
        <li>
            <b>{token.name}</b> " " {token.scopes.join(", ")} {place} " " {state} {used}
            {token.valid.then(|| view! {
                <ActionForm action=revoke>
                    <input type="hidden" name="token" value=token.id.to_string()/>
                    <button
                        class="button quiet small"
                        type="submit"
                        aria-label=label.clone()
                        title=label
                    >
                        {icon(Icon::Cross)} "Revoke"
                    </button>
                </ActionForm>
            })}
        </li>
    }
    .into_any()
}

/// The API call of the form.
fn create_call(typed: FormValues, person: Option<PersonId>) -> Call {
    let ticked: Vec<&str> = ["viewer", "operator", "admin"]
        .into_iter()
        .filter(|scope| typed.is_checked(scope))
        .collect();
    let scopes = if ticked.is_empty() { vec!["viewer"] } else { ticked };
    let (deployment, days) = (typed.get("deployment"), typed.get("days").parse().ok());
    let deployment = (!deployment.is_empty()).then_some(deployment.as_str());
    api::calls::create_token(&typed.or("name", "NAME"), &scopes, deployment, days, person)
}

/// Creates a token and shows it once.
#[component]
fn CreateForm(
    person: Option<PersonId>,
    admin: Signal<bool>,
    changed: Callback<()>,
) -> impl IntoView {
    let make = ServerAction::<CreateToken>::new();
    on_success(make, move |_| changed.run(()));
    let last = last_of(make);
    let made = move || {
        last.get().map(|made| {
            view! {
                <div class="notice" role="status">
                    <p>"Copy the token now. It is shown only once."</p>
                    <pre class="data" tabindex="0" role="group" aria-label="Token">
                        {made.token}
                    </pre>
                </div>
            }
        })
    };
    let fields = reset_on_success(make, move |refused| {
        view! {
            {token_fields(&refused, admin.get(), person.is_some())}
            <ProblemNotice problem=problem_of(make)/>
            <EquivalentCommands of=move |typed: FormValues| vec![create_call(typed, person)]/>
        }
        .into_any()
    });
    view! {
        <p class="no-scripts muted">
            "To create a token without JavaScript, use POST /api/v1/tokens."
        </p>
        <ActionForm action=make attr:class="form needs-scripts">
            {person.map(|person| view! {
                <input type="hidden" name="person" value=person.to_string()/>
            })}
            {fields}
            {made}
            <div class="buttons">
                <button class="button" type="submit" disabled=move || make.pending().get()>
                    {icon(Icon::Plus)} "Create token"
                </button>
            </div>
        </ActionForm>
    }
    .into_any()
}

/// The fields: purpose, permissions, deployment and lifetime.
fn token_fields(refused: &Refused, admin: bool, service: bool) -> AnyView {
    let choice = |name: &'static str, about: &'static str, usual: bool| {
        let checked = if refused.is_here() { refused.typed(name).is_some() } else { usual };
        view! {
            <li>
                <label class="choice">
                    <input type="checkbox" name=name value="on" checked=checked/>
                    <span><b>{name}</b> " " <small>{about}</small></span>
                </label>
            </li>
        }
    };
    let about_admin = match service {
        true => "manages accounts that have no permission beyond those of the token",
        false => "reads the list of people, changes connections of nodes",
    };
    view! {
        <div class="field">
            <label for="token-name">"New token"</label>
            <input
                class="input"
                id="token-name"
                name="name" required
                maxlength=limits::NODE_TOKEN_NAME
                autocomplete="off"
                placeholder="Purpose"
                value=refused.typed("name")
            />
        </div>
        <fieldset class="field">
            <legend>"Permissions"</legend>
            <ul class="choices">
                {choice("viewer", "reads everything except secrets", true)}
                {choice("operator", "proposes changes, commits approved reviews, retries steps, \
                    puts deployments on hold", false)}
                {admin.then(|| choice("admin", about_admin, false))}
            </ul>
        </fieldset>
        <div class="field">
            <label for="token-deployment">"Limited to the deployment"</label>
            <input
                class="input"
                id="token-deployment"
                name="deployment"
                autocomplete="off"
                spellcheck="false"
                placeholder="all deployments of the account"
                value=refused.typed("deployment")
            />
        </div>
        <div class="field">
            <label for="token-days">"Validity in days"</label>
            <input
                class="input mono"
                id="token-days"
                name="days"
                inputmode="numeric"
                autocomplete="off"
                placeholder="90"
                value=refused.typed("days")
            />
            <span class="hint">"At most " {limits::API_TOKEN_DAYS} "."</span>
        </div>
    }
    .into_any()
}
