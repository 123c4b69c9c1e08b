//! Derived names for nodes that were discovered without a name.
//!
//! The name comes from the MAC address or the serial number, so the same machine always gets the
//! same name. A MAC address takes precedence because it is unique by design. Some makers ship
//! boards with the serial number "To be filled by O.E.M.".
//!
//! The first label is `d` and the digits of the address, as for OpenCrowbar's discovered nodes.
//! With a serial number, it is `s` and the number's letters and digits. The caller chooses the
//! domain, which needs at least two labels.

use crate::ids::{Fqdn, NameError};

/// The hardware identifiers of a machine without a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardware<'a> {
    /// MAC addresses of its network cards, in any common notation.
    pub macs: &'a [&'a str],
    pub serial: Option<&'a str>,
}

/// Why no name can be derived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamingError {
    /// There is no usable MAC address or serial number.
    #[error(
        "The node has neither a name nor a usable MAC address or serial number. Add one of them."
    )]
    Nothing,
    /// The result is not a valid node name, because of the domain.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Maximum number of characters of the serial number in a name: a label has at most 63 bytes.
const MAX_SERIAL: usize = 62;

/// Derives a node name in this domain.
///
/// The lowest MAC address is used, so the order of the cards does not matter. All-zero, broadcast
/// and multicast addresses are ignored. A locally administered address is used only if there is no
/// other.
///
/// # Errors
/// [`NamingError`] if no identifier is usable or the domain is invalid.
pub fn derive_node_name(hardware: &Hardware<'_>, domain: &str) -> Result<Fqdn, NamingError> {
    let mut macs: Vec<[u8; 6]> = hardware.macs.iter().filter_map(|text| mac(text)).collect();
    macs.sort_by_key(|mac| (is_local(mac), *mac));
    let label = match (macs.first(), hardware.serial.and_then(serial)) {
        (Some(mac), _) => {
            let digits = mac.map(|byte| format!("{byte:02x}"));
            format!("d{}", digits.join("-"))
        }
        (None, Some(serial)) => format!("s{serial}"),
        (None, None) => return Err(NamingError::Nothing),
    };
    Ok(Fqdn::parse(&format!("{label}.{}", domain.trim_matches('.')))?)
}

/// Normalizes a network card's MAC address to the form `00:25:90:aa:00:01`, so that addresses can
/// be compared. Returns `None` if the text is not a MAC address of a card.
pub fn mac_address(text: &str) -> Option<String> {
    mac(text).map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":"))
}

/// The six bytes of a card's address: twelve hexadecimal digits with any common separator. Rejects
/// all-zero, broadcast and multicast addresses.
fn mac(text: &str) -> Option<[u8; 6]> {
    let digits: Vec<u8> = text
        .trim()
        .chars()
        .filter(|c| !matches!(c, ':' | '-' | '.'))
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let mut bytes = [0; 6];
    if digits.len() != 12 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    // The lowest bit of the first byte marks a multicast address.
    let is_multicast = bytes[0] & 1 == 1;
    (bytes != [0; 6] && !is_multicast).then_some(bytes)
}

/// Whether an address is locally administered (a bridge's or virtual card's) and not assigned by
/// the card's maker.
fn is_local(mac: &[u8; 6]) -> bool {
    mac[0] & 2 == 2
}

/// The letters and digits of a serial number, or `None` for the placeholders that makers leave.
fn serial(text: &str) -> Option<String> {
    let plain: String = text.chars().filter(char::is_ascii_alphanumeric).take(MAX_SERIAL).collect();
    let plain = plain.to_ascii_lowercase();
    const PLACEHOLDERS: [&str; 7] = [
        "tobefilledbyoem",
        "defaultstring",
        "systemserialnumber",
        "notspecified",
        "none",
        "na",
        "unknown",
    ];
    let one_letter = plain.chars().all(|c| plain.starts_with(c));
    let is_sequence = "0123456789".starts_with(&plain) || "123456789".starts_with(&plain);
    (plain.len() >= 4 && !one_letter && !is_sequence && !PLACEHOLDERS.contains(&plain.as_str()))
        .then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(macs: &[&str], serial: Option<&str>) -> Result<String, NamingError> {
        derive_node_name(&Hardware { macs, serial }, "lab.example.com").map(|fqdn| fqdn.to_string())
    }

    #[test]
    fn mac_address_in_any_notation_gives_name() {
        for text in ["52:54:00:AB:cd:01", "52-54-00-ab-cd-01", "5254.00ab.cd01", " 525400ABCD01 "] {
            assert_eq!(
                name(&[text], Some("XY12345")).as_deref(),
                Ok("d52-54-00-ab-cd-01.lab.example.com")
            );
        }
    }

    #[test]
    fn hardware_address_precedes_local_address() {
        let macs = [
            "02:00:00:00:00:01",
            "00:25:90:aa:00:02",
            "00:25:90:aa:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ];
        assert_eq!(name(&macs, None).as_deref(), Ok("d00-25-90-aa-00-01.lab.example.com"));
        assert_eq!(name(&macs[..1], None).as_deref(), Ok("d02-00-00-00-00-01.lab.example.com"));
    }

    #[test]
    fn invalid_card_addresses_are_rejected() {
        for text in ["52:54:00:AB:cd:01", "52-54-00-ab-cd-01", "5254.00ab.cd01", " 525400ABCD01 "] {
            assert_eq!(mac_address(text).as_deref(), Some("52:54:00:ab:cd:01"), "{text}");
        }
        for text in ["zz", "", "52:54:00:ab:cd", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"] {
            assert_eq!(mac_address(text), None, "{text}");
        }
    }

    #[test]
    fn placeholder_serial_number_is_rejected() {
        assert_eq!(
            name(&["nonsense"], Some("CN-0F8S7 42")).as_deref(),
            Ok("scn0f8s742.lab.example.com")
        );
        for text in
            ["To be filled by O.E.M.", "0000000", "123456789", "none", "", "x1", "Default string"]
        {
            assert_eq!(name(&[], Some(text)), Err(NamingError::Nothing), "{text}");
        }
    }

    #[test]
    fn short_domain_is_rejected() {
        let hardware = Hardware { macs: &["00:25:90:aa:00:01"], serial: None };
        assert!(matches!(derive_node_name(&hardware, "example"), Err(NamingError::Name(_))));
    }

    proptest! {
        #[test]
        fn any_hardware_gives_name_or_error(
            macs in prop::collection::vec(".{0,24}", 0..4),
            serial in prop::option::of(".{0,100}"),
        ) {
            let mut macs: Vec<&str> = macs.iter().map(String::as_str).collect();
            let found = name(&macs, serial.as_deref());
            macs.reverse();
            prop_assert_eq!(&found, &name(&macs, serial.as_deref()));
            prop_assert!(matches!(found, Ok(_) | Err(NamingError::Nothing)));
        }
    }
}
