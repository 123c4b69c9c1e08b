//! Pagination: parsing of cursors, and pages of lists that are already in memory.

use api::Problem;
use api::listing::{Cursor, InvalidCursor, Key, Limit, Order, PAGE_SIZE, Sort};
use store::Page;

use crate::text::{plain, sentence};

/// Maximum length of a cursor in bytes: a title of maximum length and its encoding.
const MAX_CURSOR_LENGTH: usize = 2_000;

/// The sort keys of the row after which the page starts; `None` for the first page.
pub(crate) fn decode<S: Sort>(
    order: Order<S>,
    cursor: Option<&Cursor>,
) -> Result<Option<Vec<Key>>, Problem> {
    let cursor = cursor.filter(|cursor| !cursor.as_str().is_empty());
    let Some(cursor) = cursor else { return Ok(None) };
    plain(cursor.as_str())?;
    if cursor.as_str().len() > MAX_CURSOR_LENGTH {
        return Err(Problem::invalid("Invalid cursor. Use the `next` value of the previous page."));
    }
    cursor.keys(order).map(Some).map_err(refused)
}

/// The error for a well-formed cursor that no row of the list can have.
pub(crate) fn invalid_cursor<S: Sort>(order: Order<S>, cursor: Option<&Cursor>) -> Problem {
    refused(InvalidCursor::new(cursor, order))
}

fn refused(error: InvalidCursor) -> Problem {
    Problem::invalid(sentence(&error.to_string()))
}

/// The part of a stored list that a page needs: its rows, and one more if there are more.
pub(crate) fn stored<S: Sort, R>(
    order: Order<S>,
    cursor: Option<&Cursor>,
    limit: Option<Limit>,
    sort: store::Sort<R>,
) -> Result<Page<R>, Problem> {
    let key = |key| match key {
        Key::Text(text) => store::Key::Text(text),
        Key::Number(number) => store::Key::Number(number),
    };
    let after = decode(order, cursor)?.map(|keys| keys.into_iter().map(key).collect());
    Ok(Page {
        sort,
        descending: order.descending,
        after,
        limit: Limit::rows(limit, PAGE_SIZE) as u64 + 1,
    })
}

/// The cursor after a row of a stored list.
pub(crate) fn after<S: Sort, R>(order: Order<S>, page: &Page<R>, row: &R) -> Cursor {
    let key = |key| match key {
        store::Key::Text(text) => Key::Text(text),
        store::Key::Number(number) => Key::Number(number),
    };
    let keys: Vec<Key> = page.sort.keys(row).into_iter().map(key).collect();
    Cursor::after_row(order, &keys)
}

/// Drops the row after a page. Returns the cursor of the next page, if there is one.
pub(crate) fn cut<S: Sort, R>(
    rows: &mut Vec<R>,
    order: Order<S>,
    page: &Page<R>,
) -> Option<Cursor> {
    let size = usize::try_from(page.limit).unwrap_or(usize::MAX).saturating_sub(1);
    let more = rows.len() > size;
    rows.truncate(size);
    rows.last().filter(|_| more).map(|row| after(order, page, row))
}

/// A page of an in-memory list, and the cursor of the next page. `keys` must be unique per row.
pub(crate) fn page<S: Sort, T>(
    rows: Vec<T>,
    keys: impl Fn(&T, S) -> Vec<Key>,
    order: Order<S>,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Result<(Vec<T>, Option<Cursor>), Problem> {
    let start = decode(order, cursor)?;
    let is_after_start = |found: &Vec<Key>| match (&start, order.descending) {
        (None, _) => true,
        (Some(last), false) => found > last,
        (Some(last), true) => found < last,
    };
    let keyed = rows.into_iter().map(|row| (keys(&row, order.by), row));
    let mut keyed: Vec<(Vec<Key>, T)> = keyed.filter(|(found, _)| is_after_start(found)).collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    if order.descending {
        keyed.reverse();
    }
    let more = keyed.len() > limit;
    keyed.truncate(limit);
    let next = keyed.last().filter(|_| more).map(|(last, _)| Cursor::after_row(order, last));
    Ok((keyed.into_iter().map(|(_, row)| row).collect(), next))
}

#[cfg(test)]
mod tests {
    use api::reviews::ReviewSort;

    use super::*;

    #[test]
    fn pages_cover_the_list_without_duplicates() {
        let all: Vec<(&str, i64)> =
            (0..23).map(|n| (["a", "b", "~-", "é"][n % 4], n as i64)).collect();
        let keys = |row: &(&str, i64), sort: ReviewSort| match sort {
            ReviewSort::Submitted => vec![Key::from(row.1)],
            ReviewSort::Title => vec![Key::from(row.0), Key::from(row.1)],
        };
        for word in Order::<ReviewSort>::names() {
            let order: Order<ReviewSort> = word.parse().unwrap();
            let (mut walked, mut cursor) = (Vec::new(), None);
            loop {
                let (rows, next) = page(all.clone(), keys, order, cursor.as_ref(), 5).unwrap();
                assert!(rows.len() <= 5);
                walked.extend(rows);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            let mut sorted = all.clone();
            sorted.sort_by_key(|row| keys(row, order.by));
            if order.descending {
                sorted.reverse();
            }
            assert_eq!(walked, sorted, "{word}");
        }
    }

    #[test]
    fn invalid_cursors_are_rejected() {
        let of = |text: &str| decode(ReviewSort::DEFAULT, Some(&Cursor::from(text.to_owned())));
        assert_eq!(of("").unwrap(), None);
        for junk in ["x", "title~-a~-1", "\0", &"9".repeat(3_000)] {
            assert_eq!(of(junk).unwrap_err().status, 400, "{junk}");
        }
    }
}
