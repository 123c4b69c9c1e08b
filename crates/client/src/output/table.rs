//! Tables.

use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};

use crate::output::{OutputFormat, plain};

/// A table without borders. Columns are as wide as their content; the widest are wrapped to fit the
/// terminal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Minimum width of a wrapped column. Titles are never wrapped.
const MIN_COLUMN_WIDTH: u16 = 8;

/// Longer cells are shortened on a terminal, so that a single value does not fill the screen.
const MAX_CELL_WIDTH: usize = 1_000;

const COLUMN_GAP: u16 = 2;

impl Table {
    pub(crate) fn new(titles: impl IntoIterator<Item = &'static str>) -> Self {
        Self { titles: titles.into_iter().collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // Leading spaces are the indentation of a tree.
        let cell = |cell: String| {
            let indent = cell.len() - cell.trim_start_matches(' ').len();
            format!("{}{}", " ".repeat(indent), plain(&cell))
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(crate) fn text(&self, output: OutputFormat) -> String {
        let text = self.layout(output.width).trim_fmt();
        let (titles, rows) = text.split_once('\n').unwrap_or((&text, ""));
        let end = if rows.is_empty() { "" } else { "\n" };
        format!("{}\n{}{end}", output.heading(titles), output.with_states(rows))
    }

    fn layout(&self, max_width: Option<usize>) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_header(&self.titles);
        let last = self.titles.len().saturating_sub(1);
        for column in table.column_iter_mut() {
            column.set_padding((0, if column.index == last { 0 } else { COLUMN_GAP }));
        }
        match max_width {
            Some(max_width) => self.wrap(&mut table, max_width),
            None => _ = table.add_rows(&self.rows),
        }
        table
    }

    fn wrap(&self, table: &mut comfy_table::Table, max_width: usize) {
        let short = |cell| console::truncate_str(cell, MAX_CELL_WIDTH, "…");
        table
            .set_width(u16::try_from(max_width).unwrap_or(u16::MAX))
            .set_content_arrangement(ContentArrangement::Dynamic)
            .add_rows(self.rows.iter().map(|row| row.iter().map(|cell| short(cell))));
        let widths = table.column_max_content_widths();
        for ((column, width), title) in table.column_iter_mut().zip(widths).zip(&self.titles) {
            let title = u16::try_from(console::measure_text_width(title)).unwrap_or(u16::MAX);
            let least = width.min(MIN_COLUMN_WIDTH).max(title) + column.padding_width();
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(width: Option<usize>) -> OutputFormat {
        OutputFormat { width, ..OutputFormat::default() }
    }

    fn table() -> Table {
        let mut table = Table::new(["NAME", "TITLE"]);
        table.row(["n1".into(), "A proxy in front of everything".into()]);
        table.row(["  n22".into(), String::new()]);
        table
    }

    #[test]
    fn columns_fit_their_content() {
        let text = table().text(output(None));
        assert_eq!(text, "NAME   TITLE\nn1     A proxy in front of everything\n  n22\n");
    }

    #[test]
    fn narrow_terminal_wraps_widest_column() {
        let text = table().text(output(Some(20)));
        assert_eq!(
            text,
            "NAME   TITLE\nn1     A proxy in\n       front of\n       everything\n  n22\n"
        );
        let narrowest = table().text(output(Some(3)));
        assert!(narrowest.starts_with("NAME   TITLE\nn1     A proxy\n"), "{narrowest}");
    }

    #[test]
    fn huge_cell_is_shortened_on_terminals_only() {
        let mut table = Table::new(["VALUE", "SOURCE"]);
        table.row(["x".repeat(70_000), "role".into()]);
        let shown = table.text(output(Some(60)));
        assert!(shown.contains('…') && shown.lines().count() < 30, "{shown}");
        assert!(shown.lines().all(|line| console::measure_text_width(line) <= 60), "{shown}");
        assert_eq!(table.text(output(None)).matches('x').count(), 70_000);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["節点".into(), "active".into()]);
        table.row(["node".into(), "active".into()]);
        table.row(["é\u{301}".into(), "active".into()]);
        let text = table.text(output(None));
        assert_eq!(text, "NAME  STATE\n節点  active\nnode  active\né\u{301}     active\n");
    }

    #[test]
    fn control_characters_in_titles_are_escaped() {
        let mut table = Table::new(["TITLE"]);
        table.row(["a\x1b[2Jb\nc\u{202e}d".into()]);
        let text = table.text(output(None));
        assert!(
            !text.contains('\x1b') && text.lines().count() == 2 && text.contains("U+202E"),
            "{text:?}"
        );
    }
}
