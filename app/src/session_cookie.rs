//! The cookie of a session. On the server only.

use api::names::{LOCAL_SESSION_COOKIE, SESSION_COOKIE};
use axum_extra::extract::cookie::{Cookie, SameSite};
use control::people::{SESSION_ABSOLUTE, Token};
use time::Duration;

/// The name and the attributes of the session cookie. They depend on the public address.
#[derive(Debug, Clone, Copy)]
pub struct SessionCookie {
    /// Whether users connect with HTTPS.
    pub is_secure: bool,
}

impl SessionCookie {
    pub fn name(self) -> &'static str {
        if self.is_secure { SESSION_COOKIE } else { LOCAL_SESSION_COOKIE }
    }

    /// The cookie of a new session.
    pub fn begin(self, session: &Token) -> Cookie<'static> {
        let seconds = i64::try_from(SESSION_ABSOLUTE.as_secs()).unwrap_or_default();
        self.cookie(session.reveal().to_owned(), Duration::seconds(seconds))
    }

    /// The cookie that replaces a session's cookie when it ends.
    pub fn end(self) -> Cookie<'static> {
        self.cookie(String::new(), Duration::ZERO)
    }

    fn cookie(self, value: String, max_age: Duration) -> Cookie<'static> {
        Cookie::build((self.name(), value))
            .path("/")
            .http_only(true)
            .secure(self.is_secure)
            // Not Strict: a link to a review in a chat must show the review.
            .same_site(SameSite::Lax)
            .max_age(max_age)
            .build()
    }
}
