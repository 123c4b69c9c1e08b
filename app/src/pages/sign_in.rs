//! The sign-in page: name and password, one-time links, and a field for a one-time token from
//! another window.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::components::icon::drawn;
use crate::components::{Icon, icon};

/// The cookie with the name of a refused attempt.
pub const NAME_COOKIE: &str = "gantry_name";

/// The name of the last attempt, if the name or the password was wrong.
#[cfg(feature = "ssr")]
fn previous_name(is_refused: bool) -> Option<String> {
    is_refused.then(|| crate::respond::cookie(NAME_COOKIE)).flatten()
}

/// In the browser, the field keeps the server's value. No script can read the cookie.
#[cfg(not(feature = "ssr"))]
fn previous_name(_: bool) -> Option<String> {
    None
}

/// Moves a link's token from the address into its field. Browsers do not send the fragment to
/// servers, so the token is in no log and no `Referer`. Only the button uses the token, because
/// mail scanners and previews open links.
#[cfg(feature = "ssr")]
const TOKEN_SCRIPT: &str = "addEventListener('DOMContentLoaded',()=>{const take=()=>{\
const found=/^#token=([A-Za-z0-9_-]+)$/.exec(location.hash);if(!found)return;\
history.replaceState(history.state,'',location.pathname+location.search);\
const field=document.getElementById('token');if(!field)return;field.value=found[1];\
document.getElementById('by-password')?.setAttribute('hidden','');\
const button=field.form.querySelector('button');button.classList.add('primary');button.focus()};\
take();addEventListener('hashchange',take)})";

/// The inline script of this page, for the document's head.
#[cfg(feature = "ssr")]
pub(crate) fn script() -> Option<AnyView> {
    let request = use_context::<http::request::Parts>()?;
    let nonce = use_nonce();
    let is_asked = request.uri.path() == crate::addresses::SIGN_IN;
    is_asked.then(|| view! { <script nonce=nonce inner_html=TOKEN_SCRIPT></script> }.into_any())
}

/// Only the server renders documents.
#[cfg(not(feature = "ssr"))]
pub(crate) fn script() -> Option<AnyView> {
    None
}

/// The forms for a name and password or a one-time token. They are plain forms that the server
/// handles. With JavaScript, a link hides the password form.
#[component]
pub fn SignIn() -> impl IntoView {
    let query = use_query_map();
    let next = move || query.read().get("next").filter(|next| is_ours(next));
    // A token in the query is not accepted, because it may be in the server's log.
    let in_query = query.read_untracked().get("token").map(|_| "query".to_owned());
    let problem = query.read_untracked().get("problem").or(in_query);
    #[cfg(feature = "ssr")]
    if problem.is_some() {
        crate::respond::status(403);
    }
    let name = previous_name(problem.is_some());
    let has_name = name.is_some();
    let notice = problem.map(|word| {
        let (problem, remedy) = explained(&word);
        view! {
            <div class="notice" data-state="error" role="alert">
                {icon(Icon::Error)}
                <div><b>{problem}</b><p>{remedy}</p></div>
            </div>
        }
    });
    view! {
        <Title text="Sign in"/>
        <main class="sign-in" id="main">
            <div class="brand-line">{drawn(Icon::Gantry, "icon large")} <b>"Gantry"</b></div>
            <h1>"Sign in"</h1>
            {notice}
            <div id="by-password">
                <form class="form" method="post" action="/sign-in">
                    <div class="field">
                        <label for="name">"Name"</label>
                        <input
                            class="input"
                            id="name"
                            name="name" required
                            maxlength="96"
                            autocomplete="username"
                            autocapitalize="none"
                            spellcheck="false"
                            value=name.clone()
                            autofocus=!has_name
                        />
                    </div>
                    <div class="field">
                        <label for="password">"Password"</label>
                        <input
                            class="input"
                            id="password"
                            name="password"
                            type="password" required
                            autocomplete="current-password"
                            autofocus=has_name
                        />
                    </div>
                    {move || next().map(|next| view! {
                        <input type="hidden" name="next" value=next/>
                    })}
                    <button class="button primary wide" type="submit">"Sign in"</button>
                </form>
                <h2>"Or use a link"</h2>
            </div>
            <p class="muted">
                "An admin can send you a one-time link. Each start \
                 of " <code>"gantry up"</code> " prints new links. Each link works once."
            </p>
            <form class="form" method="post" action="/sign-in">
                <div class="field">
                    <label for="token">"Link or token"</label>
                    <input
                        class="input mono"
                        id="token"
                        name="token" required
                        autocomplete="off"
                        spellcheck="false"
                    />
                    <span class="hint">
                        "A link fills in this field. You can also paste the whole link."
                    </span>
                </div>
                {move || next().map(|next| view! { <input type="hidden" name="next" value=next/> })}
                <button class="button wide" type="submit">"Sign in with the link"</button>
            </form>
        </main>
    }
    .into_any()
}

/// Whether an address is a page of this console. Prevents open redirects through links to the
/// sign-in page.
pub(crate) fn is_ours(address: &str) -> bool {
    address.starts_with('/') && !address.starts_with("//") && !address.contains('\\')
}

fn explained(word: &str) -> (&'static str, &'static str) {
    match word {
        "used" => (
            "This link was already used",
            "Each link works once. Restart Gantry to get new links, or ask an admin.",
        ),
        "expired" => ("This link has expired", "Restart Gantry to get new links, or ask an admin."),
        "wrong" => {
            ("Wrong name or password", "If you forgot your password, ask an admin for a new link.")
        }
        "slow" => (
            "Too many attempts",
            "Wait a few minutes, then try again. If only your password was wrong too often, a \
             one-time link still works.",
        ),
        "query" => (
            "Links of this form are not accepted",
            "The address contains the token after ?, so the token may be in logs. Ask an admin \
             for a new link, or restart Gantry.",
        ),
        "busy" => ("Too many people are signing in", "Try again in a few seconds."),
        _ => (
            "This link is unknown",
            "Check that you copied the whole link, and that Gantry was not restarted since.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_redirect_is_rejected() {
        assert!(is_ours("/runs?state=failed"));
        for elsewhere in
            ["https://example.com", "//example.com", "/\\example.com", "javascript:alert(1)", ""]
        {
            assert!(!is_ours(elsewhere), "{elsewhere}");
        }
    }
}
