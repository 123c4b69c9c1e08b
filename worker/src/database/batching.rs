//! Batches the database queries of concurrent runs.
//!
//! Every run makes the same few queries: read its facts, store its input, finish. One statement for
//! a hundred runs costs little more than one for a single run. Most of the cost is the transaction,
//! its locks and the round trip. A task collects the queries that arrive during a statement and
//! sends them as the next statement.
//!
//! Invariants:
//! * No query waits for others: an idle task sends it at once, so a single run is not slower.
//! * Errors are isolated: if a batch fails, each query is repeated alone and gets its own result.
//! * A caller that stops waiting (an aborted run) does not affect the others. Its query still
//!   executes.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use store::StoreError;
use tokio::sync::{mpsc, oneshot};

/// Maximum queries in one statement. In larger transactions, others would wait too long for locks.
const MAX_BATCH: usize = 100;

/// Returns all results in the order of the queries, or an error for all.
type ExecuteBatch<Q, A> =
    dyn Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, StoreError>> + Send + Sync;
type Waiting<Q, A> = (Q, oneshot::Sender<Result<A, StoreError>>);

/// Batches one kind of query.
pub struct Batcher<Q, A> {
    execute_batch: Arc<ExecuteBatch<Q, A>>,
    sender: mpsc::UnboundedSender<Waiting<Q, A>>,
}

impl<Q: Clone + Send + Sync + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Creates a batcher with this function. Dropping it ends its task.
    pub fn new(
        execute_batch: impl Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, StoreError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (sender, queries) = mpsc::unbounded_channel();
        let execute_batch: Arc<ExecuteBatch<Q, A>> = Arc::new(execute_batch);
        tokio::spawn(run_batches(queries, Arc::clone(&execute_batch)));
        Self { execute_batch, sender }
    }

    /// Sends the query in the next batch and returns its result.
    ///
    /// # Errors
    /// The database error of this query.
    pub async fn execute(&self, input: Q) -> Result<A, StoreError> {
        let (caller, response) = oneshot::channel();
        if self.sender.send((input.clone(), caller)).is_ok()
            && let Ok(result) = response.await
        {
            return result;
        }
        // Only a panic ends the task. The run still needs its result.
        alone(&self.execute_batch, input).await
    }
}

async fn run_batches<Q: Clone + Send + Sync, A: Send>(
    mut queries: mpsc::UnboundedReceiver<Waiting<Q, A>>,
    execute_batch: Arc<ExecuteBatch<Q, A>>,
) {
    let mut waiting = Vec::new();
    while queries.recv_many(&mut waiting, MAX_BATCH).await > 0 {
        let (queries, replies): (Vec<Q>, Vec<_>) = waiting.drain(..).unzip();
        for (caller, result) in replies.into_iter().zip(results(&execute_batch, queries).await) {
            let _ = caller.send(result);
        }
    }
}

async fn results<Q: Clone, A>(
    execute_batch: &Arc<ExecuteBatch<Q, A>>,
    queries: Vec<Q>,
) -> Vec<Result<A, StoreError>> {
    let count = queries.len();
    match execute_batch(queries.clone()).await {
        Ok(results) if results.len() == count => results.into_iter().map(Ok).collect(),
        Err(error) if count == 1 => vec![Err(error)],
        other => {
            if let Err(error) = other {
                tracing::info!(%error, queries = count, "querying one by one, because the \
                    combined query failed");
            }
            join_all(queries.into_iter().map(|input| alone(execute_batch, input))).await
        }
    }
}

async fn alone<Q, A>(execute_batch: &Arc<ExecuteBatch<Q, A>>, input: Q) -> Result<A, StoreError> {
    let results = execute_batch(vec![input]).await?;
    results.into_iter().next().ok_or_else(|| StoreError::corrupt("an answer", "no rows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::Semaphore;

    /// Records the batches, and blocks each statement at a gate.
    struct Doubling {
        batcher: Arc<Batcher<u32, u32>>,
        statements: Arc<Mutex<Vec<Vec<u32>>>>,
        gate: Arc<Semaphore>,
    }

    fn doubling() -> Doubling {
        let (statements, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (recorded, gate_copy) = (Arc::clone(&statements), Arc::clone(&gate));
        let batcher = Batcher::new(move |queries: Vec<u32>| {
            recorded.lock().expect("a lock").push(queries.clone());
            let gate_copy = Arc::clone(&gate_copy);
            Box::pin(async move {
                gate_copy.acquire().await.expect("an open semaphore").forget();
                match queries.contains(&13) {
                    true => Err(StoreError::corrupt("13", "it is unlucky")),
                    false => Ok(queries.into_iter().map(|n| n * 2).collect()),
                }
            })
        });
        Doubling { batcher: Arc::new(batcher), statements, gate }
    }

    impl Doubling {
        fn double(&self, input: u32) -> tokio::task::JoinHandle<Result<u32, StoreError>> {
            let batcher = Arc::clone(&self.batcher);
            tokio::spawn(async move { batcher.execute(input).await })
        }

        async fn statements(&self, count: usize) {
            while self.statements.lock().expect("a lock").len() < count {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn queries_during_a_statement_are_batched() {
        let doubling = doubling();
        let first = doubling.double(1);
        doubling.statements(1).await;
        let others: Vec<_> = (2..=5).map(|n| doubling.double(n)).collect();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        doubling.gate.add_permits(2);
        assert_eq!(first.await.expect("the task ends").expect("an answer"), 2);
        for (other, n) in others.into_iter().zip(2..) {
            assert_eq!(other.await.expect("the task ends").expect("an answer"), n * 2);
        }
        assert_eq!(*doubling.statements.lock().expect("a lock"), [vec![1], vec![2, 3, 4, 5]]);
    }

    #[tokio::test]
    async fn failed_query_does_not_affect_others() {
        let doubling = doubling();
        let first = doubling.double(1);
        doubling.statements(1).await;
        let (unlucky, other) = (doubling.double(13), doubling.double(2));
        let aborted = doubling.double(3);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        aborted.abort();
        doubling.gate.add_permits(20);
        assert_eq!(first.await.expect("the task ends").expect("an answer"), 2);
        assert!(unlucky.await.expect("the task ends").is_err());
        assert_eq!(other.await.expect("the task ends").expect("an answer"), 4);
    }
}
