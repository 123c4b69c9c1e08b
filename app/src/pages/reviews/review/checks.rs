//! All rules of the approval policy: their result, their evidence, and the people who can act.

use api::reviews::{ReviewState, ReviewView};
use engine::counting::{either, many};
use engine::gate::contacts::named;
use engine::gate::{Rule, RuleResult};
use engine::lint::{Finding, Level, LintCheck};
use leptos::prelude::*;

use crate::components::{Icon, icon};

#[component]
pub(super) fn Checks(review: RwSignal<ReviewView>) -> impl IntoView {
    let rows = move || {
        let review = review.read();
        if review.state == ReviewState::Discarded {
            return view! {
                <tr>
                    <td colspan="4" class="muted">
                        "The proposal was discarded, so no rule applies."
                    </td>
                </tr>
            }
            .into_any();
        }
        review
            .gate
            .rules
            .iter()
            .map(|rule| row(rule, &evidence(&review, rule.rule)))
            .collect_view()
            .into_any()
    };
    view! {
        <section class="card" aria-label="Checks">
            <header>
                <h2>"Checks"</h2>
                <span class="muted">{move || match review.read().blueprint {
                    None => "current results, checked again at the commit",
                    Some(_) => "results at the commit",
                }}</span>
            </header>
            <div class="table-scroll">
                <table class="table responsive checks-table">
                    <thead>
                        <tr>
                            <th scope="col">"Rule"</th> <th scope="col">"Result"</th>
                            <th scope="col">"Message"</th> <th scope="col">"Evidence"</th>
                        </tr>
                    </thead>
                    <tbody>{move || rows()}</tbody>
                </table>
            </div>
        </section>
        <section class="card" aria-label="Lint">
            <header>
                <h2>"Lint"</h2>
                <span class="muted">{move || match review.read().current {
                    true => "results on the current state",
                    false => "results at submission",
                }}</span>
            </header>
            {move || findings(&review.read())}
        </section>
    }
    .into_any()
}

/// The findings of lint, each with its remedy.
fn findings(review: &ReviewView) -> impl IntoView + use<> {
    let line = |finding: &Finding| {
        let (color, shape, word) = match finding.level {
            Level::Error => ("error", Icon::Error, "error"),
            Level::Warning => ("warn", Icon::Warn, "warning"),
        };
        view! {
            <tr>
                <td data-label="Severity">
                    <span class="pill" data-state=color>{icon(shape)} {word}</span>
                </td>
                <td data-label="Check"><code>{finding.check.id()}</code></td>
                <td data-label="Location">{finding.at.clone()}</td>
                <td data-label="Finding and remedy">
                    {finding.problem.clone()} ". "
                    <span class="muted">{finding.remedy.clone()}</span>
                </td>
            </tr>
        }
    };
    if review.checks.is_empty() {
        return view! { <p class="padded muted">"No findings."</p> {passed(review)} }.into_any();
    }
    let lines = review.checks.iter().map(line).collect_view();
    view! {
        <div class="table-scroll">
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Severity"</th> <th scope="col">"Check"</th>
                        <th scope="col">"Location"</th> <th scope="col">"Finding and remedy"</th>
                    </tr>
                </thead>
                <tbody>{lines}</tbody>
            </table>
        </div>
        {passed(review)}
    }
    .into_any()
}

/// The names of checks without findings.
fn passed(review: &ReviewView) -> impl IntoView + use<> {
    let found: Vec<LintCheck> = review.checks.iter().map(|finding| finding.check).collect();
    let quiet: Vec<&str> = LintCheck::ALL
        .iter()
        .filter(|check| !found.contains(check))
        .map(|check| check.id())
        .collect();
    let (n, all) = (quiet.len(), LintCheck::ALL.len());
    view! {
        <details class="fold passed">
            <summary>{n} " of " {all} " checks passed"</summary>
            <p class="padded muted">{quiet.join(", ")}</p>
        </details>
    }
    .into_any()
}

fn row(state: &RuleResult, evidence: &str) -> impl IntoView + use<> {
    let (color, shape, word) = match (state.passes, state.rule) {
        (true, _) => ("active", Icon::Check, "passed"),
        (false, Rule::Approvals) => ("warn", Icon::Todo, "pending"),
        (false, _) => ("error", Icon::Cross, "failed"),
    };
    view! {
        <tr>
            <td data-label="Rule" class="nowrap"><b>{name(state.rule)}</b></td>
            <td data-label="Result">
                <span class="pill" data-state=color>{icon(shape)} {word}</span>
            </td>
            <td data-label="Message">{state.text.clone()}</td>
            <td data-label="Evidence" class="muted">{evidence.to_owned()}</td>
        </tr>
    }
    .into_any()
}

/// A short name. The match is exhaustive, so that a new rule of the engine needs a name.
fn name(rule: Rule) -> &'static str {
    match rule {
        Rule::Newest => "Newest version",
        Rule::Resolved => "Edits take effect",
        Rule::Lint => "Lint",
        Rule::Base => "Base",
        Rule::Epoch => "Epoch",
        Rule::Policy => "Policy",
        Rule::Approvals => "Approvals",
        Rule::Objections => "Objections",
        Rule::Threads => "Threads",
    }
}

/// The evidence for a rule, as far as the page has it.
fn evidence(review: &ReviewView, rule: Rule) -> String {
    let verdicts =
        |counts: bool| review.verdicts.iter().filter(|verdict| verdict.counts == counts).count();
    match rule {
        Rule::Newest => format!("version {} of the proposal", review.version),
        Rule::Resolved => format!("effects hash {}", short(&review.effects_hash)),
        Rule::Lint => {
            let errors =
                review.checks.iter().filter(|finding| finding.level == Level::Error).count();
            let warnings = review.checks.len() - errors;
            format!(
                "{}: {}, {}",
                many(LintCheck::ALL.len(), "check"),
                many(errors, "error"),
                many(warnings, "warning")
            )
        }
        Rule::Base => format!("planned on blueprint {}", review.parent),
        Rule::Epoch => String::new(),
        Rule::Policy => match review.risks.len() {
            0 => "no risk".to_owned(),
            1 => "1 risk".to_owned(),
            n => format!("{n} risks"),
        },
        Rule::Approvals => format!(
            "{} of {}. Can approve: {}",
            review.gate.approvals,
            many(review.gate.needed, "approval"),
            if review.gate.can_approve.is_empty() {
                "no one".to_owned()
            } else {
                named(&review.gate.can_approve)
            }
        ),
        Rule::Objections => {
            let (count, others) = (verdicts(true), verdicts(false));
            let (counts, do_not) =
                (either(count, "counts", "count"), either(others, "doesn't", "don't"));
            format!("{} that {counts}, {others} that {do_not}", many(count, "verdict"))
        }
        Rule::Threads => "all versions of the proposal".to_owned(),
    }
}

fn short(hash: &str) -> String {
    hash.chars().take(8).collect()
}
