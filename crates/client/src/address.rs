//! Addresses of servers, and the encoding of paths and queries.
//!
//! Invariant: an address uses HTTPS, or plain HTTP to this machine, or the user allowed plain HTTP
//! explicitly. Otherwise credentials could be read in transit.

use std::fmt;
use std::net::IpAddr;

/// Percent-encodes a text as one path segment or one query value.
pub(crate) use api::calls::shell::encoded as part;
use ureq::http::Uri;

use crate::exit::Failure;

/// The address of a server without a path, for example `https://gantry.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    pub(crate) fn parse(text: &str, insecure: bool) -> Result<Self, Failure> {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        let wrong = || {
            let shown = if text.contains('@') { "this" } else { &shown };
            Failure::Usage(format!(
                "Invalid server URL {shown}. Write it like https://gantry.example.com."
            ))
        };
        let uri: Uri = text.trim().trim_end_matches('/').parse().map_err(|_| wrong())?;
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(wrong)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if insecure || is_near(authority.host()) => {}
            Some("http") => {
                return Err(Failure::Usage(format!(
                    "The server URL {shown} uses plain HTTP to another machine, which exposes your \
                     credentials. Use https, a tunnel (ssh -L 7780:127.0.0.1:7780) or \
                     --insecure-http."
                )));
            }
            _ => return Err(wrong()),
        }
        Ok(Self(format!("{}://{authority}", uri.scheme_str().unwrap_or_default())))
    }

    /// Whether a URL has the same origin as this server, regardless of case and of an explicit
    /// default port.
    pub(crate) fn is_of(&self, other: &Uri) -> bool {
        self.0
            .parse::<Uri>()
            .is_ok_and(|own| origin(&own).is_some() && origin(&own) == origin(other))
    }

    /// Whether the server is on this machine. Such requests bypass proxies.
    pub(crate) fn is_near(&self) -> bool {
        self.0.parse::<Uri>().ok().and_then(|uri| uri.host().map(is_near)).unwrap_or_default()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Scheme, host and port, or `None` if one of them is missing.
fn origin(uri: &Uri) -> Option<(String, String, u16)> {
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    };
    Some((scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().or(default_port)?))
}

fn is_near(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Query parameters of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Adds a parameter if its value is not empty.
    pub(crate) fn with(mut self, name: &'static str, value: impl QueryValue) -> Self {
        if let Some(value) = value.as_param().filter(|value| !value.is_empty()) {
            self.0.retain(|(other, _)| *other != name);
            self.0.push((name, value));
        }
        self
    }

    /// The path with the query appended. The path can have a query already.
    pub(crate) fn on(&self, path: &str) -> String {
        let pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={}", part(value))).collect();
        let separator = if path.contains('?') { '&' } else { '?' };
        match pairs.is_empty() {
            true => path.to_owned(),
            false => format!("{path}{separator}{}", pairs.join("&")),
        }
    }
}

/// Types of query parameter values.
pub(crate) trait QueryValue {
    fn as_param(&self) -> Option<String>;
}

impl QueryValue for &str {
    fn as_param(&self) -> Option<String> {
        Some((*self).to_owned())
    }
}

impl QueryValue for String {
    fn as_param(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl QueryValue for &Option<String> {
    fn as_param(&self) -> Option<String> {
        (*self).clone()
    }
}

impl QueryValue for Option<i64> {
    fn as_param(&self) -> Option<String> {
        self.map(|number| number.to_string())
    }
}

impl QueryValue for Option<api::At> {
    fn as_param(&self) -> Option<String> {
        self.map(|at| at.to_string())
    }
}

impl QueryValue for bool {
    /// `false` is the default of all flags, so it is left out.
    fn as_param(&self) -> Option<String> {
        self.then(|| "true".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_accepted_on_loopback_only() {
        for near in [
            "http://127.0.0.1:7780",
            "http://localhost:1/",
            "http://[::1]:7780",
            "https://gantry.example.com",
        ] {
            assert!(Address::parse(near, false).is_ok(), "{near}");
        }
        assert_eq!(
            Address::parse("http://localhost:1/", false).map(|a| a.to_string()).ok(),
            Some("http://localhost:1".into())
        );
        for far in ["http://gantry.example.com", "http://10.0.0.1", "http://127.0.0.1.example.com"]
        {
            assert!(
                Address::parse(far, false)
                    .is_err_and(|e| e.to_string().contains("--insecure-http")),
                "{far}"
            );
            assert!(Address::parse(far, true).is_ok(), "{far}");
        }
        for wrong in ["", "gantry", "ftp://x", "https://x/path", "https://x?y=z", "/x"] {
            assert!(Address::parse(wrong, true).is_err(), "{wrong}");
        }
        let secret =
            Address::parse("https://me:hunter2@x", true).map_err(|error| error.to_string());
        assert!(secret.is_err_and(|error| !error.contains("hunter2")));
    }

    #[test]
    fn equivalent_server_urls_are_equal() {
        let is_of = |own: &str, other: &str| {
            Address::parse(own, false).unwrap().is_of(&other.parse().unwrap())
        };
        assert!(is_of(
            "https://gantry.example.com",
            "https://GANTRY.example.com:443/sign-in#token=x"
        ));
        assert!(is_of("http://localhost:80", "http://localhost/sign-in"));
        assert!(is_of("http://[::1]:7780", "http://[::1]:7780/sign-in"));
        for other in [
            "http://gantry.example.com",
            "https://gantry.example.com:8443",
            "https://gantry.example.org",
            "/sign-in",
        ] {
            assert!(!is_of("https://gantry.example.com", other), "{other}");
        }
    }

    #[test]
    fn query_values_are_percent_encoded() {
        assert_eq!(part("a b/c&ü"), "a%20b%2Fc%26%C3%BC");
        let query = Query::default()
            .with("filter", "n 1")
            .with("state", &None)
            .with("mine", true)
            .with("drafts", false);
        assert_eq!(query.on("/nodes"), "/nodes?filter=n%201&mine=true");
        assert_eq!(query.on("/nodes?state=dead"), "/nodes?state=dead&filter=n%201&mine=true");
        assert_eq!(Query::default().with("after", "a").with("after", "b").on("/x"), "/x?after=b");
    }
}
