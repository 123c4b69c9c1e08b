//! # What many runs ask of the database, asked together
//!
//! Each run asks the same few things: where it points, to keep its input, to be ended. A statement for a hundred runs costs the
//! database little more than one for a single run: most of it is the transaction, its locks and the way there and back. So runs don't
//! ask by themselves: a task collects what has been asked while the statement before was under way, and asks for all of them at once.
//!
//! Invariants:
//! * nobody waits for company: an idle task asks at once, so a single run is as quick as it would be alone;
//! * one run's trouble is its own: when a statement for several fails, each is asked alone, and gets its own answer;
//! * whoever stops waiting (a run that was aborted) takes nothing from the others; what was asked is still done.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use store::StoreError;
use tokio::sync::{mpsc, oneshot};

/// Most questions of one statement. Beyond that a transaction holds its locks for longer than others should wait.
const MOST: usize = 100;

/// Answers questions in their order, all or none.
type Answer<Q, A> = dyn Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, StoreError>> + Send + Sync;
type Asked<Q, A> = (Q, oneshot::Sender<Result<A, StoreError>>);

/// Asks one kind of question for many.
pub struct Together<Q, A> {
    answer: Arc<Answer<Q, A>>,
    asked: mpsc::UnboundedSender<Asked<Q, A>>,
}

impl<Q: Clone + Send + Sync + 'static, A: Send + 'static> Together<Q, A> {
    /// Questions that are answered so. The task ends with this.
    pub fn answered_by(
        answer: impl Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, StoreError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (asked, questions) = mpsc::unbounded_channel();
        let answer: Arc<Answer<Q, A>> = Arc::new(answer);
        tokio::spawn(keep_answering(questions, Arc::clone(&answer)));
        Self { answer, asked }
    }

    /// Asks, together with whoever else asks meanwhile.
    ///
    /// # Errors
    /// What the database said to this question.
    pub async fn ask(&self, question: Q) -> Result<A, StoreError> {
        let (asker, answered) = oneshot::channel();
        if self.asked.send((question.clone(), asker)).is_ok()
            && let Ok(answer) = answered.await
        {
            return answer;
        }
        // The task is gone, which takes a panic; the run needs its answer all the same.
        alone(&self.answer, question).await
    }
}

async fn keep_answering<Q: Clone + Send + Sync, A: Send>(
    mut questions: mpsc::UnboundedReceiver<Asked<Q, A>>,
    answer: Arc<Answer<Q, A>>,
) {
    let mut waiting = Vec::new();
    while questions.recv_many(&mut waiting, MOST).await > 0 {
        let (questions, askers): (Vec<Q>, Vec<_>) = waiting.drain(..).unzip();
        for (asker, answer) in askers.into_iter().zip(answers(&answer, questions).await) {
            let _ = asker.send(answer);
        }
    }
}

async fn answers<Q: Clone, A>(
    answer: &Arc<Answer<Q, A>>,
    questions: Vec<Q>,
) -> Vec<Result<A, StoreError>> {
    let count = questions.len();
    match answer(questions.clone()).await {
        Ok(answers) if answers.len() == count => answers.into_iter().map(Ok).collect(),
        Err(error) if count == 1 => vec![Err(error)],
        other => {
            if let Err(error) = other {
                tracing::info!(%error, questions = count, "asked one by one, because together failed");
            }
            join_all(questions.into_iter().map(|question| alone(answer, question))).await
        }
    }
}

async fn alone<Q, A>(answer: &Arc<Answer<Q, A>>, question: Q) -> Result<A, StoreError> {
    let answers = answer(vec![question]).await?;
    answers.into_iter().next().ok_or_else(|| StoreError::corrupt("an answer", "there is none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::Semaphore;

    /// What was asked in one statement each, and a gate that each statement goes through.
    struct Asked {
        together: Arc<Together<u32, u32>>,
        statements: Arc<Mutex<Vec<Vec<u32>>>>,
        gate: Arc<Semaphore>,
    }

    fn doubling() -> Asked {
        let (statements, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (noted, passed) = (Arc::clone(&statements), Arc::clone(&gate));
        let together = Together::answered_by(move |questions: Vec<u32>| {
            noted.lock().expect("a lock").push(questions.clone());
            let passed = Arc::clone(&passed);
            Box::pin(async move {
                passed.acquire().await.expect("open").forget();
                match questions.contains(&13) {
                    true => Err(StoreError::corrupt("13", "it is unlucky")),
                    false => Ok(questions.into_iter().map(|n| n * 2).collect()),
                }
            })
        });
        Asked { together: Arc::new(together), statements, gate }
    }

    impl Asked {
        fn ask(&self, question: u32) -> tokio::task::JoinHandle<Result<u32, StoreError>> {
            let together = Arc::clone(&self.together);
            tokio::spawn(async move { together.ask(question).await })
        }

        async fn statements(&self, count: usize) {
            while self.statements.lock().expect("a lock").len() < count {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn what_is_asked_meanwhile_is_asked_together() {
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
    async fn one_that_can_not_be_answered_keeps_none_of_the_others() {
        let asked = doubling();
        let first = asked.ask(1);
        asked.statements(1).await;
        let (unlucky, other) = (asked.ask(13), asked.ask(2));
        let gone = asked.ask(3);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        asked.gate.add_permits(20);
        assert_eq!(first.await.expect("to end").expect("an answer"), 2);
        assert!(unlucky.await.expect("to end").is_err());
        assert_eq!(other.await.expect("to end").expect("an answer"), 4);
    }
}
