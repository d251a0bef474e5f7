//! Rows of the record for one page: those that are meant, of as many as are looked through at once.

use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::{Pending, RecordError};

/// A page of rows, the newest first.
pub(super) struct Found<T> {
    pub(super) rows: Vec<T>,
    /// How many were looked through for it.
    pub(super) looked_at: usize,
    /// The page goes on before this row.
    pub(super) older: Option<u64>,
}

impl<T> Found<T> {
    /// The rows that are meant, of as many as are looked through at once. Where others are left, whoever searches can go on
    /// with those.
    pub(super) async fn among(
        filter: Filter,
        rows_max: usize,
        look: impl Fn(Filter) -> Pending<Result<Vec<T>, RecordError>>,
        place: impl Fn(&T) -> u64,
        is_meant: impl Fn(&T) -> bool,
    ) -> Result<Self, RecordError> {
        let found = look(filter.clone()).await?;
        let (looked_at, oldest) = (found.len(), found.first().map(&place));
        let mut rows: Vec<T> = found
            .into_iter()
            .rev()
            .filter(|row| is_meant(row))
            .take(rows_max + 1)
            .collect();
        let older = if rows.len() > rows_max {
            rows.truncate(rows_max);
            rows.last().map(&place)
        } else if let Some(oldest) = oldest {
            let beyond = Filter {
                before: Some(oldest),
                limit: 1,
                ..filter
            };
            let is_more = !look(beyond).await?.is_empty();
            is_more.then_some(oldest)
        } else {
            None
        };
        Ok(Self { rows, looked_at, older })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of so many rows, each its own place, of which so many fit into one answer.
    async fn found(rows: u64, fit: usize, before: Option<u64>, is_meant: impl Fn(&u64) -> bool) -> Found<u64> {
        let look = |filter: Filter| -> Pending<Result<Vec<u64>, RecordError>> {
            let is_older = |row: &u64| filter.before.is_none_or(|before| *row < before);
            let newest = (1..=rows).rev().filter(is_older);
            let mut rows: Vec<u64> = newest.take(filter.limit.min(fit)).collect();
            rows.reverse();
            Box::pin(std::future::ready(Ok(rows)))
        };
        let filter = Filter {
            before,
            limit: 5_000,
            ..Filter::everything()
        };
        Found::among(filter, 50, look, |row| *row, is_meant).await.unwrap()
    }

    #[tokio::test]
    async fn a_search_goes_on_until_every_row_was_looked_at() {
        let some = found(20_000, usize::MAX, None, |row| *row == 7).await;
        assert_eq!((some.rows.len(), some.looked_at, some.older), (0, 5_000, Some(15_001)));
        let last = found(20_000, usize::MAX, Some(5_001), |row| *row == 7).await;
        assert_eq!((last.rows, last.older), (vec![7], None));
        let large = found(20_000, 10, None, |_| true).await;
        assert_eq!(
            (large.rows.len(), large.older),
            (10, Some(19_991)),
            "rows too large for one answer"
        );
        let many = found(20_000, usize::MAX, None, |_| true).await;
        assert_eq!((many.rows.len(), many.older), (50, Some(19_951)));
        let none = found(0, usize::MAX, None, |_| true).await;
        assert_eq!((none.rows.len(), none.older), (0, None));
    }
}
