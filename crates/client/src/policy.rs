//! The approval policy: shows it, or proposes another one.

use std::str::FromStr as _;

use api::overview::PolicyView;
use clap::Args;
use engine::gate::{Policy, Risk};

use crate::client::{Client, WatchOption};
use crate::exit::{Failure, Outcome};
use crate::input::json_of;
use crate::output::outline::outline;
use crate::proposals::apply;
use crate::proposals::apply::ProposeArgs;
use crate::proposals::edits::Step;
use engine::plan::edit;

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    again: WatchOption,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    propose: ProposeArgs,
}

#[derive(Debug, Args)]
struct Change {
    /// Propose this number of approvals for every change
    #[arg(long, value_name = "N")]
    approvals: Option<u32>,
    /// Propose this number of approvals for changes of a risk class, for example destructive=2; 0
    /// removes the rule; repeatable
    #[arg(long = "risk", value_name = "RISK=N", value_parser = risk)]
    risks: Vec<(Risk, u32)>,
    /// Propose this cooling period
    #[arg(long, value_name = "HOURS")]
    cooling_hours: Option<u32>,
    /// Propose whether everyone needs a second factor to sign in
    #[arg(long, value_name = "BOOL")]
    second_factor: Option<bool>,
    /// Propose the policy in this JSON file, or - for standard input; the other options change it
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
}

fn risk(text: &str) -> Result<(Risk, u32), String> {
    let known = || Risk::ALL.map(Risk::as_str).join(", ");
    let (name, count) = text.split_once('=').ok_or("use RISK=N, for example destructive=2")?;
    let risk = Risk::ALL.into_iter().find(|risk| risk.as_str() == name);
    let risk =
        risk.ok_or_else(|| format!("unknown risk class {name:?}, use one of {}", known()))?;
    let count = u32::from_str(count).map_err(|_| format!("{count:?} is not a whole number"))?;
    Ok((risk, count))
}

impl Change {
    fn is_empty(&self) -> bool {
        let Self { approvals, risks, cooling_hours, second_factor, file } = self;
        let is_none = approvals.is_none() && cooling_hours.is_none() && second_factor.is_none();
        is_none && risks.is_empty() && file.is_none()
    }

    fn apply(&self, mut policy: Policy) -> Policy {
        policy.approvals = self.approvals.unwrap_or(policy.approvals);
        policy.cooling_hours = self.cooling_hours.unwrap_or(policy.cooling_hours);
        policy.second_factor = self.second_factor.unwrap_or(policy.second_factor);
        for (risk, count) in &self.risks {
            match count {
                0 => policy.by_risk.remove(risk),
                count => policy.by_risk.insert(*risk, *count),
            };
        }
        policy
    }
}

pub(crate) fn policy(client: &Client, args: &PolicyArgs) -> Outcome {
    let Client { server, .. } = client;
    if args.change.is_empty() {
        return client.show(
            args.again,
            || server.show(&api::calls::policy()),
            |value, _| outline(value),
        );
    }
    let current = apply::current(server, "system")?;
    let old = match &current.board.policy {
        Some(drafted) => drafted.clone(),
        None => server.read::<PolicyView>(&api::calls::policy().url())?.policy,
    };
    let base = match &args.change.file {
        Some(file) => serde_json::from_value(json_of(file)?)
            .map_err(|error| Failure::Usage(format!("Invalid policy in {file}: {error}.")))?,
        None => old.clone(),
    };
    let new = args.change.apply(base);
    let changes: Vec<String> = old.changes(&new).iter().map(ToString::to_string).collect();
    let step = || Step {
        edit: edit::SetPolicy { policy: new.clone() }.into(),
        summary: format!("* approval policy: {}", changes.join(", ")),
    };
    let steps: Vec<Step> = (old != new).then(step).into_iter().collect();
    apply::propose_one(client, &current, &steps, &args.propose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risk_rule_is_changed_and_removed() {
        let change = |risks: &[&str]| Change {
            approvals: Some(2),
            risks: risks.iter().map(|text| risk(text).unwrap()).collect(),
            cooling_hours: None,
            second_factor: None,
            file: None,
        };
        let policy = change(&["removal=3", "move=0"]).apply(Policy::default());
        assert_eq!((policy.approvals, policy.by_risk.get(&Risk::Removal)), (2, Some(&3)));
        assert!(!change(&["removal=0"]).apply(policy).by_risk.contains_key(&Risk::Removal));
        assert!(risk("danger=2").unwrap_err().contains("destructive"));
        assert!(risk("removal").is_err() && risk("removal=x").is_err());
    }
}
