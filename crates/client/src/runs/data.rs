//! The values of a run or a noderole, with their sources.

use api::call::Call;
use clap::Args;
use serde_json::Value;

use crate::address::Query;
use crate::client::Client;
use crate::exit::Outcome;
use crate::output::table::Table;
use crate::output::{plain, value_text};
use crate::server::taken;

#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// Part of the path, the value or the source
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// Reads all values, page by page.
pub(crate) fn data(client: &Client, call: &Call, options: &ValueArgs, own: bool) -> Outcome {
    let Client { server, output } = client;
    let mut query = Query::default().with("filter", &options.filter).with("own", own);
    let path = call.url();
    let mut document = server.get(&query.on(&path))?;
    while let Some(page) = document.get_mut("page").and_then(Value::as_object_mut) {
        let Some(next) = page.get("next").and_then(Value::as_str) else { break };
        query = query.with("after", next);
        let mut more = taken(&mut server.get(&query.on(&path))?, "page");
        if let (Some(Value::Array(all)), Value::Array(values)) =
            (page.get_mut("values"), taken(&mut more, "values"))
        {
            all.extend(values);
        }
        page.insert("next".into(), taken(&mut more, "next"));
    }
    if output.is_document() {
        return output.document(&document);
    }
    let mut table = Table::new(["PATH", "VALUE", "SOURCE"]);
    for value in document["page"]["values"].as_array().map(Vec::as_slice).unwrap_or_default() {
        table.row([
            value_text(&value["path"]),
            value_text(&value["value"]),
            value_text(&value["source"]),
        ]);
    }
    output.line(&plain(&value_text(&document["name"])))?;
    output.write(&table.text(*output))
}
