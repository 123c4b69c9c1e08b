//! Requests by method and path.

use clap::Args;
use serde_json::Value;
use ureq::http::Method;

use crate::client::Client;
use crate::exit::{Failure, Outcome};
use crate::input::json_of;
use crate::server::RequestOptions;

/// Any request by method and path, for operations without a command of their own.
#[derive(Debug, Args)]
pub(crate) struct Api {
    /// GET, POST, PUT, PATCH or DELETE
    #[arg(value_parser = method)]
    method: Method,
    /// Path below /api/v1, for example /nodes?filter=n1
    path: String,
    /// JSON file with the request body, or - for standard input
    #[arg(long, value_name = "FILE")]
    body: Option<String>,
    /// If-Match header: a version such as "3", or an ETag from a response
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

fn method(text: &str) -> Result<Method, String> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let found = known.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "must be GET, POST, PUT, PATCH or DELETE".to_owned())
}

pub(crate) fn api(client: &Client, api: &Api) -> Outcome {
    if !api.path.starts_with('/') {
        return Err(Failure::Usage(format!(
            "Invalid path {}. It must begin with /, for example /nodes?filter=n1.",
            api.path
        )));
    }
    let body = api.body.as_deref().map(json_of).transpose()?;
    let with = RequestOptions { body, if_match: api.if_match.clone(), accept: None };
    let text = client.server.ask(&api.method, &api.path, &with)?.text;
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => client.output.document(&value),
        Err(_) => client.output.write(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_methods_of_the_api_are_accepted() {
        assert_eq!(method("get"), Ok(Method::GET));
        assert!(method("TRACE").is_err());
    }
}
