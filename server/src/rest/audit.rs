//! `/api/v1/audit`: entries, the check of their chain, and the export for offline verification.

use api::Problem;
use api::audit::{AuditPage, AuditQuery, ChainQuery, ChainView};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use control::Control;
use engine::audit::Chain;
use engine::audit::export::{End, Header, Line, Totals};
use futures::Stream;
use serde::Serialize;
use store::audit::Stage;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::downloads;
use crate::http::problems::{QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::Answer;

/// The content type of an audit export.
const LINES: &str = "application/jsonl";

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/audit", audit, op("listAudit", "List audit entries"))
        .get(
            "/audit/chain",
            chain,
            op("checkAudit", "Verify up to 10,000 entries of the audit chain"),
        )
        .get(
            "/audit/export",
            export,
            op("exportAudit", "Export the sealed audit").content(&[LINES]).about(
                "Each line is a JSON object. An entry has its position, the previous link, its own \
             link and the sealed text. The last line has the end of the chain. `gantry audit \
             verify FILE` verifies the export without a server.",
            ),
        )
}

async fn audit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<AuditQuery>,
) -> Answer<AuditPage> {
    Ok(Json(state.control.audit(&actor, &query).await?))
}

async fn chain(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<ChainQuery>,
) -> Answer<ChainView> {
    Ok(Json(state.control.audit_chain(&actor, query).await?))
}

async fn export(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<ChainQuery>,
) -> Result<Response, Refusal> {
    let (chain, header) = state.control.audit_export(&actor, query).await?;
    let name = format!("attachment; filename=\"audit-{}-{}.jsonl\"", header.after + 1, header.end);
    let place = downloads::take(&state, actor.person)?;
    let body = downloads::body(place, lines((*state.control).clone(), chain, header));
    Ok(([(header::CONTENT_TYPE, LINES.to_owned()), (header::CONTENT_DISPOSITION, name)], body)
        .into_response())
}

/// Streams the header, the entries, the rows of a full export, and a final line with totals. An
/// export that breaks off has no final line, so it can't be mistaken for a complete one.
fn lines(
    control: Control,
    mut chain: Chain,
    header: Header,
) -> impl Stream<Item = Result<Bytes, Problem>> {
    async_stream::try_stream! {
        let (after, end) = (header.after, header.end);
        let mut totals = Totals::default();
        let last = |totals| Line::End(End { end, hash: header.hash, totals });
        yield written(&[Line::Header(header.clone())], &mut totals)?;
        while chain.last < end {
            let (part, next) = control.audit_links(chain).await?;
            if part.is_empty() {
                Err(Problem::internal())?;
            }
            let part: Vec<Line> = part
                .into_iter()
                .filter(|entry| entry.seq <= end)
                .map(Line::Audit)
                .collect();
            chain = next;
            yield written(&part, &mut totals)?;
        }
        let mut stage = if after == 0 { Stage::default() } else { Stage::Done };
        while stage != Stage::Done {
            let (part, next) = control.audit_rows(end, stage).await?;
            stage = next;
            if !part.is_empty() {
                yield written(&part, &mut totals)?;
            }
        }
        yield written(&[last(totals.clone())], &mut totals)?;
    }
}

fn written(part: &[Line], totals: &mut Totals) -> Result<Bytes, Problem> {
    let mut text = Vec::new();
    for one in part {
        totals.count(one);
        line(&mut text, one)?;
    }
    Ok(Bytes::from(text))
}

fn line<T: Serialize>(text: &mut Vec<u8>, value: &T) -> Result<(), Problem> {
    serde_json::to_writer(&mut *text, value).map_err(|_| Problem::internal())?;
    text.push(b'\n');
    Ok(())
}
