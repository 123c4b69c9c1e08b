//! What a proposal says for all deployments: which jigs run, and how many approvals changes need.

use std::collections::BTreeMap;

use api::console::JigView;
use engine::counting::many;
use engine::gate::{COOLING_HOURS, MAX_APPROVALS, Policy, Risk};
use engine::ids::JigName;
use engine::plan::Edit;
use leptos::prelude::*;

use super::desk::Desk;
use crate::pages::edits::{Outcome, PutIn, Wish};
use crate::parts::Fault;

/// Switches jigs.
#[component]
pub(super) fn Jigs(desk: Desk, taken: Callback<()>) -> impl IntoView {
    let jigs = desk.board().read_untracked().jigs.clone();
    let wanted =
        RwSignal::new(jigs.iter().map(|jig| (jig.jig.clone(), jig.active)).collect::<BTreeMap<JigName, bool>>());
    let wish = Wish::new(desk.pen(), move || {
        let board = desk.board().read();
        let wanted = wanted.read();
        let switched = |jig: &JigView| wanted.get(&jig.jig).copied().filter(|active| *active != jig.active);
        let switch = |jig: &JigView| Some(Edit::ActivateJig { jig: jig.jig.clone(), active: switched(jig)? });
        board.jigs.iter().filter_map(switch).collect()
    });
    let line = move |jig: JigView| {
        let (of, set) = (StoredValue::new(jig.jig.clone()), jig.jig.clone());
        view! {
            <li>
                <label class="choice">
                    <input
                        type="checkbox"
                        role="switch"
                        prop:checked=move || of.with_value(|jig| wanted.read().get(jig).copied().unwrap_or_default())
                        on:change=move |event| {
                            let on = event_target_checked(&event);
                            wanted.update(|wanted| {
                                wanted.insert(set.clone(), on);
                            });
                        }
                    />
                    <span><b>{jig.jig.to_string()}</b> " " <small>{many(jig.roles, "role")} " of barclamps in use"</small></span>
                </label>
            </li>
        }
    };
    view! {
        <form
            class="form"
            on:submit=move |event| {
                event.prevent_default();
                wish.put("Jigs switched by the proposal.", taken);
            }
        >
            <div class="body">
                <p class="muted">"A jig is what runs a role’s steps on a node. While it is off, nothing starts by it in any deployment, and no role that needs it can be bound."</p>
                <fieldset class="field">
                    <legend>"On"</legend>
                    <ul class="choices">{jigs.into_iter().map(line).collect_view()}</ul>
                </fieldset>
                <Outcome of=wish/>
            </div>
            <div class="foot"><PutIn of=wish/></div>
        </form>
    }
    .into_any()
}

/// Changes with these risks can need more approvals than others.
pub(crate) const RISKS: [(Risk, &str); 7] = [
    (Risk::Destructive, "When something destructive runs"),
    (Risk::Rerun, "When something that is applied runs again"),
    (Risk::Removal, "When something is removed"),
    (Risk::Move, "When a node changes hands between deployments side by side"),
    (Risk::Halt, "When a jig is switched off"),
    (Risk::Secret, "When a use of a secret is added or replaced"),
    (Risk::Connection, "When the connection of a node changes"),
];

/// A number of approvals, as it is typed. Whether it is enough, or too much, the gate says.
fn read(typed: &str) -> Result<Option<u32>, String> {
    match typed.trim() {
        "" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| format!("{digits} is no whole number")),
    }
}

/// Sets how many approvals changes need.
#[component]
pub(super) fn SetPolicy(desk: Desk, taken: Callback<()>) -> impl IntoView {
    let before = desk.board().read_untracked().policy.clone();
    let said = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
    let every = RwSignal::new(said(before.as_ref().map(|policy| policy.approvals)));
    let of_risk = |risk: Risk| said(before.as_ref().and_then(|policy| policy.by_risk.get(&risk).copied()));
    let by_risk = RISKS.map(|(risk, words)| (risk, words, RwSignal::new(of_risk(risk))));
    let cooling = RwSignal::new(said(before.as_ref().map(|policy| policy.cooling_hours)));
    let policy = move || {
        let approvals = read(&every.read()).ok().flatten()?;
        let mut asked = BTreeMap::new();
        for (risk, _, typed) in by_risk {
            let n = read(&typed.read()).ok()?;
            asked.extend(n.map(|n| (risk, n)));
        }
        let cooling_hours = read(&cooling.read()).ok()?.unwrap_or(COOLING_HOURS);
        Some(Policy { approvals, by_risk: asked, cooling_hours, ..Policy::default() })
    };
    let wish = Wish::new(desk.pen(), move || {
        let policy = policy().filter(|policy| desk.board().read().policy.as_ref() != Some(policy));
        policy.map(|policy| Edit::SetPolicy { policy }).into_iter().collect()
    });
    let fields = by_risk.into_iter().zip(0..).map(|((_, words, typed), n)| {
        view! { <Approvals id=format!("policy-{n}") words typed placeholder="As every change"/> }
    });
    view! {
        <form
            class="form"
            on:submit=move |event| {
                event.prevent_default();
                wish.put("The policy is set by the proposal.", taken);
            }
        >
            <div class="body">
                <p class="muted">
                    "For all changes after this one, in every deployment. This one passes under both. Approvals are those of people who did not write the change; "
                    {format!("1 to {MAX_APPROVALS} of them.")}
                </p>
                <Approvals id="policy-every" words="Every change" typed=every placeholder=""/>
                {fields.collect_view()}
                <Approvals id="policy-cooling" words="Cooling period after an admin gives a reviewer access, in hours" typed=cooling placeholder="24"/>
                <Outcome of=wish/>
            </div>
            <div class="foot"><PutIn of=wish/></div>
        </form>
    }
    .into_any()
}

#[component]
fn Approvals(
    #[prop(into)] id: String,
    words: &'static str,
    typed: RwSignal<String>,
    placeholder: &'static str,
) -> impl IntoView {
    let fault = move || read(&typed.read()).err();
    let fault_id = format!("{id}-fault");
    view! {
        <div class="field across">
            <label for=id.clone()>{words}</label>
            <input
                class="input"
                id=id.clone()
                inputmode="numeric"
                autocomplete="off"
                autofocus=placeholder.is_empty()
                placeholder=placeholder
                aria-invalid=move || fault().is_some().then_some("true")
                aria-describedby=fault_id.clone()
                prop:value=move || typed.get()
                on:input=move |event| typed.set(event_target_value(&event))
            />
            <Fault id=fault_id.clone() of=Signal::derive(fault)/>
        </div>
    }
    .into_any()
}
