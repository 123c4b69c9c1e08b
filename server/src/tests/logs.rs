//! Large logs: opened at their end, searched in parts, resumed after an interruption. The tests
//! count the bytes that are read and sent.

use api::runs::{LogPart, LogSearchResult};
use engine::ids::RunId;
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgPool};
use store::runs::{LogPosition, RunEnd};

use super::change_flow::in_progress;
use super::*;
use crate::http::permits;

/// Size of a stored chunk, with lines of 128 bytes.
const CHUNK_BYTES: i64 = 8192;
const LINES: i64 = CHUNK_BYTES / 128;

/// Writes a log with this number of chunks, as workers store them.
async fn write(server: &TestServer, run: RunId, pieces: i64) -> i64 {
    sqlx::query(
        "INSERT INTO run_log (run_id, at_offset, body)
         SELECT $1, n * 8192, convert_to((
           SELECT string_agg(rpad('piece ' || n || ' line ' || k || ' ', 127, '.') || E'\\n', ''
           ORDER BY k)
           FROM generate_series(0, 63) k), 'UTF8')
         FROM generate_series(0, $2 - 1) n",
    )
    .bind(run.0)
    .bind(pieces)
    .execute(server.db.owner())
    .await
    .expect("a log");
    sqlx::query("UPDATE run SET log_bytes = $2 WHERE id = $1")
        .bind(run.0)
        .bind(pieces * CHUNK_BYTES)
        .execute(server.db.owner())
        .await
        .expect("its length");
    pieces * CHUNK_BYTES
}

fn canceled() -> RunEnd {
    RunEnd::Canceled { found: Default::default() }
}

/// Number of log rows that a connection has read.
async fn rows_read(pool: &PgPool) -> i64 {
    pool.execute("SELECT pg_stat_force_next_flush()").await.expect("the statistics are flushed");
    sqlx::query_scalar(
        "SELECT coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0)::bigint
         FROM pg_stat_user_tables WHERE relname LIKE 'run\\_log%'",
    )
    .fetch_one(pool)
    .await
    .expect("statistics")
}

async fn check_log_opens_at_end(pieces: i64) {
    let server = TestServer::new().await;
    let (run, _) = in_progress(&server).await;
    let cookie = server.cookie().await;
    let length = write(&server, run, pieces).await;

    let answer = server.send_get(&format!("/api/v1/runs/{run}/log?offset=-65536"), &cookie).await;
    assert!(answer.body.len() < 80 * 1024, "sent {} bytes for 64 KiB", answer.body.len());
    let part: LogPart = serde_json::from_value(answer.json()).expect("a part");
    assert_eq!((part.pieces[0].offset, part.next), (length - 65536, length));
    assert!(
        part.pieces
            .last()
            .is_some_and(|piece| piece.text.contains(&format!("piece {} line 63 ", pieces - 1)))
    );

    let page = server.visit(&format!("/runs/{run}"), &cookie).await;
    assert!(
        page.text().contains(&format!("piece {} line 63 ", pieces - 1)),
        "the page must show the end of the log"
    );
    assert!(page.body.len() < 1 << 20, "the page has {} bytes", page.body.len());

    // A single connection, so that its counters cover only this test.
    let alone = PgPoolOptions::new()
        .max_connections(1)
        .connect(server.db.app_url())
        .await
        .expect("a connection");
    let before = rows_read(&alone).await;
    let from = (length - 65536).unsigned_abs();
    let read = store::runs::read_log_range(&alone, run, from, from + 262_144, 4_096)
        .await
        .expect("the end");
    assert_eq!(read.len(), 8);
    let rows = rows_read(&alone).await - before;
    assert!((8..=12).contains(&rows), "read {rows} rows for 8 of {pieces} pieces");
}

#[tokio::test]
async fn log_of_64_mib_opens_at_end() {
    check_log_opens_at_end(8_192).await;
}

#[tokio::test]
#[ignore = "needs a gigabyte in the database: run it by hand"]
async fn log_of_1_gib_opens_at_end() {
    check_log_opens_at_end(131_072).await;
}

#[tokio::test]
async fn offset_after_log_end_is_rejected() {
    let server = TestServer::new().await;
    let (run, _) = in_progress(&server).await;
    let cookie = server.cookie().await;
    let length = write(&server, run, 2).await;
    let behind =
        server.send_get(&format!("/api/v1/runs/{run}/log?offset={}", length + 1), &cookie).await;
    assert_eq!(behind.status, StatusCode::BAD_REQUEST);
    assert!(behind.text().contains(&format!("has {length} bytes so far")), "{}", behind.text());
    let end =
        server.send_get(&format!("/api/v1/runs/{run}/log?offset={length}"), &cookie).await.json();
    assert_eq!(
        (end["next"].as_i64(), end["pieces"].as_array().map(Vec::len)),
        (Some(length), Some(0))
    );
}

/// The audit must not record a cancellation that did not happen.
#[tokio::test]
async fn canceling_unknown_run_is_not_audited() {
    let server = TestServer::new().await;
    let (run, worker) = in_progress(&server).await;
    let cookie = server.cookie().await;
    let noted = async || -> i64 {
        let sql = "SELECT count(*) FROM audit WHERE action = 'run.cancel'";
        sqlx::query_scalar(sql).fetch_one(server.db.owner()).await.expect("a count")
    };
    let none = server.send_post("/api/v1/runs/999999/cancel", &cookie, json!({})).await;
    assert_eq!((none.status, noted().await), (StatusCode::NOT_FOUND, 0), "{}", none.text());
    let path = format!("/api/v1/runs/{run}/cancel");
    let more = server.send_post(&path, &cookie, json!({"reason": "x"})).await;
    assert_eq!((more.status, noted().await), (StatusCode::BAD_REQUEST, 0), "{}", more.text());
    server.send_post(&path, &cookie, json!({})).await.json();
    assert_eq!(noted().await, 1);
    store::runs::finish_run(server.db.worker(), run, worker, &canceled())
        .await
        .expect("the task ends");
    let ended = server.send_post(&path, &cookie, json!({})).await;
    assert_eq!((ended.status, noted().await), (StatusCode::CONFLICT, 1), "{}", ended.text());
}

async fn search(server: &TestServer, run: RunId, cookie: &str, query: &str) -> LogSearchResult {
    let path = format!("/api/v1/runs/{run}/log/search?{query}");
    serde_json::from_value(server.send_get(&path, cookie).await.json()).expect("an answer")
}

#[tokio::test]
async fn search_reads_large_log_in_bounded_parts() {
    const PIECES: i64 = 4_096;
    let server = TestServer::new().await;
    let (run, worker) = in_progress(&server).await;
    let cookie = server.cookie().await;
    let length = write(&server, run, PIECES).await;
    let (mut after, mut requests, mut hits, mut searched) = (String::new(), 0, Vec::new(), 0);
    loop {
        let query =
            format!("q=PIECE%20{}%20LINE%205%20&ignore_case=true&after={after}", PIECES - 1);
        let found = search(&server, run, &cookie, &query).await;
        assert!(
            found.searched - searched <= control::runs::logs::MAX_SEARCHED as i64,
            "one request searches at most this much"
        );
        (requests, searched, after) = (requests + 1, found.searched, found.next);
        hits.extend(found.hits);
        if !found.more {
            break;
        }
    }
    assert_eq!((requests, searched), (4, length), "32 MiB are searched in parts of 8 MiB");
    let hit = &hits[0];
    let line = (PIECES - 1) * LINES + 5;
    assert_eq!((hits.len(), hit.offset, hit.line), (1, line * 128, line + 1));
    assert!(
        search(&server, run, &cookie, "q=PIECE%201%20").await.hits.is_empty(),
        "the search is case-sensitive by default"
    );

    // Later output is found from the cursor of the earlier search.
    let late = "größer am Ende".as_bytes();
    let at = LogPosition { log: length.unsigned_abs(), ..LogPosition::default() };
    store::runs::append_log(server.db.worker(), run, None, at, Duration::ZERO, late)
        .await
        .expect("an appended chunk");
    let found =
        search(&server, run, &cookie, &format!("q=GR%C3%96SSER&ignore_case=true&after={after}"))
            .await;
    assert!(found.hits.is_empty(), "ß does not match ss");
    let found = search(
        &server,
        run,
        &cookie,
        &format!("q=GR%C3%96%C3%9FER&ignore_case=true&after={after}"),
    )
    .await;
    assert_eq!((found.hits[0].offset, found.hits[0].text.as_str()), (length, "größer am Ende"));
    store::runs::finish_run(server.db.worker(), run, worker, &canceled()).await.expect("an end");
}

#[tokio::test]
async fn search_hits_are_paged() {
    let server = TestServer::new().await;
    let (run, _) = in_progress(&server).await;
    let cookie = server.cookie().await;
    write(&server, run, 10).await;
    let (mut after, mut lines) = (String::new(), Vec::new());
    loop {
        let found = search(&server, run, &cookie, &format!("q=line&after={after}")).await;
        assert!(found.hits.len() <= control::runs::logs::HITS);
        lines.extend(found.hits.iter().map(|hit| hit.line));
        after = found.next;
        if !found.more {
            break;
        }
    }
    assert_eq!(lines, (1..=10 * LINES).collect::<Vec<_>>());
    for wrong in ["q=", "q=a%0Ab", "q=a&after=7", "q=a&after=x.y", "after=0.0", "q=a&regex=true"] {
        let answer =
            server.send_get(&format!("/api/v1/runs/{run}/log/search?{wrong}"), &cookie).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}: {}", answer.text());
    }
    let nobody = server.send_get(&format!("/api/v1/runs/{run}/log/search?q=a"), "").await;
    assert_eq!(nobody.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn interrupted_download_resumes_exactly() {
    let server = TestServer::new().await;
    let (run, worker) = in_progress(&server).await;
    let cookie = server.cookie().await;
    let mut log: Vec<u8> = "größer 世界 🚀\n".repeat(20_000).into_bytes();
    log.extend([0xff, 0x00]);
    let mut offset = 0;
    for piece in log.chunks(7_919) {
        let at = LogPosition { log: offset, ..LogPosition::default() };
        store::runs::append_log(server.db.worker(), run, None, at, Duration::ZERO, piece)
            .await
            .expect("an appended chunk");
        offset += piece.len() as u64;
    }
    let path = format!("/runs/{run}/log");
    let get = async |range: &str, of: &str| {
        let mut request =
            server.get(&path).header(header::COOKIE, &cookie).header(header::RANGE, range);
        if !of.is_empty() {
            request = request.header(header::IF_RANGE, of);
        }
        server.ask(request.body(Body::empty()).expect("a request")).await
    };
    let mut got = Vec::new();
    for step in [1, 7_918, 7_919, 100_003, 0] {
        let range = match step {
            0 => format!("bytes={}-", got.len()),
            step => format!("bytes={}-{}", got.len(), got.len() + step - 1),
        };
        let answer = get(&range, "").await;
        assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT);
        let reported =
            format!("bytes {}-{}/{}", got.len(), got.len() + answer.body.len() - 1, log.len());
        assert_eq!(answer.header(header::CONTENT_RANGE), reported);
        got.extend_from_slice(&answer.body);
    }
    assert!(got == log, "downloaded {} of {} bytes", got.len(), log.len());
    assert_eq!(get("bytes=-2", "").await.body, [0xff, 0x00].as_slice());
    let behind = get(&format!("bytes={}-", log.len()), "").await;
    assert_eq!(behind.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(behind.header(header::CONTENT_RANGE), format!("bytes */{}", log.len()));
    assert_eq!(
        get("bytes=5-9", "\"other\"").await.status,
        StatusCode::OK,
        "the ETag does not match"
    );

    store::runs::finish_run(server.db.worker(), run, worker, &canceled()).await.expect("an end");
    let whole = server.send_get(&path, &cookie).await;
    let tag = whole.header(header::ETAG).to_owned();
    assert!(whole.body == log && tag.contains(&log.len().to_string()), "{tag}");
    let rest = get("bytes=9-", &tag).await;
    assert!(rest.status == StatusCode::PARTIAL_CONTENT && rest.body == log[9..]);
}

/// A download keeps its permit until it ends or its client disconnects.
#[tokio::test]
async fn downloads_are_limited() {
    let mut known = None;
    let server = TestServer::at("http://127.0.0.1:7780", LOCAL_HOST, |state| {
        state.downloads = permits::Permits::new(2, 1);
        known = Some(state.downloads.clone());
    })
    .await;
    let downloads = known.expect("the limit of downloads");
    let (run, _) = in_progress(&server).await;
    write(&server, run, 2).await;
    let cookie = server.cookie().await;
    let admin = async |name: &str| {
        let new = NewPerson::human(name, [Permission::Viewer, Permission::Admin]);
        server.cookie_for(server.people.create_person(None, &new).await.expect("a person")).await
    };
    let (fay, gil) = (admin("fay").await, admin("gil").await);
    let (log, export) = (format!("/runs/{run}/log"), "/api/v1/audit/export");
    let begin = async |path: &str, cookie: &str| {
        let request =
            server.get(path).header(header::COOKIE, cookie).body(Body::empty()).expect("a request");
        server.router.clone().oneshot(request).await.expect("an answer")
    };
    let first = begin(&log, &cookie).await;
    assert_eq!((first.status(), downloads.free()), (StatusCode::OK, 1));
    let more = server.send_get(&log, &cookie).await;
    assert_eq!(
        (more.status.as_u16(), more.problem()["code"].as_str()),
        (429, Some("too_many_downloads"))
    );
    assert_eq!(more.header(header::RETRY_AFTER), "5");
    let second = begin(export, &fay).await;
    assert_eq!((second.status(), downloads.free()), (StatusCode::OK, 0));
    for path in [log.as_str(), export] {
        assert_eq!(
            server.send_get(path, &gil).await.status,
            StatusCode::SERVICE_UNAVAILABLE,
            "{path}"
        );
    }
    // One is read to its end, and the client of the other disconnects.
    let whole = to_bytes(first.into_body(), limits::MAX_BODY_BYTES).await.expect("the log");
    assert_eq!((whole.len() as i64, downloads.free()), (2 * CHUNK_BYTES, 1));
    drop(second);
    assert_eq!(downloads.free(), 2);
    assert_eq!(server.send_get(export, &gil).await.status, StatusCode::OK);
    let behind = server
        .get(&log)
        .header(header::COOKIE, &gil)
        .header(header::RANGE, format!("bytes={}-", 2 * CHUNK_BYTES));
    let behind = server.ask(behind.body(Body::empty()).expect("a request")).await;
    assert_eq!(
        (behind.status, downloads.free()),
        (StatusCode::RANGE_NOT_SATISFIABLE, 2),
        "a rejected range takes no permit"
    );
}
