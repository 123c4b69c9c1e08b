//! The result of a run: the object that its scripts returned, or the reason of a failure.

use engine::data::number::{Fidelity, check_numbers};
use serde_json::Value;

use crate::job::log::{Log, Stream};
use crate::job::{Ended, Job, MAX_RESULT, Object};
use crate::node::wrapper::{AttemptEnd, Cause, Report};
use crate::secrets::Secrets;

/// Converts the end of an attempt to the result of its run.
pub(super) fn ended(end: AttemptEnd, job: &Job, log: &Log) -> Ended {
    match end {
        AttemptEnd::Reported { report, last_error } => completed(&report, &last_error, job, log),
        AttemptEnd::LeftOnNode => Ended::LeftOnNode,
        AttemptEnd::Missing { started } => Ended::Lost { started },
        AttemptEnd::Refused(reason) => Ended::Refused(reason),
        AttemptEnd::Failed(reason) => Ended::failed(reason),
        AttemptEnd::Stopped { reason, started, output } => {
            Ended::Stopped { reason, started, found: found(&output, log) }
        }
    }
}

/// The same for an adopted attempt. If it was ended on the node, its lost worker did that.
pub(super) fn adopted(end: AttemptEnd, job: &Job, log: &Log) -> Ended {
    match end {
        AttemptEnd::Reported { report: Report { cause: Cause::Canceled, .. }, .. } => {
            Ended::Lost { started: Some(true) }
        }
        end => ended(end, job, log),
    }
}

fn completed(report: &Report, last_error: &str, job: &Job, log: &Log) -> Ended {
    let Report { cause, script, output } = report;
    let reason = match cause {
        Cause::Exited(code) if code == "0" => return succeeded(script, output.as_deref(), log),
        Cause::Exited(_) if !last_error.is_empty() => last_error.to_owned(),
        Cause::Exited(code) => {
            format!("{script} ended with exit code {code} and wrote nothing to standard error.")
        }
        Cause::TimedOut => format!(
            "{script} took longer than {} seconds, its time limit, and was ended.",
            job.timeout().as_secs()
        ),
        Cause::Canceled => format!("{script} was ended on the node."),
        Cause::Unknown => {
            return Ended::failed(
                "The result of the run is unknown, because another program changed the folder \
                 .gantry/run of the node.",
            );
        }
    };
    Ended::Failed { reason, found: found(output.as_deref().unwrap_or_default(), log) }
}

fn succeeded(script: &str, output: Option<&[u8]>, log: &Log) -> Ended {
    let Some(output) = output else {
        return Ended::failed(format!(
            "{script} replaced the file $GANTRY_OUTPUT by something that is not a file, so its \
             result is lost. A script must write JSON into that file."
        ));
    };
    match returned(output, log.secrets()) {
        Ok(object) => Ended::Returned(object),
        Err(reason) => Ended::failed(reason),
    }
}

/// Parses the result of a run that did not succeed. An unreadable result is logged and is not
/// another failure.
fn found(output: &[u8], log: &Log) -> Object {
    returned(output, log.secrets()).unwrap_or_else(|reason| {
        log.line(Stream::Gantry, &format!("[gantry: the partial result is not stored: {reason}]"));
        Object::new()
    })
}

/// Parses the result of a script.
///
/// # Errors
/// If it is not a JSON object. The error quotes its beginning, with secrets masked.
fn returned(output: &[u8], secrets: &Secrets) -> Result<Object, String> {
    if output.len() > MAX_RESULT {
        return Err(format!("The output is larger than {MAX_RESULT} bytes."));
    }
    if output.trim_ascii().is_empty() {
        return Ok(Object::new());
    }
    let begin = || {
        // Masked before it is cut, because no mask finds half a secret.
        let text = secrets.mask(String::from_utf8_lossy(output).trim());
        text.chars().take(120).collect::<String>()
    };
    match serde_json::from_slice(output) {
        Ok(Value::Object(object)) => {
            // Limits on size and numbers apply to stored results. A number that would be rounded is
            // an error of the script.
            let text = String::from_utf8_lossy(output);
            match check_numbers(&text, Fidelity::Rounded) {
                Ok(()) => Ok(object),
                Err(error) => Err(secrets.mask(&format!("Invalid output: {error}"))),
            }
        }
        Ok(_) => Err(format!("The output is JSON, but not an object. It begins with: {}", begin())),
        Err(error) => {
            Err(format!("The output is not a JSON object ({error}). It begins with: {}", begin()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_number_that_would_change_is_rejected() {
        let none = Secrets::default();
        assert!(returned(b"{\"load\": [0.33333333333333333333, 1e300, 3]}", &none).is_ok());
        for lost in ["1e-400", "9007199254740993", "123456789012345678901234"] {
            let error = returned(format!("{{\"a\": [{lost}]}}").as_bytes(), &none).unwrap_err();
            assert!(
                error.starts_with(&format!(
                    "Invalid output: the number {lost} at /a/0 cannot be stored"
                )),
                "{error}"
            );
        }
    }
}
