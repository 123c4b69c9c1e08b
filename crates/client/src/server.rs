//! HTTP requests to a server, with retries.
//!
//! A POST has an idempotency key, so it can be repeated after a lost response and takes effect
//! once. PUT, PATCH and DELETE have no key and are sent once; most of them name a version.
//!
//! Invariants:
//! * After a response, the client retries only if the server asks for it: 429, 503, or
//!   `in_progress`. `Retry-After` has the delay. If the outcome is unknown, a person must check.
//! * With a time limit ([`Server::until`]), no request, wait or retry exceeds it.

use std::io::Read;
use std::time::{Duration, Instant};

use api::Problem;
use api::call::Call;
use api::problem::UNKNOWN_OUTCOME;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{Method, Request, Response};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body};
use uuid::Uuid;

use crate::address::Address;
use crate::contexts::{Key, Secret};
use crate::exit::{Failure, Outcome};

/// Prefix of all paths.
const ROOT: &str = api::names::ROOT;

/// Maximum time without data from the server. A stream has data every 15 seconds, and long polls
/// are answered within 30.
const READ_TIMEOUT: Duration = Duration::from_secs(45);

/// Delays before retries after a lost connection.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(600)];

/// Maximum total delay that the server can ask for, in addition to any time limit. Rate limits
/// refill within a minute.
const MAX_TOTAL_DELAY: Duration = Duration::from_secs(90);

/// Delay before a retry while the first request is still under way, if the server gives none.
const IN_PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Maximum size of a response, in bytes.
const LARGEST: u64 = 256 << 20;

/// A server with the client's credentials.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    agent: Agent,
    address: Address,
    key: Option<Key>,
    /// Time limit of all requests.
    end: Option<Instant>,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) etag: Option<String>,
    /// Cookie of a new or renewed session.
    pub(crate) session: Option<Secret>,
    pub(crate) text: String,
}

impl ApiResponse {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Outcome<T> {
        let invalid_response = |error| Failure::invalid_response(&format!("{error}"));
        serde_json::from_str(&self.text).map_err(invalid_response)
    }
}

/// Converts an answer to a wire type. `expectation` describes an answer of another form.
pub(crate) fn parse_answer<T: DeserializeOwned>(answer: &Value, expectation: &str) -> Outcome<T> {
    T::deserialize(answer).map_err(|_| Failure::invalid_response(expectation))
}

/// Removes a field from an answer. Null if the field is absent or the answer is no object.
pub(crate) fn taken(answer: &mut Value, word: &str) -> Value {
    answer.get_mut(word).map(Value::take).unwrap_or_default()
}

/// Optional parts of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestOptions {
    pub(crate) body: Option<Value>,
    pub(crate) if_match: Option<String>,
    pub(crate) accept: Option<&'static str>,
}

impl Server {
    pub(crate) fn new(address: Address, key: Option<Key>) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_per_read(Some(READ_TIMEOUT))
            .user_agent(concat!("gantry/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls);
        let config = if address.is_near() { config.proxy(None) } else { config };
        Self { agent: config.build().into(), address, key, end: None }
    }

    /// The same server with a time limit.
    pub(crate) fn until(&self, end: Option<Instant>) -> Self {
        Self { end, ..self.clone() }
    }

    fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Waits, unless that exceeds the time limit. Returns whether it waited.
    fn waited(&self, wait: Duration) -> bool {
        let fits = self.left().is_none_or(|left| wait < left);
        if fits {
            std::thread::sleep(wait);
        }
        fits
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a GET request and returns the JSON.
    pub(crate) fn get(&self, path: &str) -> Outcome<Value> {
        self.read(path)
    }

    /// Sends a GET request and returns a wire type.
    pub(crate) fn read<T: DeserializeOwned>(&self, path: &str) -> Outcome<T> {
        self.question(path, &RequestOptions::default())?.read()
    }

    pub(crate) fn text(&self, path: &str) -> Outcome<String> {
        let with = RequestOptions { accept: Some("text/plain"), ..RequestOptions::default() };
        Ok(self.question(path, &with)?.text)
    }

    /// Sends a GET request whose query comes from the command line.
    fn question(&self, path: &str, with: &RequestOptions) -> Outcome<ApiResponse> {
        self.ask(&Method::GET, path, with).map_err(Failure::into_usage_error)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Outcome<Value> {
        self.ask(
            &Method::POST,
            path,
            &RequestOptions { body: Some(body), ..RequestOptions::default() },
        )?
        .read()
    }

    /// Sends a call and returns the JSON. Its body must be JSON or empty.
    pub(crate) fn call(&self, call: &Call) -> Outcome<Value> {
        self.request(call, RequestOptions::default())?.read()
    }

    /// Sends a call at a version, if one was given. Otherwise, at the version of the call.
    pub(crate) fn call_on(&self, call: &Call, if_match: Option<String>) -> Outcome<Value> {
        self.request(call, RequestOptions { if_match, ..RequestOptions::default() })?.read()
    }

    /// Sends a call that reads a resource, and returns the JSON.
    pub(crate) fn show(&self, call: &Call) -> Outcome<Value> {
        self.get(&call.url())
    }

    /// Sends a call. The options take precedence over its body and version.
    pub(crate) fn request(&self, call: &Call, with: RequestOptions) -> Outcome<ApiResponse> {
        let method = match call.method() {
            api::call::Method::Get => Method::GET,
            api::call::Method::Post => Method::POST,
            api::call::Method::Put => Method::PUT,
            api::call::Method::Patch => Method::PATCH,
            api::call::Method::Delete => Method::DELETE,
        };
        let own_body = match call.body() {
            api::call::Body::Json(body) => Some(body.clone()),
            api::call::Body::Empty | api::call::Body::File(_) => None,
        };
        let with = RequestOptions {
            body: with.body.or(own_body),
            if_match: with.if_match.or_else(|| call.if_match()),
            ..with
        };
        self.ask(&method, &call.url(), &with)
    }

    /// Sends a request below `/api/v1`, with retries. Returns an error for a rejection.
    pub(crate) fn ask(
        &self,
        method: &Method,
        path: &str,
        with: &RequestOptions,
    ) -> Outcome<ApiResponse> {
        let key = (*method == Method::POST).then(Uuid::new_v4);
        let is_repeatable = *method == Method::GET || key.is_some();
        let mut delays = RETRY_DELAYS.iter().filter(|_| is_repeatable);
        let mut delay_budget = if is_repeatable { MAX_TOTAL_DELAY } else { Duration::ZERO };
        loop {
            let result = self.send(method, path, with, key).and_then(|answer| self.taken(answer));
            match result {
                Err(RequestError::Lost(reason))
                    if !delays.next().is_some_and(|wait| self.waited(*wait)) =>
                {
                    return Err(self.unreachable(&reason));
                }
                Err(RequestError::Lost(_)) => {}
                Err(RequestError::RetryLater(failure, wait)) => {
                    match delay_budget.checked_sub(wait) {
                        Some(rest) if self.waited(wait) => delay_budget = rest,
                        _ => return Err(failure),
                    }
                }
                Err(RequestError::No(failure)) => return Err(failure),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    fn unreachable(&self, reason: &str) -> Failure {
        let Self { address, .. } = self;
        Failure::Unreachable(format!(
            "Cannot reach {address}: {reason}. Check that the server runs: curl {address}/healthz. \
             Check the URL: gantry context list."
        ))
    }

    fn send(
        &self,
        method: &Method,
        path: &str,
        with: &RequestOptions,
        key: Option<Uuid>,
    ) -> Result<Response<Body>, RequestError> {
        let place = if path.starts_with(ROOT) { path.to_owned() } else { format!("{ROOT}{path}") };
        let mut request = Request::builder().method(method).uri(format!("{}{place}", self.address));
        request = request
            .header("accept", with.accept.unwrap_or("application/json, application/problem+json"));
        request = match &self.key {
            Some(Key::Token(token)) => {
                request.header("authorization", format!("Bearer {}", token.reveal()))
            }
            Some(Key::Session(cookie)) => {
                request.header("cookie", cookie.reveal()).header("x-gantry", "1")
            }
            None => request,
        };
        if let Some(key) = key {
            request = request.header("idempotency-key", key.to_string());
        }
        if let Some(version) = &with.if_match {
            request = request.header("if-match", version);
        }
        let wrong = |error: ureq::http::Error| {
            RequestError::No(Failure::Usage(format!(
                "Invalid request: {error}. Check the path, and the token or session."
            )))
        };
        let result = match (&with.body, method) {
            (Some(body), _) => {
                let request = request
                    .header("content-type", "application/json")
                    .body(body.to_string())
                    .map_err(wrong)?;
                self.run(request)
            }
            (None, &Method::POST | &Method::PUT | &Method::PATCH) => {
                let request =
                    request.header("content-type", "application/json").body("{}").map_err(wrong)?;
                self.run(request)
            }
            (None, _) => self.run(request.body(()).map_err(wrong)?),
        };
        result.map_err(lost)
    }

    /// Sends a request within the time limit, including the response.
    fn run(&self, request: Request<impl AsSendBody>) -> Result<Response<Body>, ureq::Error> {
        // A zero timeout would mean no timeout.
        let left = self.left().map(|left| left.max(Duration::from_millis(1)));
        self.agent.run(self.agent.configure_request(request).timeout_global(left).build())
    }

    fn taken(&self, answer: Response<Body>) -> Result<ApiResponse, RequestError> {
        let header = |name: &str| {
            answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (status, etag, session) = (answer.status(), header("etag"), session_cookie(&answer));
        let kind = header("content-type").unwrap_or_default();
        let retry_after =
            header("retry-after").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let text = answer
            .into_body()
            .with_config()
            .limit(LARGEST)
            .lossy_utf8(true)
            .read_to_string()
            .map_err(lost)?;
        if status.is_success() {
            return Ok(ApiResponse { etag, session, text });
        }
        let problem = kind
            .starts_with("application/problem+json")
            .then(|| serde_json::from_str::<Problem>(&text).ok());
        let problem = problem.flatten();
        let retry_after =
            match (status.as_u16(), problem.as_ref().map(|problem| problem.code.as_str())) {
                // The change may have taken effect. A retry could repeat it.
                (_, Some(UNKNOWN_OUTCOME)) => None,
                (429 | 503, _) => retry_after,
                (_, Some("in_progress")) => retry_after.or(Some(IN_PROGRESS_DELAY)),
                _ => None,
            };
        let failure = match problem {
            Some(problem) => Failure::Refused(Box::new(problem)),
            None => Failure::Unreachable(format!(
                "Server {} returned {status} without a reason. Check that it is a Gantry server \
                 and not a proxy.",
                self.address
            )),
        };
        Err(match retry_after {
            // A delay of zero must not overload the server.
            Some(wait) => RequestError::RetryLater(failure, wait.max(RETRY_DELAYS[0])),
            None => RequestError::No(failure),
        })
    }

    /// Signs in with a one-time link, or with name and password. Returns the new session.
    pub(crate) fn sign_in(&self, form: &[(&str, &str)]) -> Outcome<Secret> {
        let form: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", crate::address::part(value)))
            .collect();
        let request = Request::post(format!("{}/sign-in", self.address))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("x-gantry", "1")
            .body(form.join("&"))
            .map_err(|error| Failure::Usage(format!("Invalid request: {error}.")))?;
        // No retry: a link is valid only once.
        let answer = self.agent.run(request).map_err(|error| match lost(error) {
            RequestError::Lost(reason) => self.unreachable(&reason),
            RequestError::No(failure) | RequestError::RetryLater(failure, _) => failure,
        })?;
        if answer.status().is_redirection() {
            return session_cookie(&answer).ok_or_else(|| {
                Failure::NotSignedIn(
                    "The server created no session. Ask for another link and try again.".into(),
                )
            });
        }
        match self.taken(answer) {
            Err(RequestError::No(failure) | RequestError::RetryLater(failure, _)) => Err(failure),
            Err(RequestError::Lost(reason)) => Err(self.unreachable(&reason)),
            Ok(_) => Err(Failure::Unreachable(format!(
                "Server {} is not a Gantry server: it created no session.",
                self.address
            ))),
        }
    }

    /// Returns a response as a stream, for long content.
    pub(crate) fn stream(
        &self,
        path: &str,
        accept: &'static str,
    ) -> Outcome<impl Read + Send + use<>> {
        let with = RequestOptions { accept: Some(accept), ..RequestOptions::default() };
        let result = self.send(&Method::GET, path, &with, None).and_then(|answer| {
            match answer.status().is_success() {
                true => Ok(answer),
                false => {
                    self.taken(answer).and(Err(RequestError::Lost("the answer is empty".into())))
                }
            }
        });
        match result {
            Ok(answer) => Ok(answer.into_body().into_reader()),
            Err(RequestError::Lost(reason)) => Err(self.unreachable(&reason)),
            Err(RequestError::No(failure) | RequestError::RetryLater(failure, _)) => {
                Err(failure.into_usage_error())
            }
        }
    }
}

/// Reasons for a request without success.
enum RequestError {
    /// The connection was lost. The request may have arrived.
    Lost(String),
    /// The server asks to retry after this time. The request had no effect.
    RetryLater(Failure, Duration),
    No(Failure),
}

fn lost(error: ureq::Error) -> RequestError {
    let reason = match error {
        ureq::Error::BodyExceedsLimit(_) => {
            return RequestError::No(Failure::Unreachable(format!(
                "The answer is larger than {LARGEST} bytes. Request a part of it."
            )));
        }
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            return RequestError::No(Failure::Usage(format!("Invalid request: {error}.")));
        }
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::HostNotFound => "host not found".to_owned(),
        ureq::Error::ConnectionFailed => "connection failed".to_owned(),
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        other => other.to_string(),
    };
    RequestError::Lost(reason)
}

/// The session cookie of a response, in the form of a request.
fn session_cookie(answer: &Response<Body>) -> Option<Secret> {
    let cookies =
        answer.headers().get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.filter_map(|cookie| cookie.split(';').next());
    let mut sessions = pairs.filter(|pair| {
        pair.split_once('=').is_some_and(|(name, value)| {
            matches!(name, api::names::LOCAL_SESSION_COOKIE | api::names::SESSION_COOKIE)
                && !value.is_empty()
        })
    });
    sessions.next().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::Receiver;

    use super::*;

    /// A server that answers each request with the next of these answers, and then stays silent.
    /// Also returns the requests.
    fn test_server(answers: Vec<String>) -> (Server, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address =
            Address::parse(&format!("http://{}", listener.local_addr().unwrap()), false).unwrap();
        let (sender, received) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut answers = answers.into_iter();
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = sender.send(request(&mut stream));
                match answers.next() {
                    Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                    None => silent.push(stream),
                }
            }
        });
        (Server::new(address, None), received)
    }

    /// Reads a whole request. Closing a connection with unread data would reset it and lose the
    /// answer.
    fn request(stream: &mut impl Read) -> String {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {
            let line = head.lines().last().unwrap_or_default();
            length = line
                .strip_prefix("content-length: ")
                .map_or(length, |length| length.parse().unwrap());
        }
        reader.take(length).read_to_string(&mut head).unwrap();
        head
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        let kind = if status.starts_with('2') { "json" } else { "problem+json" };
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/{kind}\r\ncontent-length: \
             {}\r\nconnection: close\r\n{headers}\r\n{body}",
            body.len()
        )
    }

    fn refusal(status: u16, code: &str) -> String {
        serde_json::to_string(&Problem::new(status, code, "No", "Because.")).unwrap()
    }

    #[test]
    fn delayed_retry_keeps_the_idempotency_key() {
        let busy = || {
            answer(
                "429 Too Many Requests",
                "retry-after: 0\r\n",
                &refusal(429, "too_many_requests"),
            )
        };
        let (server, received) = test_server(vec![busy(), busy(), answer("200 OK", "", "{}")]);
        server.post("/x", Value::Null).unwrap();
        let requests: Vec<String> = received.try_iter().collect();
        let key = |request: &String| {
            request.lines().find(|line| line.starts_with("idempotency-key")).map(str::to_owned)
        };
        assert_eq!(requests.len(), 3);
        assert!(
            key(&requests[0]).is_some() && requests.iter().all(|one| key(one) == key(&requests[0]))
        );

        // No retry without `Retry-After`, beyond the time limit, or without an idempotency key.
        let never = answer("429 Too Many Requests", "", &refusal(429, "too_many_keys"));
        let long =
            answer("503 Service Unavailable", "retry-after: 3600\r\n", &refusal(503, "busy"));
        let (server, received) = test_server(vec![never, long, busy()]);
        assert_eq!(server.get("/x").unwrap_err().code(), 5);
        assert_eq!(server.get("/x").unwrap_err().code(), 3);
        assert_eq!(
            server.ask(&Method::DELETE, "/x", &RequestOptions::default()).unwrap_err().code(),
            5
        );
        assert_eq!(received.try_iter().count(), 3);
    }

    #[test]
    fn invalid_query_parameter_is_a_usage_error() {
        let wrong = || answer("400 Bad Request", "", &refusal(400, "invalid"));
        let (server, _received) = test_server((0..5).map(|_| wrong()).collect());
        assert_eq!(server.get("/x").unwrap_err().code(), 2);
        assert_eq!(server.read::<Value>("/x").unwrap_err().code(), 2);
        assert_eq!(server.text("/x").unwrap_err().code(), 2);
        assert_eq!(server.stream("/x", "text/plain").map(drop).unwrap_err().code(), 2);
        assert_eq!(
            server.post("/x", Value::Null).unwrap_err().code(),
            5,
            "a rejection of a POST is not a usage error"
        );
    }

    #[test]
    fn unknown_outcome_is_not_retried() {
        let nobody_knows = refusal(503, UNKNOWN_OUTCOME);
        let (server, received) = test_server(vec![answer(
            "503 Service Unavailable",
            "retry-after: 0\r\n",
            &nobody_knows,
        )]);
        assert!(matches!(
            server.post("/x", Value::Null),
            Err(Failure::Refused(problem)) if problem.code == UNKNOWN_OUTCOME
        ));
        assert_eq!(received.try_iter().count(), 1);
    }

    #[test]
    fn call_is_sent_with_query_body_and_version() {
        let node = engine::ids::NodeId(Uuid::nil());
        let (server, received) = test_server((0..4).map(|_| answer("200 OK", "", "{}")).collect());
        let maintenance = api::calls::set_maintenance(node, 4, true, "disks");
        server.call(&maintenance).unwrap();
        server.call_on(&maintenance, Some("\"5\"".into())).unwrap();
        server.show(&api::calls::search("n 1")).unwrap();
        // The body of a call can come from the client, such as files.
        let body = Some(serde_json::json!({"files": {}}));
        let with = RequestOptions { body, ..RequestOptions::default() };
        server.request(&api::calls::import(), with).unwrap();
        let requests: Vec<String> = received.try_iter().collect();
        let first = format!("POST /api/v1/nodes/{node}/start-maintenance HTTP/1.1");
        for (request, parts) in requests.iter().zip([
            [first.as_str(), "if-match: \"4\"", "{\"reason\":\"disks\"}"],
            [first.as_str(), "if-match: \"5\"", "{\"reason\":\"disks\"}"],
            ["GET /api/v1/search?q=n%201 HTTP/1.1", "", ""],
            ["POST /api/v1/barclamps HTTP/1.1", "", "{\"files\":{}}"],
        ]) {
            assert!(parts.iter().all(|part| request.contains(part)), "{parts:?}: {request}");
        }
        assert_eq!(requests.len(), 4);
        assert!(!requests[2].contains("if-match"), "{}", requests[2]);
    }

    #[test]
    fn requests_end_at_the_time_limit() {
        let (server, received) = test_server(vec![answer(
            "503 Service Unavailable",
            "retry-after: 30\r\n",
            &refusal(503, "busy"),
        )]);
        let begin = Instant::now();
        let soon = || server.until(Some(Instant::now() + Duration::from_millis(300)));
        assert_eq!(soon().get("/x").unwrap_err().code(), 3, "the wait exceeds the time limit");
        assert!(
            matches!(soon().get("/x"), Err(Failure::Unreachable(_))),
            "a server that does not answer is unreachable"
        );
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!(received.try_iter().count(), 2, "no retry after the time limit");
    }
}
