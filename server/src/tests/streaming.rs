//! The live stream: no event is missed or duplicated, and the stream ends when it must.

use std::time::Instant;

use api::live::Live;
use axum::body::BodyDataStream;
use engine::ids::BlueprintNumber;
use futures::StreamExt as _;
use sqlx::PgPool;

use super::*;
use crate::http::permits;

/// Long enough for transactions of concurrent tests to end.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Message {
    id: String,
    event: String,
    data: String,
}

impl Message {
    fn live(&self) -> Live {
        serde_json::from_str(&self.data).expect("an event")
    }

    /// The whole message.
    pub(super) fn text(&self) -> String {
        format!("{} {} {}", self.id, self.event, self.data)
    }

    fn is_heartbeat(&self) -> bool {
        self.event == "heartbeat"
    }
}

/// A browser's end of a stream.
pub(super) struct StreamClient {
    body: BodyDataStream,
    text: String,
    last: String,
}

impl StreamClient {
    pub(super) async fn open(server: &TestServer, cookie: &str, query: &str, last: &str) -> Self {
        Self::open_at(server, cookie, &format!("/events?{query}"), last).await
    }

    /// Opens the stream at another path.
    pub(super) async fn open_at(server: &TestServer, cookie: &str, path: &str, last: &str) -> Self {
        Self::open_with(server, (header::COOKIE, cookie), path, last).await
    }

    /// Opens the stream with any credentials.
    async fn open_with(
        server: &TestServer,
        (name, value): (header::HeaderName, &str),
        path: &str,
        last: &str,
    ) -> Self {
        let mut request = server.get(path).header(name, value);
        if !last.is_empty() {
            request = request.header("last-event-id", last);
        }
        let answer =
            server.router.clone().oneshot(request.body(Body::empty()).expect("a request")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        Self {
            body: answer.into_body().into_data_stream(),
            text: String::new(),
            last: last.to_owned(),
        }
    }

    /// The next message; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let message = parse(block);
                self.text = rest.to_owned();
                if !message.id.is_empty() {
                    self.last.clone_from(&message.id);
                }
                return Some(message);
            }
            let bytes = tokio::time::timeout(TIMEOUT, self.body.next())
                .await
                .expect("a message in time")?;
            self.text.push_str(std::str::from_utf8(&bytes.expect("bytes")).expect("text"));
        }
    }

    pub(super) async fn next_live(&mut self) -> Live {
        loop {
            let message = self.next().await.expect("a message");
            if !message.is_heartbeat() {
                return message.live();
            }
        }
    }
}

fn parse(block: &str) -> Message {
    let mut message = Message::default();
    for line in block.lines() {
        let (field, value) = line.split_once(": ").unwrap_or((line, ""));
        match field {
            "id" => message.id = value.into(),
            "event" => message.event = value.into(),
            "data" => message.data = value.into(),
            _ => {}
        }
    }
    message
}

fn target(number: i64) -> Live {
    Live::Blueprint { blueprint: BlueprintNumber(number) }
}

async fn append_events(
    pool: &PgPool,
    topic: &str,
    numbers: impl IntoIterator<Item = i64>,
    hold: Duration,
) {
    let mut transaction = pool.begin().await.expect("a transaction");
    for number in numbers {
        store::events::append_event(&mut transaction, topic, "", &target(number))
            .await
            .expect("an event");
    }
    tokio::time::sleep(hold).await;
    transaction.commit().await.expect("a commit");
}

async fn cursor(server: &TestServer) -> i64 {
    store::events::cursor(server.db.app()).await.expect("a cursor")
}

#[tokio::test]
async fn stream_sends_events_after_cursor_at_once() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    append_events(server.db.app(), "blueprints", [1], Duration::ZERO).await;
    let after = cursor(&server).await;
    append_events(server.db.app(), "blueprints", [2, 3], Duration::ZERO).await;
    let mut tab = StreamClient::open(&server, &cookie, &format!("after={after}"), "").await;
    assert!(
        tab.next().await.expect("a message").is_heartbeat(),
        "the stream must begin with a heartbeat"
    );
    let mut reported = tab.next_live().await;
    if reported == target(1) {
        // Another test's transaction delayed the events when the cursor was read.
        reported = tab.next_live().await;
    }
    assert_eq!((reported, tab.next_live().await), (target(2), target(3)));
    let before = Instant::now();
    append_events(server.db.app(), "blueprints", [4], Duration::ZERO).await;
    assert_eq!(tab.next_live().await, target(4));
    assert!(before.elapsed() < TIMEOUT);
}

#[tokio::test]
async fn stream_filters_by_topic() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let deployment = "deployment:00000000-0000-0000-0000-000000000001";
    let mut tab =
        StreamClient::open(&server, &cookie, &format!("topics={deployment},run:7"), "").await;
    tab.next().await.expect("a heartbeat");
    append_events(server.db.app(), "reviews", [1], Duration::ZERO).await;
    append_events(server.db.app(), deployment, [2], Duration::ZERO).await;
    assert_eq!(tab.next_live().await, target(2));
}

/// Transactions overlap and end in a different order than they began, and the connection breaks
/// repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_stream_gets_each_event_once() {
    const WRITERS: i64 = 4;
    const EVENTS_PER_WRITER: i64 = 40;
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let after = cursor(&server).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let pool = server.db.app().clone();
            tokio::spawn(async move {
                for step in 0..EVENTS_PER_WRITER / 2 {
                    let number = writer * EVENTS_PER_WRITER + step * 2;
                    let hold = Duration::from_millis(((writer * 7 + step * 3) % 11).unsigned_abs());
                    append_events(&pool, "blueprints", [number, number + 1], hold).await;
                }
            })
        })
        .collect();
    let (mut got, mut last, mut cuts) = (Vec::new(), String::new(), 0);
    while got.len() < usize::try_from(WRITERS * EVENTS_PER_WRITER).expect("a small number") {
        let mut tab = StreamClient::open(&server, &cookie, &format!("after={after}"), &last).await;
        for _ in 0..1 + cuts % 9 {
            let message = tab.next().await.expect("a message");
            if message.is_heartbeat() {
                continue;
            }
            got.push(message.live());
            if got.len() == usize::try_from(WRITERS * EVENTS_PER_WRITER).expect("a small number") {
                break;
            }
        }
        last.clone_from(&tab.last);
        cuts += 1;
    }
    for writer in writers {
        writer.await.expect("the writer ends");
    }
    let mut numbers: Vec<i64> = got
        .iter()
        .map(|live| match live {
            Live::Blueprint { blueprint } => blueprint.0,
            other => panic!("{other:?}"),
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..WRITERS * EVENTS_PER_WRITER).collect::<Vec<_>>());
    assert!(cuts > 10, "{cuts}");
}

#[tokio::test]
async fn invalid_cursor_resets_the_stream() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let of_another_database = cursor(&server).await + 1_000_000;
    let mut tab =
        StreamClient::open(&server, &cookie, "", &format!("{of_another_database}-1")).await;
    assert_eq!(tab.next_live().await, Live::Reset);
    append_events(server.db.app(), "blueprints", [1], Duration::ZERO).await;
    assert_eq!(tab.next_live().await, target(1));

    append_events(server.db.app(), "blueprints", 2..2_300, Duration::ZERO).await;
    let mut tab = StreamClient::open(&server, &cookie, "after=1", "").await;
    assert_eq!(
        tab.next_live().await,
        Live::Reset,
        "the journal has too many events to catch up on"
    );
}

#[tokio::test]
async fn slow_reader_is_reset_and_blocks_none() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let mut slow = StreamClient::open(&server, &cookie, "", "").await;
    slow.next().await.expect("a heartbeat");
    append_events(server.db.app(), "blueprints", [0], Duration::ZERO).await;
    assert_eq!(slow.next_live().await, target(0));
    let mut quick = StreamClient::open(&server, &cookie, "", "").await;
    quick.next().await.expect("a heartbeat");
    for part in 0..8 {
        append_events(
            server.db.app(),
            "blueprints",
            part * 400 + 1..=part * 400 + 400,
            Duration::ZERO,
        )
        .await;
        for _ in 0..400 {
            quick.next_live().await;
        }
    }
    loop {
        match slow.next_live().await {
            Live::Reset => break,
            reported => assert!(matches!(reported, Live::Blueprint { .. })),
        }
    }
    append_events(server.db.app(), "blueprints", [9_999], Duration::ZERO).await;
    while slow.next_live().await != target(9_999) {}
}

#[tokio::test]
async fn idle_stream_has_heartbeat_until_session_ends() {
    let server = TestServer::with_short_intervals().await;
    let cookie = server.cookie().await;
    let mut tab = StreamClient::open(&server, &cookie, "", "").await;
    for _ in 0..5 {
        let message = tab.next().await.expect("a message");
        assert!(message.is_heartbeat() && message.id.contains('-'), "{message:?}");
    }
    server.people.disable(None, server.ada).await.expect("the person is disabled");
    while let Some(message) = tab.next().await {
        assert!(message.is_heartbeat());
    }
    assert_eq!(server.send_get("/events", &cookie).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn stream_ends_when_viewer_permission_is_lost() {
    let server = TestServer::with_short_intervals().await;
    server.person("root", [Permission::Admin]).await;
    let root = server.people.sign_in_as_owner("root").await.expect("an actor");
    let cookie = server.cookie().await;
    let bearer = format!("Bearer {}", server.token(&cookie, &["viewer"]).await);
    let mut tab = StreamClient::open(&server, &cookie, "", "").await;
    let mut program =
        StreamClient::open_with(&server, (header::AUTHORIZATION, &bearer), "/api/v1/watch", "")
            .await;
    for stream in [&mut tab, &mut program] {
        for _ in 0..5 {
            assert!(
                stream.next().await.expect("a message").is_heartbeat(),
                "the stream continues while the person has the permission"
            );
        }
    }
    server.people.change_grants(&root, server.ada, &[]).await.expect("the grants are revoked");
    for stream in [&mut tab, &mut program] {
        while let Some(message) = stream.next().await {
            assert!(message.is_heartbeat());
        }
    }
    assert_eq!(
        server.send_get("/events", &cookie).await.status,
        StatusCode::FORBIDDEN,
        "the session itself is still valid"
    );
}

#[tokio::test]
async fn streams_end_at_shutdown() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let mut tab = StreamClient::open(&server, &cookie, "", "").await;
    server.stopping.cancel();
    while tab.next().await.is_some() {}
}

#[tokio::test]
async fn streams_survive_a_database_outage() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let mut tab = StreamClient::open(&server, &cookie, "", "").await;
    tab.next().await.expect("a heartbeat");
    append_events(server.db.app(), "blueprints", [1], Duration::ZERO).await;
    assert_eq!(tab.next_live().await, target(1));
    server.db.set_connections_allowed(false).await.expect("connections are rejected");
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.db.set_connections_allowed(true).await.expect("connections are allowed");
    append_events(server.db.owner(), "blueprints", [2], Duration::ZERO).await;
    assert_eq!(tab.next_live().await, target(2));
}

#[tokio::test]
async fn streams_are_limited() {
    let server = TestServer::at("http://127.0.0.1:7780", LOCAL_HOST, |state| {
        state.streams = permits::Permits::new(1, 1);
    })
    .await;
    let cookie = server.cookie().await;
    let first = StreamClient::open(&server, &cookie, "", "").await;
    let more = server.send_get("/events", &cookie).await;
    assert_eq!(
        (more.status.as_u16(), more.problem()["code"].as_str()),
        (429, Some("too_many_streams"))
    );
    assert_eq!(more.header(header::RETRY_AFTER), "5");
    let bo = NewPerson::human("bo", [Permission::Viewer]);
    let bo = server.cookie_for(server.people.create_person(None, &bo).await.expect("bo")).await;
    assert_eq!(server.send_get("/events", &bo).await.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    StreamClient::open(&server, &cookie, "", "").await;
}

#[tokio::test]
async fn api_client_watches_the_same_events() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let mut watch = StreamClient::open_at(&server, &ada, "/api/v1/watch?topics=nodes", "").await;
    let began = watch.next().await.expect("a heartbeat");
    assert!(began.is_heartbeat());
    let add = |name: &str| {
        serde_json::json!(
            {"fqdn": format!("{name}.house.example.com"), "root": format!("/srv/{name}")}
        )
    };
    server.send_post("/api/v1/nodes", &ada, add("n2")).await.json();
    assert_eq!(watch.next_live().await, Live::Node { fqdn: "n2.house.example.com".into() });
    drop(watch);
    server.send_post("/api/v1/nodes", &ada, add("n3")).await.json();
    // A reconnecting client resumes after its last event.
    let mut again =
        StreamClient::open_at(&server, &ada, "/api/v1/watch?topics=nodes", &began.id).await;
    for name in ["n2", "n3"] {
        assert_eq!(
            again.next_live().await,
            Live::Node { fqdn: format!("{name}.house.example.com") }
        );
    }
    let refused = server.send_get("/api/v1/watch?topic=nodes", &ada).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
    assert_eq!(server.send_get("/api/v1/watch", "").await.status, StatusCode::UNAUTHORIZED);
}
