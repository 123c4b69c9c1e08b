//! The search.

use clap::Args;

use crate::address::Query;
use crate::client::Client;
use crate::exit::Outcome;
use crate::names::from_one;
use crate::output::list::{List, word};
use crate::output::value_text;

/// A search.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Part of a name or a title, or a number
    text: String,
    /// Maximum number of results of each kind, from 1 to 200 [default: 8]
    #[arg(long, value_name = "N", value_parser = from_one::<i64>, allow_negative_numbers = true)]
    limit: Option<i64>,
}

pub(crate) fn search(client: &Client, args: &Search) -> Outcome {
    let call = api::calls::search(&args.text);
    let place = Query::default().with("limit", args.limit).on(&call.url());
    let results = client.server.get(&place)?;
    let more: Vec<String> =
        results["more"].as_array().into_iter().flatten().map(value_text).collect();
    let mut text = hit_list().text(&results, client.output);
    if !more.is_empty() {
        text.push_str(&format!(
            "More results of these kinds exist: {}. Use a longer search text, or a higher \
             --limit.\n",
            more.join(", ")
        ));
    }
    client.output.either(&results, text.trim_end())
}

/// Results of a search.
pub(crate) fn hit_list() -> List {
    List {
        path: "/search".into(),
        items: "hits",
        cursor: "",
        columns: &[
            ("KIND", |v, _| word(v, "kind")),
            ("ID", |v, _| word(v, "id")),
            ("NAME", |v, _| {
                let named =
                    ["name", "fqdn", "title", "role"].iter().find(|name| v[**name].is_string());
                named.map(|name| word(v, name)).unwrap_or_default()
            }),
            ("IN", |v, _| {
                word(v, if v["barclamp"].is_string() { "barclamp" } else { "deployment" })
            }),
        ],
        none: "Nothing found.",
    }
}
