//! Validates the identifiers of a machine's hardware.

use api::Problem;
use engine::cluster::mac_address;

use crate::text;

/// Maximum number of MAC addresses per node.
const MAX_MACS: usize = 64;

/// Validates a serial number.
pub(crate) fn check_serial(serial: &str) -> Result<String, Problem> {
    let serial = text::plain(serial)?;
    if serial.len() > 200 {
        return Err(Problem::invalid("serial: must have at most 200 bytes."));
    }
    Ok(serial.to_owned())
}

/// Validates MAC addresses and converts them to their canonical form; empty texts are skipped.
pub(crate) fn check_macs(macs: &[String]) -> Result<Vec<String>, Problem> {
    if macs.len() > MAX_MACS {
        return Err(Problem::invalid(format!("macs: must have at most {MAX_MACS} MAC addresses.")));
    }
    let mut checked: Vec<String> = Vec::with_capacity(macs.len());
    for text in macs {
        if text::plain(text)?.is_empty() {
            continue;
        }
        // A node's own report may contain unusable addresses, but in a person's input they are
        // typing errors.
        let mac = mac_address(text).ok_or_else(|| {
            let shown: String = text.chars().take(200).collect();
            Problem::invalid(format!(
                "macs: {shown:?} is not a valid MAC address. Use twelve hexadecimal digits, such \
                 as 00:25:90:aa:00:01, or leave it out."
            ))
        })?;
        if checked.contains(&mac) {
            return Err(Problem::invalid(format!(
                "macs: {mac} is listed twice. List each address once."
            )));
        }
        checked.push(mac);
    }
    Ok(checked)
}
