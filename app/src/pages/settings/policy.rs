//! The approval policy, and the way to change it.
//!
//! The policy is part of the desired state and not a setting. So it changes with a proposal that
//! another person approves. This page shows the policy in force and the requirements for a change.
//! It links to the board that edits it.

use api::calls;
use api::console::DeploymentPage;
use api::listing::DeploymentsWanted;
use api::live::Topic;
use api::overview::PolicyView;
use engine::counting::many;
use engine::gate::Policy;
use engine::ids::{DeploymentId, DeploymentName, by_whom};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;

use super::Sections;
use crate::calls::{ProposePolicy, deployments, policy};
use crate::clock::Moment;
use crate::failure::Answer;
use crate::live::{NOW, use_live};
use crate::pages::board::RISKS;
use crate::parts::act::problem_of;
use crate::parts::{DeploymentField, Feed, Icon, ProblemNotice, Same, Typed, icon, load};
use crate::places;
use crate::reader::{OPERATOR, with_right};

/// The policy, and some deployments on which a new one can be proposed.
type Both = (PolicyView, DeploymentPage);

async fn both() -> Answer<Both> {
    Ok((policy().await?, deployments(DeploymentsWanted::default()).await?))
}

async fn both_and_right() -> Answer<(Both, bool)> {
    with_right(both(), OPERATOR).await
}

#[component]
pub fn PolicyPage() -> impl IntoView {
    let found = Resource::new(|| (), |()| both_and_right());
    view! {
        <Title text="Policy"/>
        <div class="head">
            <h1>"Policy"</h1>
            <Sections/>
        </div>
        {load(found, |(first, may_propose)| view! { <Shown first may_propose/> })}
    }
    .into_any()
}

#[component]
fn Shown(first: Both, may_propose: bool) -> impl IntoView {
    let feed = Feed::new(first, both);
    use_live().hear(vec![Topic::Targets], NOW, move |_| feed.eventually());
    let found = feed.value();
    let view = Memo::new(move |_| found.read().0.clone());
    let origin = move || {
        let view = view.get();
        let by = format!("by {}", by_whom(view.by.as_deref()));
        let (before, target) = (view.target.0 - 1, view.target.0);
        let change = format!("{}?from={before}&to={target}", places::BLUEPRINTS);
        let link = (before > 0).then(|| view! { ", " <a href=change>"target " {target}</a> });
        view! { "Policy " {view.number.0} ", since " <Moment at=view.since/> ", " {by} {link} }
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <section class="card" aria-labelledby="policy-title">
            <header><h2 id="policy-title">"Approvals that a change needs"</h2></header>
            <table class="table">
                <thead>
                    <tr>
                        <th scope="col">"Which change"</th>
                        <th scope="col" class="number">"Approvals"</th>
                    </tr>
                </thead>
                <tbody>{move || lines(&view.read().policy)}</tbody>
            </table>
            <table class="table">
                <thead>
                    <tr>
                        <th scope="col">"Passkeys and sign-in"</th>
                        <th scope="col">"Which"</th>
                    </tr>
                </thead>
                <tbody>{move || found.with(|(view, page)| demands(&view.policy, page))}</tbody>
            </table>
            <div class="inside">
                <p>"Where several of these are so, the highest number counts. Approvals are those of reviewers who wrote nothing of the change; a new version of it needs them anew."</p>
                <p class="muted">{origin}</p>
                <Same of=move |_: Typed| vec![calls::policy()]/>
            </div>
        </section>
        <Another found may_propose/>
    }
    .into_any()
}

fn lines(policy: &Policy) -> impl IntoView + use<> {
    let every = view! { <tr><td>"Every change"</td> <td class="number"><b>{policy.approvals}</b></td></tr> };
    let of_risk = RISKS.map(|(risk, words)| {
        let own = policy.by_risk.get(&risk).copied();
        let needed = policy.approvals_for(&[risk].into());
        let says = match own {
            Some(own) if own < needed => format!("{own} asked for; every change needs {needed}"),
            Some(_) => String::new(),
            None => "as every change".to_owned(),
        };
        view! { <tr><td>{words}</td> <td class="number"><small class="muted">{says}</small> " " <b>{needed}</b></td></tr> }
    });
    let cooling = view! { <tr><td>"Cooling period after an admin gives a reviewer access"</td> <td class="number"><b>{many(policy.cooling_hours, "hour")}</b></td></tr> };
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
    let factor = if policy.second_factor { "everyone" } else { "nobody" };
    view! {
        <tr><td>"Approvals signed with a passkey"</td> <td><b>{signed}</b></td></tr>
        <tr><td>"Second factor at sign-in"</td> <td><b>{factor}</b></td></tr>
    }
}

/// The requirements for a new policy, and the link to propose it.
#[component]
fn Another(found: RwSignal<Both>, may_propose: bool) -> impl IntoView {
    let needs = move || found.read().0.policy.approvals;
    view! {
        <section class="card" aria-labelledby="another-title">
            <header><h2 id="another-title">"Another policy"</h2></header>
            <div class="inside">
                <p>"A policy changes by a proposal that somebody else approves. It can be a part of the proposal on any deployment, and not of one on a single node."</p>
                <ul class="whys">
                    <li>{icon(Icon::Right)} <span>"It passes under the policy that it replaces and under itself: at least " <b class="num">{needs}</b> " approvals, or what the new one asks for, if that is more."</span></li>
                    <li>{icon(Icon::Right)} <span>"It holds everywhere, so who submits, approves or commits it has that permission in every deployment."</span></li>
                    <li>{icon(Icon::Right)} <span>"Once it is committed, every review that is open then was made under the old one: it has to be submitted again."</span></li>
                </ul>
                {match may_propose {
                    true => view! { <Proposing found/> }.into_any(),
                    false => view! { <p class="muted">"To propose another one takes the permission " {OPERATOR} " in every deployment; an admin can give it."</p> }.into_any(),
                }}
            </div>
        </section>
    }
    .into_any()
}

/// The form that opens the board, with and without JavaScript.
#[component]
fn Proposing(found: RwSignal<Both>) -> impl IntoView {
    let propose = ServerAction::<ProposePolicy>::new();
    let first = found.with_untracked(|(_, page)| page.deployments.clone());
    let chosen = RwSignal::new(
        first.first().map(|deployment| deployment.name.to_string()).unwrap_or_default(),
    );
    let same = move |_: Typed| {
        DeploymentName::parse(chosen.read().trim())
            .map(|name| calls::propose(&name))
            .into_iter()
            .collect()
    };
    view! {
        <ActionForm action=propose attr:class="form">
            <div class="field">
                <label for="policy-deployment">"On the proposal of"</label>
                <DeploymentField id="policy-deployment" value=chosen typed=Callback::new(move |text| chosen.set(text)) first/>
                <span class="hint">"Any deployment, by its name. It is opened where there is none. Its board says what the new policy comes to before it is put in."</span>
            </div>
            <ProblemNotice problem=problem_of(propose)/>
            <Same of=same/>
            <div class="buttons">
                <button class="button" type="submit" disabled=move || propose.pending().get()>{icon(Icon::Proposed)} "Propose another policy"</button>
            </div>
        </ActionForm>
    }
    .into_any()
}
