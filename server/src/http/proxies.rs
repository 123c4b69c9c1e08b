//! Trusted reverse proxies (`X-Forwarded-For`).
//!
//! A client can send any `X-Forwarded-For`. Each proxy appends the address of its own client, so an
//! entry is only as reliable as the proxy that added it. [`TrustedProxies::client_address`] starts
//! with the address of the connection, which can't be forged. It takes the next entry from the
//! right only while the previous address is a trusted proxy.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::http::HeaderMap;

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Maximum number of entries.
const MAX: usize = 64;

/// An address or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse::<u8>().ok().filter(|prefix| *prefix <= most)?,
            None => most,
        };
        Some(Self { address, prefix })
    }

    fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Why a list of proxies is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxiesError {
    /// An entry is neither an address nor a network.
    #[error(
        "{0:?} is not an IP address or network: use 10.0.0.7, 10.0.0.0/24 or fd00::/8, separated \
         by commas"
    )]
    Form(String),
    /// The list is too long.
    #[error("the list has more than {} proxies: use their network instead", MAX)]
    TooMany,
}

/// The trusted proxies. Default: this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// The default: clients on this machine.
    pub const LOOPBACK: &'static str = "127.0.0.0/8,::1";

    /// The client's address: that of the connection, or the one that a trusted proxy reports.
    pub(crate) fn client_address(
        &self,
        connected: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Option<IpAddr> {
        let mut from = connected?.to_canonical();
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        for text in lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(',')) {
            if !self.0.iter().any(|network| network.has(from)) {
                break;
            }
            let Ok(address) = text.trim().parse::<IpAddr>() else { break };
            from = address.to_canonical();
        }
        Some(from)
    }
}

impl Default for TrustedProxies {
    fn default() -> Self {
        Self(Self::LOOPBACK.split(',').filter_map(Network::parse).collect())
    }
}

impl FromStr for TrustedProxies {
    type Err = ProxiesError;

    /// An empty list trusts no proxy.
    fn from_str(text: &str) -> Result<Self, ProxiesError> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let network = |word: &str| {
            Network::parse(word).ok_or_else(|| ProxiesError::Form(word.chars().take(100).collect()))
        };
        let networks: Vec<Network> = words.map(network).collect::<Result<_, _>>()?;
        if networks.len() > MAX {
            return Err(ProxiesError::TooMany);
        }
        Ok(Self(networks))
    }
}

impl fmt::Display for TrustedProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use crate::http::proxies::*;

    fn from(proxies: &str, connected: &str, lines: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
        }
        let proxies: TrustedProxies = proxies.parse().expect("proxies");
        let found = proxies.client_address(Some(connected.parse().expect("an address")), &headers);
        found.expect("an address").to_string()
    }

    #[test]
    fn only_trusted_proxies_set_client_address() {
        let loopback = TrustedProxies::LOOPBACK;
        assert_eq!(from(loopback, "127.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(
            from(loopback, "::1", &["1.1.1.1, 203.0.113.9"]),
            "203.0.113.9",
            "the client sent the first address"
        );
        assert_eq!(from(loopback, "::ffff:127.0.0.1", &["1.1.1.1", "203.0.113.9"]), "203.0.113.9");
        assert_eq!(
            from(loopback, "198.51.100.4", &["203.0.113.9"]),
            "198.51.100.4",
            "the peer is not a trusted proxy"
        );
        assert_eq!(from("", "127.0.0.1", &["203.0.113.9"]), "127.0.0.1");
        assert_eq!(from(loopback, "127.0.0.1", &["nonsense"]), "127.0.0.1");
        assert_eq!(from(loopback, "127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(
            from("10.0.0.0/24, 127.0.0.1", "127.0.0.1", &["1.1.1.1, 203.0.113.9, 10.0.0.7"]),
            "203.0.113.9"
        );
        assert_eq!(from("fd00::/8", "fd12::1", &["2001:db8::1"]), "2001:db8::1");
        assert_eq!(TrustedProxies::default().client_address(None, &HeaderMap::new()), None);
    }

    #[test]
    fn networks_match_by_prefix() {
        let has = |network: &str, address: &str| {
            Network::parse(network).expect("a network").has(address.parse().expect("an address"))
        };
        assert!(has("10.0.0.0/23", "10.0.1.255") && !has("10.0.0.0/23", "10.0.2.0"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "::1"));
        assert!(
            has("::/0", "2001:db8::1")
                && has("10.0.0.7", "10.0.0.7")
                && !has("10.0.0.7", "10.0.0.6")
        );
        for wrong in ["10.0.0.0/33", "::/129", "10.0.0.0/", "/8", "proxy.example.com", "10.0.0/8"] {
            assert!(wrong.parse::<TrustedProxies>().is_err(), "{wrong}");
        }
        let shown = TrustedProxies::default().to_string();
        assert_eq!(
            (shown.as_str(), shown.parse::<TrustedProxies>()),
            ("127.0.0.0/8,::1/128", Ok(TrustedProxies::default()))
        );
        assert_eq!(
            "10.0.0.1,".repeat(MAX + 1).parse::<TrustedProxies>(),
            Err(ProxiesError::TooMany)
        );
    }
}
