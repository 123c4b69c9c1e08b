//! The second factor of a session: authentication with it, and setting up the first one.
//!
//! The forms are plain forms that the server handles, so the page works without JavaScript, except
//! for passkeys.

#[cfg(feature = "ssr")]
use api::second_factor::FactorRequest;
use api::second_factor::{FactorOptions, SecondFactorPage, TotpSetup};
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::addresses;
use crate::codec::AsJson;
use crate::components::icon::drawn;
use crate::components::{Icon, icon, load};
use crate::failure::ServerResult;
use crate::pages::settings::passkeys::RegisterForm;
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};

#[component]
pub fn SecondFactorPage() -> impl IntoView {
    let page = Resource::new(|| (), |()| second_factor());
    view! {
        <Title text="Second factor"/>
        <main class="sign-in" id="main">
            <div class="brand-line">{drawn(Icon::Gantry, "icon large")} <b>"Gantry"</b></div>
            <h1>"Second factor"</h1>
            <Refused/>
            {load(page, shown)}
        </main>
    }
    .into_any()
}

/// The error of the posted form.
#[component]
fn Refused() -> impl IntoView {
    let word = use_query_map().read_untracked().get("problem")?;
    #[cfg(feature = "ssr")]
    crate::respond::status(403);
    let (problem, remedy) = explained(&word);
    Some(view! {
        <div class="notice" data-state="error" role="alert">
            {icon(Icon::Error)}
            <div><b>{problem}</b><p>{remedy}</p></div>
        </div>
    })
}

fn explained(word: &str) -> (&'static str, &'static str) {
    match word {
        "wrong" => (
            "Wrong code",
            "Enter the code that the app shows now, and check the clock of its device.",
        ),
        "used" => ("This code was already used", "Each code works once. Wait for the next one."),
        "slow" => ("Too many attempts", "Wait ten minutes, then try again."),
        "stale" => ("The setup has expired", "Start it again."),
        "set" => (
            "An authenticator app is already set up",
            "Remove it in My account before you set up another one.",
        ),
        "busy" => ("Gantry is busy", "Try again in a few seconds."),
        _ => ("The request failed", "Reload this page and try again."),
    }
}

fn shown(page: SecondFactorPage) -> AnyView {
    let next =
        use_query_map().read_untracked().get("next").filter(|next| super::sign_in::is_ours(next));
    let next = next.unwrap_or_else(|| "/".to_owned());
    let SecondFactorPage { person, state, set_up } = page;
    let body = match set_up {
        _ if state.needed && state.any() => {
            verify_view(state.totp, state.passkeys > 0, next).into_any()
        }
        Some(made) => confirm_view(made, next).into_any(),
        None if state.totp => view! {
            <p>
                "Your authenticator app is set up. " <a href=addresses::ACCOUNT>"My account"</a>
            </p>
        }
        .into_any(),
        None => starts(state.needed, next).into_any(),
    };
    view! {
        <p class="muted">"Signed in as " <b>{person}</b> "."</p>
        {body}
        {state.needed.then(|| view! {
            <form method="post" action="/sign-out">
                <button class="button wide" type="submit">"Sign out"</button>
            </form>
        })}
    }
    .into_any()
}

fn verify_view(totp: bool, passkey: bool, next: String) -> impl IntoView {
    view! {
        {totp.then(|| code_form("present", "Continue", next.clone()))}
        {passkey.then(|| view! { <UsePasskey next/> })}
        <p class="muted">"Did you lose your device? An admin can reset your second factor."</p>
    }
}

fn starts(needed: bool, next: String) -> impl IntoView {
    let then = next.clone();
    // Registering a passkey also authenticates with it.
    let go_on = Callback::new(move |()| drop(window().location().set_href(&then)));
    view! {
        <p>
            {needed.then_some("The policy requires a second factor. Set one up to continue. ")}
            "You need an authenticator app on your phone or computer"
            {if needed { ", or a passkey." } else { "." }}
        </p>
        <form class="form" method="post" action=addresses::SECOND_FACTOR>
            <input type="hidden" name="act" value="start"/>
            <input type="hidden" name="next" value=next/>
            <button class="button primary wide" type="submit">"Set up an authenticator app"</button>
        </form>
        {needed.then(|| view! {
            <h2>"Or register a passkey"</h2>
            <RegisterForm changed=go_on/>
        })}
    }
}

fn confirm_view(made: TotpSetup, next: String) -> impl IntoView {
    let TotpSetup { secret, uri } = made;
    view! {
        <p>
            "Enter this key in your authenticator app, or " <a href=uri>"open it in the app"</a>
            ". Then enter the code that the app shows."
        </p>
        <p aria-label="Key" role="group"><code>{group_secret(&secret)}</code></p>
        {code_form("confirm", "Confirm", next)}
    }
}

fn code_form(command: &'static str, button: &'static str, next: String) -> impl IntoView {
    view! {
        <form class="form" method="post" action=addresses::SECOND_FACTOR>
            <input type="hidden" name="act" value=command/>
            <input type="hidden" name="next" value=next/>
            <div class="field">
                <label for="code">"Code"</label>
                <input
                    class="input mono"
                    id="code"
                    name="code" required autofocus
                    autocomplete="one-time-code"
                    inputmode="numeric"
                    pattern="[0-9 ]*"
                    maxlength="16"
                    aria-describedby="code-hint"
                />
                <span class="hint" id="code-hint">
                    "The six digits that your authenticator app shows."
                </span>
            </div>
            <button class="button primary wide" type="submit">{button}</button>
        </form>
    }
}

/// Authenticates with a passkey. The browser lets the user choose one.
#[component]
fn UsePasskey(next: String) -> impl IntoView {
    let (problem, set_problem) = signal(None::<String>);
    let (busy, set_busy) = signal(false);
    let ask = move |_| {
        let next = next.clone();
        set_busy.set(true);
        set_problem.set(None);
        spawn_local(async move {
            match presented().await {
                Ok(()) => drop(window().location().set_href(&next)),
                Err(problem) => {
                    set_problem.set(Some(problem));
                    set_busy.set(false);
                }
            }
        });
    };
    view! {
        <button class="button wide" type="button" on:click=ask disabled=move || busy.get()>
            "Use a passkey"
        </button>
        <noscript><p class="muted">"Passkeys need JavaScript."</p></noscript>
        <div role="alert">{move || problem.get().map(|problem| view! {
            <div class="notice" data-state="error">
                {icon(Icon::Error)} <div><p>{problem}</p></div>
            </div>
        })}</div>
    }
}

async fn presented() -> Result<(), String> {
    let request = factor_options().await.map_err(|failure| failure.0.detail)?;
    let answer = crate::passkey::get(request.options).await?;
    present_passkey(answer).await.map_err(|failure| failure.0.detail)
}

/// Splits a secret into groups of four characters.
fn group_secret(secret: &str) -> String {
    let letters: Vec<char> = secret.chars().collect();
    letters.chunks(4).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
}

#[server(
    name = ReadSecondFactor,
    prefix = "/call",
    endpoint = "second-factor",
    input = AsJson,
    output = AsJson
)]
pub async fn second_factor() -> ServerResult<SecondFactorPage> {
    let (request, actor) = signed_in()?;
    answer(request.people.factor_page(&actor).await).await
}

#[server(
    name = ReadFactorOptions,
    prefix = "/call",
    endpoint = "factor-options",
    input = AsJson,
    output = AsJson
)]
pub async fn factor_options() -> ServerResult<FactorOptions> {
    let (request, actor) = signed_in()?;
    let site = request.site.map_err(refuse)?;
    answer(request.people.factor_options(&actor, &site).await).await
}

#[server(
    name = VerifyPasskey,
    prefix = "/call",
    endpoint = "present-passkey",
    input = AsJson,
    output = AsJson
)]
pub async fn present_passkey(passkey: serde_json::Value) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    let site = request.site.map_err(refuse)?;
    let body = FactorRequest { code: None, answer: Some(passkey) };
    let (people, client) = (&request.people, &request.client);
    answer(people.present_factor(&actor, Some(&site), &body, client).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_shown_in_groups_of_four() {
        assert_eq!(group_secret("ABCDEFGHIJ"), "ABCD EFGH IJ");
    }
}
