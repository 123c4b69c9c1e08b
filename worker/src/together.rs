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
type Asked<Q, A> = (Q, oneshot::Sender<Result<A, StoreError>>);

/// Batches one kind of query.
pub struct Batcher<Q, A> {
    answer: Arc<ExecuteBatch<Q, A>>,
    asked: mpsc::UnboundedSender<Asked<Q, A>>,
}

impl<Q: Clone + Send + Sync + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Creates a batcher with this function. Dropping it ends its task.
    pub fn new(
        answer: impl Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, StoreError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (asked, questions) = mpsc::unbounded_channel();
        let answer: Arc<ExecuteBatch<Q, A>> = Arc::new(answer);
        tokio::spawn(run_batches(questions, Arc::clone(&answer)));
        Self { answer, asked }
    }

    /// Sends the query in the next batch and returns its result.
    ///
    /// # Errors
    /// The database error of this query.
    pub async fn ask(&self, input: Q) -> Result<A, StoreError> {
        let (caller, response) = oneshot::channel();
        if self.asked.send((input.clone(), caller)).is_ok()
            && let Ok(answer) = response.await
        {
            return answer;
        }
        // Only a panic ends the task. The run still needs its result.
        alone(&self.answer, input).await
    }
}

async fn run_batches<Q: Clone + Send + Sync, A: Send>(
    mut questions: mpsc::UnboundedReceiver<Asked<Q, A>>,
    answer: Arc<ExecuteBatch<Q, A>>,
) {
    let mut waiting = Vec::new();
    while questions.recv_many(&mut waiting, MAX_BATCH).await > 0 {
        let (questions, replies): (Vec<Q>, Vec<_>) = waiting.drain(..).unzip();
        for (caller, answer) in replies.into_iter().zip(answers(&answer, questions).await) {
            let _ = caller.send(answer);
        }
    }
}

async fn answers<Q: Clone, A>(
    answer: &Arc<ExecuteBatch<Q, A>>,
    questions: Vec<Q>,
) -> Vec<Result<A, StoreError>> {
    let count = questions.len();
    match answer(questions.clone()).await {
        Ok(answers) if answers.len() == count => answers.into_iter().map(Ok).collect(),
        Err(error) if count == 1 => vec![Err(error)],
        other => {
            if let Err(error) = other {
                tracing::info!(%error, questions = count, "querying one by one, because the \
                    combined query failed");
            }
            join_all(questions.into_iter().map(|input| alone(answer, input))).await
        }
    }
}

async fn alone<Q, A>(answer: &Arc<ExecuteBatch<Q, A>>, input: Q) -> Result<A, StoreError> {
    let answers = answer(vec![input]).await?;
    answers.into_iter().next().ok_or_else(|| StoreError::corrupt("an answer", "no rows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::Semaphore;

    /// Records the batches, and blocks each statement at a gate.
    struct Asked {
        together: Arc<Batcher<u32, u32>>,
        statements: Arc<Mutex<Vec<Vec<u32>>>>,
        gate: Arc<Semaphore>,
    }

    fn doubling() -> Asked {
        let (statements, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (recorded, gate_copy) = (Arc::clone(&statements), Arc::clone(&gate));
        let together = Batcher::new(move |questions: Vec<u32>| {
            recorded.lock().expect("a lock").push(questions.clone());
            let gate_copy = Arc::clone(&gate_copy);
            Box::pin(async move {
                gate_copy.acquire().await.expect("open").forget();
                match questions.contains(&13) {
                    true => Err(StoreError::corrupt("13", "it is unlucky")),
                    false => Ok(questions.into_iter().map(|n| n * 2).collect()),
                }
            })
        });
        Asked { together: Arc::new(together), statements, gate }
    }

    impl Asked {
        fn ask(&self, input: u32) -> tokio::task::JoinHandle<Result<u32, StoreError>> {
            let together = Arc::clone(&self.together);
            tokio::spawn(async move { together.ask(input).await })
        }

        async fn statements(&self, count: usize) {
            while self.statements.lock().expect("a lock").len() < count {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn queries_during_a_statement_are_batched() {
        let asked = doubling();
        let first = asked.ask(1);
        asked.statements(1).await;
        let others: Vec<_> = (2..=5).map(|n| asked.ask(n)).collect();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        asked.gate.add_permits(2);
        assert_eq!(first.await.expect("to end").expect("an answer"), 2);
        for (other, n) in others.into_iter().zip(2..) {
            assert_eq!(other.await.expect("to end").expect("an answer"), n * 2);
        }
        assert_eq!(*asked.statements.lock().expect("a lock"), [vec![1], vec![2, 3, 4, 5]]);
    }

    #[tokio::test]
    async fn failed_query_does_not_affect_others() {
        let asked = doubling();
        let first = asked.ask(1);
        asked.statements(1).await;
        let (unlucky, other) = (asked.ask(13), asked.ask(2));
        let aborted = asked.ask(3);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        aborted.abort();
        asked.gate.add_permits(20);
        assert_eq!(first.await.expect("to end").expect("an answer"), 2);
        assert!(unlucky.await.expect("to end").is_err());
        assert_eq!(other.await.expect("to end").expect("an answer"), 4);
    }
}
