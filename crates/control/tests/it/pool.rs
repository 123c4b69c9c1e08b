//! Connections that return to the pool.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use sqlx::Row as _;
use store::{Connecting, Store};
use testdb::TestDatabase;

/// A client can disconnect at any moment. The next user of the connection must not find an open
/// transaction.
#[tokio::test]
async fn dropped_begin_leaves_no_open_transaction() {
    let database = TestDatabase::new().await;
    let how = Connecting {
        connections: 1,
        wait: Duration::from_secs(20),
        ..Connecting::to(database.app_url())
    };
    let store = Store::open(&how).unwrap();
    let mut begun = 0;
    for patience in 1..20 {
        let mut begin = Box::pin(store.pool().begin());
        let mut turns = 0;
        let transaction = poll_fn(|context| {
            turns += 1;
            match begin.as_mut().poll(context) {
                Poll::Ready(transaction) => Poll::Ready(Some(transaction.unwrap())),
                Poll::Pending if turns == patience => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        begun += usize::from(transaction.await.is_some());
        drop(begin);
        let mut connection = store.pool().acquire().await.unwrap();
        let alone = sqlx::raw_sql("SELECT now() = statement_timestamp()")
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        assert!(
            alone.get::<bool, _>(0),
            "dropped after {patience} turns, it left a transaction open"
        );
    }
    assert!(
        (1..19).contains(&begun),
        "{begun} of 19 transactions began: some must begin and some must be dropped"
    );
}
