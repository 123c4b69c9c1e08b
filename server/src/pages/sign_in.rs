//! Sign-in and sign-out.
//!
//! A one-time sign-in link leads to a page with one button. The token is in the fragment, so no
//! request, log or Referer contains it. The page's script copies it into the form. Opening the link
//! does not use the token, because mail scanners, chats and browsers prefetch links. The button
//! posts the token, which uses it.
//!
//! The same path accepts a name and a password. In both cases the browser gets a new session, and
//! its previous session ends.

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use serde::Deserialize;

use api::Problem;
use api::people::Password;
use app::addresses;
use app::pages::sign_in::NAME_COOKIE;

use crate::AppState;
use crate::http::address::PublicAddress;
use crate::http::problems::{Refusal, expects_page};
use crate::http::session::{self, SignedIn};

/// Lifetime of the cookie with the entered name, for the next attempt.
const NAME_COOKIE_MAX_AGE: time::Duration = time::Duration::minutes(2);
/// Longer names are not stored. No account has one.
const MAX_NAME_LENGTH: usize = 96;

/// The fields of the sign-in form.
#[derive(Deserialize)]
struct SignInForm {
    #[serde(default)]
    token: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: Password,
    /// The page to open after sign-in.
    #[serde(default)]
    next: String,
}

/// `POST /sign-in`: uses a one-time sign-in, or checks a name and a password. Starts a session and
/// redirects to the requested page. A link for setting a password redirects there first.
///
/// After an error, a browser returns to the sign-in page with an error code in the URL. A cookie
/// for that page has the entered name. In the URL, the name would appear in logs, and people type
/// passwords into the wrong field.
pub(crate) async fn sign_in(State(state): State<AppState>, request: Request) -> Response {
    let browser = expects_page(&request);
    let (parts, body) = request.into_parts();
    let visitor = session::visitor(&state, &parts);
    let before = session::cookie(&state, &parts.headers);
    let form: Result<Form<SignInForm>, FormRejection> =
        Form::from_request(Request::from_parts(parts, body), &state).await;
    let Form(form) = match form {
        Ok(form) => form,
        Err(rejection) => return Refusal::from(rejection).into_response(),
    };
    let next = safe_redirect_path(&form.next);
    let (by_link, name) = (form.name.trim().is_empty(), form.name.clone());
    let begun = match by_link {
        true => state.people.sign_in(parse_token(&form.token), &visitor, before.as_deref()).await,
        false => {
            state
                .people
                .sign_in_by_password(&name, form.password, &visitor, before.as_deref())
                .await
        }
    };
    match begun {
        Ok(begun) => {
            let cookies =
                CookieJar::new().add(state.address.session_cookie().begin(&begun.session));
            let next = if begun.needs_password { addresses::SET_PASSWORD } else { next };
            (cookies, Redirect::to(next)).into_response()
        }
        Err(problem) if browser => match name_cookie(&state.address, &name) {
            Some(typed) => (CookieJar::new().add(typed), refused(&problem, next)).into_response(),
            None => refused(&problem, next),
        },
        Err(problem) => Refusal(problem).into_response(),
    }
}

/// Stores the entered name for the next attempt, whether or not it exists. Only a valid name is
/// stored, because other input may be a password.
fn name_cookie(address: &PublicAddress, name: &str) -> Option<Cookie<'static>> {
    let name = name.trim();
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._@-".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_LENGTH && name.bytes().all(is_plain);
    let cookie =
        Cookie::build((NAME_COOKIE, name.to_owned())).path(addresses::SIGN_IN).http_only(true);
    let cookie = cookie
        .secure(address.is_secure())
        .same_site(SameSite::Lax)
        .max_age(NAME_COOKIE_MAX_AGE)
        .build();
    is_name.then_some(cookie)
}

fn refused(problem: &Problem, next: &str) -> Response {
    let word = match problem.code.as_str() {
        "sign_in_used" => "used",
        "sign_in_expired" => "expired",
        "sign_in_wrong" => "wrong",
        "too_many_attempts" => "slow",
        "unavailable" => "busy",
        _ => "unknown",
    };
    let place = match next {
        "/" => format!("{}?problem={word}", addresses::SIGN_IN),
        next => format!("{}&problem={word}", addresses::sign_in_with_next(next)),
    };
    Redirect::to(&place).into_response()
}

/// `POST /sign-out`: ends this session.
pub(crate) async fn sign_out(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
) -> Result<(CookieJar, Redirect), Refusal> {
    state.people.sign_out(&actor).await?;
    Ok((
        CookieJar::new().add(state.address.session_cookie().end()),
        Redirect::to(addresses::SIGN_IN),
    ))
}

/// `POST /sign-out/everywhere`: ends all sessions of this person.
pub(crate) async fn sign_out_everywhere(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
) -> Result<(CookieJar, Redirect), Refusal> {
    state.people.sign_out_everywhere(&actor).await?;
    Ok((
        CookieJar::new().add(state.address.session_cookie().end()),
        Redirect::to(addresses::SIGN_IN),
    ))
}

/// Extracts the token, also from a pasted link.
fn parse_token(text: &str) -> &str {
    text.trim().rsplit(['=', '/']).next().unwrap_or_default()
}

/// A path on this server, or `/`: a link must not use our sign-in for an open redirect. Browsers
/// read `\` as `/` and drop tabs and line breaks, so these are normalized first.
pub(crate) fn safe_redirect_path(next: &str) -> &str {
    let plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    match plain
        && next.starts_with('/')
        && !next.starts_with("//")
        && !next.starts_with(addresses::SIGN_IN)
        && !next.starts_with(addresses::SECOND_FACTOR)
    {
        true => next,
        false => "/",
    }
}

#[cfg(test)]
mod tests {
    use crate::pages::sign_in::*;

    #[test]
    fn pasted_link_is_accepted_as_token() {
        for text in [
            "abc",
            " abc\n",
            "http://127.0.0.1:7780/sign-in#token=abc",
            "/sign-in#token=abc",
            "/sign-in/abc",
        ] {
            assert_eq!(parse_token(text), "abc", "{text:?}");
        }
    }

    #[test]
    fn redirect_to_other_site_is_rejected() {
        for next in ["/deployments/web?tab=1", "/"] {
            assert_eq!(safe_redirect_path(next), next);
        }
        for next in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/a\nb",
            "/\t/evil.example",
            "/sign-in",
        ] {
            assert_eq!(safe_redirect_path(next), "/", "{next:?}");
        }
    }
}
