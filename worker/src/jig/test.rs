//! The `test` jig: its data controls its behavior, to try graphs, reviews or screens without a
//! machine.
//!
//! It reads the key `test` of its input: `prints` (lines), `seconds` (duration), `fail` (true, or
//! the reason), `returns` (an object, also if the run fails).

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::Jig;
use crate::job::log::{Log, Stream};
use crate::job::{Ended, Job, Object, Stop};

#[derive(Debug, Clone, Copy)]
pub struct Test;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    prints: Vec<String>,
    seconds: f64,
    fail: Value,
    returns: Object,
}

impl Jig for Test {
    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, mut stop: Stop) -> BoxFuture<'a, Ended> {
        async move {
            let data = match job.input.get("test") {
                None => Settings::default(),
                Some(value) => match serde_json::from_value(value.clone()) {
                    Ok(data) => data,
                    Err(error) => {
                        return Ended::failed(format!(
                            "Cannot read the data under `test`: {error}"
                        ));
                    }
                },
            };
            for line in &data.prints {
                log.line(Stream::Stdout, line);
            }
            let time = Duration::try_from_secs_f64(data.seconds).unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                reason = stop.requested() => return Ended::stopped(reason, Some(true)),
            }
            let reason = match data.fail {
                Value::Null | Value::Bool(false) => return Ended::Returned(data.returns),
                Value::String(reason) => reason,
                _ => "The test requested a failure.".to_owned(),
            };
            Ended::Failed { reason, found: data.returns }
        }
        .boxed()
    }
}
