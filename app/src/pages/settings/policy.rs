//! The approval policy, and the way to change it.
//!
//! The policy is part of the desired state and not a setting. So it changes with a proposal that
//! another person approves. This page shows the policy in force and the requirements for a change.
//! It links to the board that edits it.

use api::calls;
use api::deployments::DeploymentPage;
use api::deployments::DeploymentsQuery;
use api::live::Topic;
use api::overview::PolicyView;
use engine::counting::many;
use engine::gate::Policy;
use engine::ids::{DeploymentId, DeploymentName, actor_name};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;

use super::SettingsTabs;
use super::server_functions::{ProposePolicy, policy};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::action::problem_of;
use crate::components::{EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, load};
use crate::failure::ServerResult;
use crate::live::{NOW, use_live};
use crate::pages::deployments::DeploymentField;
use crate::pages::deployments::board::RISKS;
use crate::pages::deployments::deployments;
use crate::permissions::{OPERATOR, with_permission};

/// The policy, and some deployments on which a new one can be proposed.
type PolicyData = (PolicyView, DeploymentPage);

async fn both() -> ServerResult<PolicyData> {
    Ok((policy().await?, deployments(DeploymentsQuery::default()).await?))
}

async fn load_with_permission() -> ServerResult<(PolicyData, bool)> {
    with_permission(both(), OPERATOR).await
}

#[component]
pub fn PolicyPage() -> impl IntoView {
    let found = Resource::new(|| (), |()| load_with_permission());
    view! {
        <Title text="Policy"/>
        <div class="head">
            <h1>"Policy"</h1>
            <SettingsTabs/>
        </div>
        {load(found, |(first, may_propose)| view! { <PolicySettings first may_propose/> })}
    }
    .into_any()
}

#[component]
fn PolicySettings(first: PolicyData, may_propose: bool) -> impl IntoView {
    let feed = Feed::new(first, both);
    use_live().subscribe(vec![Topic::Blueprints], NOW, move |_| feed.eventually());
    let found = feed.value();
    let view = Memo::new(move |_| found.read().0.clone());
    let origin = move || {
        let view = view.get();
        let by = format!("by {}", actor_name(view.by.as_deref()));
        let (before, target) = (view.blueprint.0 - 1, view.blueprint.0);
        let change = format!("{}?from={before}&to={target}", addresses::BLUEPRINTS);
        let link = (before > 0).then(|| view! { ", " <a href=change>"blueprint " {target}</a> });
        view! { "Policy " {view.number.0} ", since " <TimeText at=view.since/> ", " {by} {link} }
    };
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <section class="card" aria-labelledby="policy-title">
            <header><h2 id="policy-title">"Approvals that a change needs"</h2></header>
            <table class="table">
                <thead>
                    <tr>
                        <th scope="col">"Change"</th>
                        <th scope="col" class="number">"Approvals"</th>
                    </tr>
                </thead>
                <tbody>{move || lines(&view.read().policy)}</tbody>
            </table>
            <table class="table">
                <thead>
                    <tr>
                        <th scope="col">"Rule"</th>
                        <th scope="col">"Applies to"</th>
                    </tr>
                </thead>
                <tbody>{move || found.with(|(view, page)| demands(&view.policy, page))}</tbody>
            </table>
            <div class="padded">
                <p>
                    "If several rows apply, the highest number counts. Only approvals of reviewers \
                     who are not authors of the change count. A new version needs new approvals."
                </p>
                <p class="muted">{origin}</p>
                <EquivalentCommands of=move |_: FormValues| vec![calls::policy()]/>
            </div>
        </section>
        <ChangePolicy found may_propose/>
    }
    .into_any()
}

fn lines(policy: &Policy) -> impl IntoView + use<> {
    let every = view! {
        <tr><td>"Every change"</td> <td class="number"><b>{policy.approvals}</b></td></tr>
    };
    let of_risk = RISKS.map(|(risk, words)| {
        let own = policy.by_risk.get(&risk).copied();
        let needed = policy.approvals_for(&[risk].into());
        let source = match own {
            Some(own) if own < needed => format!("set to {own}, but every change needs {needed}"),
            Some(_) => String::new(),
            None => "same as every change".to_owned(),
        };
        view! {
            <tr>
                <td>{words}</td>
                <td class="number"><small class="muted">{source}</small> " " <b>{needed}</b></td>
            </tr>
        }
    });
    let cooling = view! {
        <tr>
            <td>"Cooling period after an admin grants access to a reviewer"</td>
            <td class="number"><b>{many(policy.cooling_hours, "hour")}</b></td>
        </tr>
    };
    view! { {every} {of_risk.collect_view()} {cooling} }
}

/// The rules about signatures and the second factor.
fn demands(policy: &Policy, page: &DeploymentPage) -> impl IntoView + use<> {
    let name = |id: DeploymentId| {
        let known = page.deployments.iter().find(|deployment| deployment.id == id);
        known.map_or_else(|| id.to_string(), |deployment| deployment.name.to_string())
    };
    let rules: Vec<String> = policy.signed.iter().map(|rule| rule.text(name)).collect();
    let signed = match rules.as_slice() {
        [] => "none".to_owned(),
        rules => rules.join(", "),
    };
    let factor = if policy.second_factor { "everyone" } else { "no one" };
    view! {
        <tr><td>"Approvals signed with a passkey"</td> <td><b>{signed}</b></td></tr>
        <tr><td>"Second factor at sign-in"</td> <td><b>{factor}</b></td></tr>
    }
}

/// The requirements for a new policy, and the link to propose it.
#[component]
fn ChangePolicy(found: RwSignal<PolicyData>, may_propose: bool) -> impl IntoView {
    let needs = move || found.read().0.policy.approvals;
    view! {
        <section class="card" aria-labelledby="another-title">
            <header><h2 id="another-title">"Change the policy"</h2></header>
            <div class="padded">
                <p>
                    "To change the policy, add the new one to a proposal on any deployment. A \
                     proposal on a single node cannot contain it."
                </p>
                <ul class="reason-list">
                    <li>
                        {icon(Icon::Right)}
                        <span>
                            "The change must pass the old and the new policy. The number of \
                             approvals is at least "
                            <b class="num">{needs}</b>
                            ", or the number in the new policy if that is higher."
                        </span>
                    </li>
                    <li>
                        {icon(Icon::Right)}
                        <span>
                            "The policy applies everywhere, so you need permissions in every \
                             deployment to submit, approve or commit it."
                        </span>
                    </li>
                    <li>
                        {icon(Icon::Right)}
                        <span>
                            "After the commit, all open reviews must be submitted again, because \
                             they were made under the old policy."
                        </span>
                    </li>
                </ul>
                {match may_propose {
                    true => view! { <ProposeForm found/> }.into_any(),
                    false => view! {
                        <p class="muted">
                            "To propose a new policy, you need the permission " {OPERATOR}
                            " in every deployment. An admin can grant it."
                        </p>
                    }.into_any(),
                }}
            </div>
        </section>
    }
    .into_any()
}

/// The form that opens the board, with and without JavaScript.
#[component]
fn ProposeForm(found: RwSignal<PolicyData>) -> impl IntoView {
    let propose = ServerAction::<ProposePolicy>::new();
    let first = found.with_untracked(|(_, page)| page.deployments.clone());
    let chosen = RwSignal::new(
        first.first().map(|deployment| deployment.name.to_string()).unwrap_or_default(),
    );
    let same = move |_: FormValues| {
        DeploymentName::parse(chosen.read().trim())
            .map(|name| calls::propose(&name))
            .into_iter()
            .collect()
    };
    view! {
        <ActionForm action=propose attr:class="form">
            <div class="field">
                <label for="policy-deployment">"Deployment"</label>
                <DeploymentField
                    id="policy-deployment"
                    value=chosen
                    typed=Callback::new(move |text| chosen.set(text)) first
                />
                <span class="hint">
                    "If the deployment has no open proposal, Gantry opens one. Its board previews \
                     the impact of the new policy."
                </span>
            </div>
            <ProblemNotice problem=problem_of(propose)/>
            <EquivalentCommands of=same/>
            <div class="buttons">
                <button class="button" type="submit" disabled=move || propose.pending().get()>
                    {icon(Icon::Proposed)} "Propose a new policy"
                </button>
            </div>
        </ActionForm>
    }
    .into_any()
}
