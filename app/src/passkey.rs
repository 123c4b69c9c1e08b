//! Passkeys in the browser (WebAuthn). Options and answers are the JSON forms that the server reads and writes.

use js_sys::{Function, JSON, Object, Promise, Reflect};
use leptos::prelude::window;
use serde_json::Value;
use wasm_bindgen::{JsCast as _, JsValue};

/// Asks the browser for a signature with a passkey; returns `PublicKeyCredential.toJSON()`.
///
/// # Errors
/// If the browser has no passkeys, the person cancels, or no passkey fits. The message says what to do.
pub async fn get(options: Value) -> Result<Value, String> {
    requested("parseRequestOptionsFromJSON", "get", &options).await
}

async fn requested(parse: &str, ask: &str, options: &Value) -> Result<Value, String> {
    let unsupported =
        |_| "This browser has no passkeys here. Use a current browser over HTTPS, or another factor.".to_owned();
    let text = options.to_string();
    let promise = promised(parse, ask, &text).map_err(unsupported)?;
    let credential = promise.await.map_err(|error| {
        let name = property(&error, "name").ok().and_then(|name| name.as_string()).unwrap_or_default();
        match name.as_str() {
            "NotAllowedError" => {
                "The passkey was not used: the request was cancelled or timed out. Try again.".to_owned()
            }
            "InvalidStateError" => "This device has a passkey for your account already.".to_owned(),
            _ => format!("The browser could not use a passkey ({name}). Try again, or use another factor."),
        }
    })?;
    let answer =
        called(&credential, "toJSON", None).and_then(|answer| JSON::stringify(&answer)).map_err(unsupported)?;
    let answer = answer.as_string().unwrap_or_default();
    serde_json::from_str(&answer).map_err(|error| format!("The browser's answer is invalid: {error}."))
}

fn promised(parse: &str, ask: &str, options: &str) -> Result<Promise, JsValue> {
    let public_key = called(&property(&window(), "PublicKeyCredential")?, parse, Some(&JSON::parse(options)?))?;
    let wish = Object::new();
    Reflect::set(&wish, &JsValue::from_str("publicKey"), &public_key)?;
    let credentials = property(&window().navigator(), "credentials")?;
    called(&credentials, ask, Some(&wish))?.dyn_into()
}

fn property(of: &JsValue, name: &str) -> Result<JsValue, JsValue> {
    Reflect::get(of, &JsValue::from_str(name))
}

fn called(of: &JsValue, name: &str, argument: Option<&JsValue>) -> Result<JsValue, JsValue> {
    let function: Function = property(of, name)?.dyn_into()?;
    match argument {
        Some(argument) => function.call1(of, argument),
        None => function.call0(of),
    }
}
