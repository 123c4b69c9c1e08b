//! Passkeys in the browser: the two calls of WebAuthn, with their options and responses as JSON.
//!
//! Format: [WebAuthn Level 3](https://www.w3.org/TR/webauthn-3/), sections 5.1.8 to 5.1.10. The
//! browser decodes the options and encodes the response. The server verifies everything.

use js_sys::{Function, JSON, Object, Promise, Reflect};
use leptos::prelude::window;
use serde_json::Value;
use wasm_bindgen::{JsCast, JsValue};

/// Creates a passkey (`navigator.credentials.create`) and returns the browser's response.
///
/// # Errors
/// If the page or the browser cannot use passkeys, or the person cancels.
pub async fn create(options: Value) -> Result<Value, String> {
    ask("create", "parseCreationOptionsFromJSON", options).await
}

/// Signs with a passkey (`navigator.credentials.get`) and returns the browser's response.
///
/// # Errors
/// See [`create`].
pub async fn get(options: Value) -> Result<Value, String> {
    ask("get", "parseRequestOptionsFromJSON", options).await
}

async fn ask(method: &str, parser: &str, options: Value) -> Result<Value, String> {
    let (host, port) = (window().location().hostname(), window().location().port());
    if let Some(reason) = host_name_error(&host.unwrap_or_default(), &port.unwrap_or_default()) {
        return Err(reason);
    }
    let promise = begun(method, parser, &options).map_err(|error| explained(&error))?;
    let credential = promise.ok_or(NO_SUPPORT)?.await.map_err(|error| explained(&error))?;
    // `JSON.stringify` calls `toJSON` of the credential.
    let text = JSON::stringify(&credential).map_err(|error| explained(&error))?;
    serde_json::from_str(&String::from(text)).map_err(|error| {
        format!(
            "Cannot read the passkey: the response of the browser is not \
            valid JSON ({error}). Try again."
        )
    })
}

const NO_SUPPORT: &str = "Passkeys do not work on this page. Open Gantry over HTTPS or at \
    http://localhost, in a current browser.";

/// Returns `None` if the browser lacks the function or hides it from this page.
fn begun(method: &str, parser: &str, options: &Value) -> Result<Option<Promise>, JsValue> {
    let class = Reflect::get(&window(), &"PublicKeyCredential".into())?;
    let credentials = Reflect::get(&window().navigator(), &"credentials".into())?;
    if !class.is_function() || !credentials.is_object() {
        return Ok(None);
    }
    let Ok(parse) = Reflect::get(&class, &parser.into())?.dyn_into::<Function>() else {
        return Ok(None);
    };
    let Ok(call) = Reflect::get(&credentials, &method.into())?.dyn_into::<Function>() else {
        return Ok(None);
    };
    let options = parse.call1(&class, &JSON::parse(&options.to_string())?)?;
    let request = Object::new();
    Reflect::set(&request, &"publicKey".into(), &options)?;
    Ok(call.call1(&credentials, &request)?.dyn_into::<Promise>().ok())
}

fn explained(error: &JsValue) -> String {
    let text =
        |field: &str| Reflect::get(error, &field.into()).ok().and_then(|text| text.as_string());
    match text("name").as_deref() {
        Some("NotAllowedError") => {
            "The passkey was not used: you canceled the request, or it timed out. Try again."
                .to_owned()
        }
        Some("InvalidStateError") => {
            "This device already has a passkey of yours. Use that passkey or another device."
                .to_owned()
        }
        Some("SecurityError") => {
            "Passkeys do not work at this address. Open Gantry at its public address.".to_owned()
        }
        _ => format!(
            "The browser rejected the request: {}.",
            text("message").unwrap_or_default().trim_end_matches('.')
        ),
    }
}

/// Passkeys are bound to a host name, so a page that was opened by IP address cannot use them.
fn host_name_error(host: &str, port: &str) -> Option<String> {
    // The last label of a host name never ends with a digit, and only IPv6 addresses have brackets.
    let is_address = host.ends_with(|c: char| c.is_ascii_digit() || c == ']');
    let at = if port.is_empty() { String::new() } else { format!(":{port}") };
    is_address.then(|| match host {
        "127.0.0.1" | "[::1]" => {
            format!("Passkeys need a host name. Open Gantry at http://localhost{at}.")
        }
        _ => format!(
            "Passkeys need a host name, and {host} is an IP address. Open Gantry at its host name."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_address_is_refused_with_the_host_name() {
        let localhost = "Passkeys need a host name. Open Gantry at http://localhost:8080.";
        assert_eq!(host_name_error("127.0.0.1", "8080").as_deref(), Some(localhost));
        assert_eq!(host_name_error("[::1]", "8080").as_deref(), Some(localhost));
        assert!(
            host_name_error("192.0.2.7", "")
                .is_some_and(|reason| reason.contains("192.0.2.7 is an IP address"))
        );
        for host in ["localhost", "gantry.example", "n1.example"] {
            assert_eq!(host_name_error(host, ""), None, "{host}");
        }
    }
}
