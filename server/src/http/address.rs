//! The public address of this server.
//!
//! Gantry speaks plain HTTP. There are two safe ways to reach it: from the same machine (or through
//! a tunnel that ends there), and with HTTPS through a reverse proxy. The address determines these
//! settings at start:
//!
//! | | loopback, `http` | anywhere, `https` |
//! |---|---|---|
//! | session cookie | `gantry_session` | `__Host-gantry`, Secure |
//! | accepted `Host` | loopback names, any port (a tunnel changes it) | the address's host |
//! | client | the connection's | `X-Forwarded-For` of a trusted proxy, or the connection's |
//!
//! The `Host` check stops DNS rebinding: another site could point its name at 127.0.0.1 to reach a
//! loopback server. Browsers accept a Secure cookie over plain HTTP only on some loopback names, so
//! the attribute is omitted there.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use api::Problem;
use app::session_cookie::SessionCookie;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use passkeys::RelyingParty;

/// Why an address can't be the public address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not of the form `https://HOST[:PORT]`.
    #[error(
        "{0:?} is not a valid public address: use the form https://gantry.example.com, without \
        a path"
    )]
    Form(String),
    /// Sessions would be sent unencrypted.
    #[error(
        "{0:?} uses unencrypted HTTP to another machine, which exposes sessions. Use the address \
         of a proxy with HTTPS, or a loopback address with a tunnel (ssh -L)"
    )]
    Plain(String),
}

/// A public address that is safe by construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicAddress {
    secure: bool,
    authority: Authority,
}

impl PublicAddress {
    /// The address of a listener, for users on the same machine.
    ///
    /// # Errors
    /// If it listens on a single address that is not loopback.
    pub fn from_listener(address: SocketAddr) -> Result<Self, AddressError> {
        let host = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        };
        format!("http://{host}:{}", address.port()).parse()
    }

    /// Whether users connect with HTTPS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    pub(crate) fn session_cookie(&self) -> SessionCookie {
        SessionCookie { is_secure: self.secure }
    }

    /// Whether a request's host belongs to this server.
    pub fn is_host(&self, host: &str) -> bool {
        let Ok(host) = host.parse::<Authority>() else {
            return false;
        };
        // `Authority` also parses a user name, and a port that is no number.
        let port = host.port().map(|port| format!(":{port}")).unwrap_or_default();
        if host.as_str() != format!("{}{port}", host.host()) {
            return false;
        }
        match self.secure {
            true => host.host().eq_ignore_ascii_case(self.authority.host()),
            false => is_loopback(host.host()),
        }
    }

    /// The site of a request, for passkeys: the public address, or on this machine the name that
    /// the browser uses.
    ///
    /// # Errors
    /// If that has no host name.
    pub(crate) fn site(&self, headers: &HeaderMap) -> Result<RelyingParty, Problem> {
        self.relying_party_for_host(headers.get(header::HOST).and_then(|host| host.to_str().ok()))
    }

    /// As [`PublicAddress::site`], from the `Host` of the request.
    ///
    /// # Errors
    /// As for [`PublicAddress::site`].
    pub(crate) fn relying_party_for_host(
        &self,
        host: Option<&str>,
    ) -> Result<RelyingParty, Problem> {
        let origin = match host.filter(|host| !self.secure && self.is_host(host)) {
            Some(host) => format!("http://{host}"),
            None => self.to_string(),
        };
        RelyingParty::of(&origin)
            .map_err(|error| Problem::conflict("no_host_name", format!("{error}.")))
    }

    /// Whether `origin` is a page of this server that was reached as `host`.
    pub fn is_own_origin(&self, origin: &str, host: Option<&str>) -> bool {
        match self.secure {
            true => origin.eq_ignore_ascii_case(&self.to_string()),
            false => host.is_some_and(|host| {
                self.is_host(host) && origin.eq_ignore_ascii_case(&format!("http://{host}"))
            }),
        }
    }
}

impl fmt::Display for PublicAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl FromStr for PublicAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(text.chars().take(200).collect());
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| form())?;
        let authority = uri.authority().ok_or_else(form)?.clone();
        let is_origin = matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !authority.as_str().contains('@');
        match uri.scheme_str() {
            Some("https") if is_origin => {
                Ok(Self { secure: true, authority: default_port(authority, ":443") })
            }
            Some("http") if is_origin && is_loopback(authority.host()) => {
                Ok(Self { secure: false, authority })
            }
            Some("http") if is_origin => Err(AddressError::Plain(text.to_owned())),
            _ => Err(form()),
        }
    }
}

/// Browsers omit the scheme's default port from an origin.
fn default_port(authority: Authority, port: &str) -> Authority {
    match authority.as_str().strip_suffix(port).map(str::parse) {
        Some(Ok(stripped)) => stripped,
        _ => authority,
    }
}

fn is_loopback(host: &str) -> bool {
    let unbracketed = host.trim_start_matches('[').trim_end_matches(']');
    let named = unbracketed.eq_ignore_ascii_case("localhost")
        || unbracketed.to_ascii_lowercase().ends_with(".localhost");
    named || unbracketed.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use crate::http::address::*;

    fn address(text: &str) -> PublicAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn plain_http_requires_loopback() {
        for text in [
            "http://127.0.0.1:7700",
            "http://localhost:80/",
            "http://[::1]:1",
            "https://gantry.example.com",
        ] {
            assert!(text.parse::<PublicAddress>().is_ok(), "{text}");
        }
        for text in
            ["http://10.0.0.1:7700", "http://gantry.example.com", "http://127.0.0.1.evil.example"]
        {
            assert!(matches!(text.parse::<PublicAddress>(), Err(AddressError::Plain(_))), "{text}");
        }
        for text in [
            "",
            "gantry",
            "ftp://localhost",
            "https://a.example/b",
            "https://u:p@a.example",
            "https://a.example/?x",
        ] {
            assert!(matches!(text.parse::<PublicAddress>(), Err(AddressError::Form(_))), "{text}");
        }
    }

    #[test]
    fn wildcard_listener_uses_loopback_address() {
        let of = |text: &str| PublicAddress::from_listener(text.parse().expect("a socket address"));
        assert_eq!(of("0.0.0.0:7700").expect("an address").to_string(), "http://127.0.0.1:7700");
        assert_eq!(of("[::1]:7700").expect("an address").to_string(), "http://[::1]:7700");
        assert!(of("192.0.2.1:7700").is_err());
    }

    #[test]
    fn foreign_hosts_and_origins_are_rejected() {
        let near = address("http://127.0.0.1:7700");
        assert!(
            near.is_host("localhost:9000")
                && near.is_host("127.0.0.1:7700")
                && !near.is_host("evil.example:7700")
        );
        for host in ["127.0.0.1:7700.evil.example", "evil.example@127.0.0.1:7700"] {
            assert!(!near.is_host(host), "{host}");
        }
        assert!(near.is_host("[::1]:7700") && near.is_host("[::1]"));
        assert!(near.is_own_origin("http://localhost:9000", Some("localhost:9000")));
        for origin in
            ["http://127.0.0.1:7701", "https://127.0.0.1:7700", "null", "http://evil.example:7700"]
        {
            assert!(!near.is_own_origin(origin, Some("127.0.0.1:7700")), "{origin}");
        }
        assert!(!near.is_own_origin("http://evil.example:7700", Some("evil.example:7700")));

        let far = address("https://Gantry.example.com:443");
        assert!(
            far.is_host("gantry.example.com")
                && far.is_host("gantry.example.com:8443")
                && !far.is_host("localhost")
        );
        assert!(far.is_own_origin("https://gantry.example.com", None));
        assert!(!far.is_own_origin("http://gantry.example.com", Some("gantry.example.com")));
        assert!(address("https://g.example:8443").is_own_origin("https://g.example:8443", None));
    }
}
