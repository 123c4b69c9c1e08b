//! Lists page by page.
//!
//! A [`List`] describes a list: the fields with its items and its cursor, and the columns of its
//! table. JSON output has the server's answers, combined into one page.

use serde_json::{Map, Value, json};

use crate::address::Query;
use crate::exit::{Failure, Outcome};
use crate::output::table::Table;
use crate::output::{OutputFormat, value_text};
use crate::server::{Server, taken};

/// Field of a list's JSON document: number of items of the last page beyond `--limit`.
pub(crate) const OMITTED: &str = "omitted";

/// A column: its title and its text for an item.
pub(crate) type Column = (&'static str, fn(&Value, OutputFormat) -> String);

/// A list of the API.
pub(crate) struct List {
    pub(crate) path: String,
    /// Field with the items.
    pub(crate) items: &'static str,
    /// Query parameter of the cursor. Empty if the list has a single page.
    pub(crate) cursor: &'static str,
    pub(crate) columns: &'static [Column],
    /// Text for an empty list.
    pub(crate) none: &'static str,
}

/// The items that were read from a list.
pub(crate) struct Read {
    /// Other fields of the first answer.
    around: Value,
    items: Vec<Value>,
    /// The server's cursor after the last page.
    next: Value,
    /// Number of items of the last page beyond the limit.
    omitted: usize,
}

impl List {
    pub(crate) fn read(&self, server: &Server, query: &Query, most: usize) -> Outcome<Read> {
        self.gather(|query| server.get(&query.on(&self.path)), query, most)
    }

    fn gather(
        &self,
        ask: impl Fn(&Query) -> Outcome<Value>,
        query: &Query,
        most: usize,
    ) -> Outcome<Read> {
        let (mut items, mut query, mut around) = (Vec::new(), query.clone(), None);
        loop {
            let mut answer = ask(&query)?;
            let Value::Array(page) = taken(&mut answer, self.items) else {
                return Err(Failure::invalid_response("expected a list"));
            };
            items.extend(page);
            let next = taken(&mut answer, "next");
            let around = around.get_or_insert(answer);
            let omitted = items.len().saturating_sub(most);
            if next.is_null() || items.len() >= most || self.cursor.is_empty() {
                items.truncate(most);
                return Ok(Read { around: around.take(), items, next, omitted });
            }
            query = query.with(self.cursor, value_text(&next));
        }
    }

    /// The answer of the API with all pages combined. Items cut from the last page are counted.
    /// `next` points after that page, because a cursor can't point into a page.
    pub(crate) fn document(&self, read: Read) -> Value {
        let mut document =
            if let Value::Object(around) = read.around { around } else { Map::new() };
        document.insert(self.items.to_owned(), Value::Array(read.items));
        document.insert("next".to_owned(), read.next);
        if read.omitted > 0 {
            document.insert(OMITTED.to_owned(), json!(read.omitted));
        }
        Value::Object(document)
    }

    pub(crate) fn text(&self, document: &Value, output: OutputFormat) -> String {
        let items = document[self.items].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            return format!("{}\n", self.none);
        }
        let mut table = Table::new(self.columns.iter().map(|(title, _)| *title));
        for item in items {
            table.row(self.columns.iter().map(|(_, show)| show(item, output)));
        }
        table.text(output)
    }
}

/// The text of a field.
pub(crate) fn word(item: &Value, word: &str) -> String {
    value_text(&item[word])
}

#[cfg(test)]
mod tests {
    use crate::blueprints::blueprint_list;
    use crate::deployments::deployment_list;
    use crate::runs::run_list;

    use super::*;

    #[test]
    fn json_document_combines_all_pages() {
        let pages = [
            json!({"blueprints": [9, 8], "next": 8, "head": 9, "removed_in": null}),
            json!({"blueprints": [7, 6], "next": 6, "head": 10}),
            json!({"blueprints": [5], "next": null, "head": 10}),
        ];
        let document = |most| {
            let ask = |query: &Query| {
                let page = match query.on("").as_str() {
                    "" => 0,
                    "?before=8" => 1,
                    "?before=6" => 2,
                    other => panic!("{other}"),
                };
                Ok(pages[page].clone())
            };
            blueprint_list()
                .document(blueprint_list().gather(ask, &Query::default(), most).unwrap())
        };
        assert_eq!(
            document(usize::MAX),
            json!({"blueprints": [9, 8, 7, 6, 5], "next": null, "head": 9, "removed_in": null})
        );
        assert_eq!(
            document(2),
            json!({"blueprints": [9, 8], "next": 8, "head": 9, "removed_in": null})
        );
        assert_eq!(
            document(3),
            json!(
                {"blueprints": [9, 8, 7], "next": 6, "omitted": 1, "head": 9, "removed_in": null}
            ),
            "the server's cursor is returned"
        );
        let wrong = blueprint_list()
            .gather(|_| Ok(json!(3)), &Query::default(), 1)
            .map(|_| ())
            .unwrap_err();
        assert_eq!(wrong.code(), 3, "an invalid answer is an error");
    }

    #[test]
    fn empty_list_prints_its_text() {
        let output = OutputFormat::default();
        assert_eq!(
            deployment_list().text(&json!({"deployments": [], "next": null}), output),
            "No deployments found.\n"
        );
        assert_eq!(run_list().text(&json!({"runs": [], "next": null}), output), "No runs found.\n");
    }
}
