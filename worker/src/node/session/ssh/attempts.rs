//! Tries the addresses of a node concurrently until one accepts the worker.

use std::time::Duration;

use api::nodes::TriedAddress;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use super::error::SshError;

/// Time for an address to complete authentication.
pub(super) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Delay before the next address is tried while the previous one is still in progress.
pub(super) const ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// The result of one address, for the record of the node.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) address: TriedAddress,
    /// Whether the result reveals whether something listens at the address.
    pub(super) reveals: bool,
}

pub(super) fn accepted(address: &str) -> TriedAddress {
    TriedAddress { address: address.to_owned(), reached: true, error: String::new() }
}

/// The result of one address.
pub(super) enum AddressResult {
    Accepted,
    /// Another address accepted the worker first.
    Pending,
    Failed(SshError),
}

impl AddressResult {
    pub(super) fn tried(&self, address: &str) -> Attempt {
        let error = match self {
            Self::Accepted => return Attempt { address: accepted(address), reveals: false },
            Self::Pending => {
                "not needed, because another address accepted the login first".to_owned()
            }
            Self::Failed(SshError::Unreachable(reasons)) => reasons.join("; "),
            Self::Failed(error) => error.to_string(),
        };
        // The address is shown separately.
        let error = error.strip_prefix(&format!("{address}: ")).unwrap_or(&error).to_owned();
        // A server that proved the pinned host key is the right one, and a rule depends only on the
        // record. Neither reveals anything.
        let reveals = !matches!(
            self,
            Self::Failed(SshError::AuthenticationFailed { .. } | SshError::Refused { .. })
        );
        Attempt {
            address: TriedAddress { address: address.to_owned(), reached: false, error },
            reveals,
        }
    }
}

/// Combines the errors if no address accepted the worker.
pub(super) fn combined_error(each: Vec<(String, AddressResult)>) -> SshError {
    let failed =
        |result| if let AddressResult::Failed(error) = result { Some(error) } else { None };
    let mut errors: Vec<SshError> =
        each.into_iter().filter_map(|(_, result)| failed(result)).collect();
    if errors.len() < 2 {
        return errors.pop().unwrap_or(SshError::NoAddress);
    }
    // An error from a server that answers is more useful than a timeout.
    errors.sort_by_key(|error| matches!(error, SshError::Unreachable(_)));
    let reasons = errors.into_iter().flat_map(|error| match error {
        SshError::Unreachable(reasons) => reasons,
        other => vec![other.to_string()],
    });
    SshError::Unreachable(reasons.collect())
}

/// Tries the addresses concurrently until one accepts the worker. Returns the result of each
/// address that was tried, in this order.
pub(super) async fn connect_first<T, F>(
    addresses: Vec<String>,
    delay: Duration,
    log_in: impl Fn(String) -> F,
) -> (Vec<(String, AddressResult)>, Option<(String, T)>)
where
    F: Future<Output = Result<T, SshError>>,
{
    let mut each: Vec<(String, AddressResult)> = Vec::with_capacity(addresses.len());
    let mut remaining = addresses.into_iter();
    let mut in_progress = FuturesUnordered::new();
    let mut next = Instant::now();
    loop {
        let all_started = remaining.len() == 0;
        tokio::select! {
            Some(ended) = in_progress.next() => {
                let (index, result): (usize, Result<T, SshError>) = ended;
                match result {
                    Ok(logged_in) => {
                        each[index].1 = AddressResult::Accepted;
                        let address = each[index].0.clone();
                        return (each, Some((address, logged_in)));
                    }
                    Err(error) => each[index].1 = AddressResult::Failed(error),
                }
                next = Instant::now();
            }
            () = sleep_until(next), if !all_started => {
                let Some(address) = remaining.next() else { continue };
                let (index, attempt) = (each.len(), log_in(address.clone()));
                each.push((address, AddressResult::Pending));
                in_progress.push(async move { (index, attempt.await) });
                next = Instant::now() + delay;
            }
            else => return (each, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::limits::ADDRESSES;

    use super::*;

    /// Seven addresses drop packets; the eighth answers.
    #[tokio::test]
    async fn silent_addresses_do_not_delay_others() {
        let addresses: Vec<String> = (1..=ADDRESSES).map(|number| number.to_string()).collect();
        let last = addresses.last().cloned().unwrap_or_default();
        let (each, logged_in) = connect_first(addresses, Duration::from_millis(1), |address| {
            let last = last.clone();
            async move { if address == last { Ok(address) } else { std::future::pending().await } }
        })
        .await;
        assert_eq!(logged_in.map(|(address, _)| address), Some(last));
        assert_eq!(each.len(), ADDRESSES);
        assert!(
            each[..ADDRESSES - 1]
                .iter()
                .all(|(_, result)| matches!(result, AddressResult::Pending))
        );
        let longest =
            ATTEMPT_DELAY * u32::try_from(ADDRESSES).expect("a small number") + LOGIN_TIMEOUT;
        assert!(longest < Duration::from_secs(30), "reach() must return within 30 s");
    }

    #[tokio::test]
    async fn failed_address_starts_the_next_at_once() {
        let failing = |address| async move {
            Err::<(), _>(SshError::Unreachable(vec![format!("{address}: no")]))
        };
        let never = Duration::from_secs(1 << 20);
        let (each, logged_in) =
            connect_first(vec!["a".into(), "b".into(), "c".into()], never, failing).await;
        assert!(logged_in.is_none());
        assert_eq!(combined_error(each).to_string(), "Cannot reach the node: a: no; b: no; c: no");
        assert_eq!(combined_error(Vec::new()), SshError::NoAddress);
    }
}
