//! Edits that affect all deployments: enabled jigs and the approval policy.

use std::collections::{BTreeMap, BTreeSet};

use api::views::board::{Board, JigView};
use engine::counting::many;
use engine::gate::{COOLING_HOURS, MAX_APPROVALS, Policy, Risk, SignedRule};
use engine::ids::{DeploymentId, JigName};
use engine::plan::{Edit, edit};
use leptos::prelude::*;

use super::board_state::BoardState;
use crate::components::FieldError;
use crate::pages::proposals::{EditForm, SubmitButton};

#[component]
pub(super) fn Jigs(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let jigs = board_state.board().read_untracked().jigs.clone();
    let selected = RwSignal::new(
        jigs.iter().map(|jig| (jig.jig.clone(), jig.active)).collect::<BTreeMap<JigName, bool>>(),
    );
    let edit_form = EditForm::new(board_state.pen(), move || {
        let board = board_state.board().read();
        let selected = selected.read();
        let switched =
            |jig: &JigView| selected.get(&jig.jig).copied().filter(|active| *active != jig.active);
        let switch = |jig: &JigView| {
            Some(Edit::ActivateJig(edit::ActivateJig {
                jig: jig.jig.clone(),
                active: switched(jig)?,
            }))
        };
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
                        prop:checked=move || of.with_value(
                            |jig| selected.read().get(jig).copied().unwrap_or_default()
                        )
                        on:change=move |event| {
                            let on = event_target_checked(&event);
                            selected.update(|selected| {
                                selected.insert(set.clone(), on);
                            });
                        }
                    />
                    <span>
                        <b>{jig.jig.to_string()}</b> " "
                        <small>{many(jig.roles, "role")} " of barclamps in use"</small>
                    </span>
                </label>
            </li>
        }
    };
    let fields = view! {
        <p class="muted">
            "A jig runs the steps of roles. While a jig is off, its steps do not start in any \
             deployment, and its roles cannot be bound."
        </p>
        <fieldset class="field">
            <legend>"Enabled jigs"</legend>
            <ul class="choices">{jigs.into_iter().map(line).collect_view()}</ul>
        </fieldset>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || Some("The proposal turns jigs on or off.".to_owned());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Risks for which the policy can require more approvals.
pub(crate) const RISKS: [(Risk, &str); 7] = [
    (Risk::Destructive, "When a destructive step runs"),
    (Risk::Rerun, "When an applied step runs again"),
    (Risk::Removal, "When a noderole is removed"),
    (Risk::Move, "When a deployment moves, or a node moves to one that is not above or below"),
    (Risk::Halt, "When a jig is turned off"),
    (Risk::Secret, "When a use of a secret is added or replaced"),
    (Risk::Connection, "When the connection of a node changes"),
];

/// Parses a number of approvals. The server checks the range.
fn read(typed: &str) -> Result<Option<u32>, String> {
    match typed.trim() {
        "" => Ok(None),
        digits => digits
            .parse()
            .map(Some)
            .map_err(|_| format!("{digits} is not a whole number. Enter digits only.")),
    }
}

/// Edits the approval policy.
#[component]
pub(super) fn SetPolicy(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let before = board_state.board().read_untracked().policy.clone();
    let text = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
    let every = RwSignal::new(text(before.as_ref().map(|policy| policy.approvals)));
    let of_risk =
        |risk: Risk| text(before.as_ref().and_then(|policy| policy.by_risk.get(&risk).copied()));
    let by_risk = RISKS.map(|(risk, words)| (risk, words, RwSignal::new(of_risk(risk))));
    let cooling = RwSignal::new(text(before.as_ref().map(|policy| policy.cooling_hours)));
    let signed = before.as_ref().map(|policy| policy.signed.clone()).unwrap_or_default();
    let ticked = |risk: Option<Risk>| signed.contains(&SignedRule { deployment: None, risk });
    let signs = std::iter::once((None, "Every change"))
        .chain(RISKS.map(|(risk, words)| (Some(risk), words)))
        .map(|(risk, words)| (risk, words, RwSignal::new(ticked(risk))))
        .collect::<Vec<_>>();
    let places = Deployments::of(&board_state.board().read_untracked());
    let inside = RwSignal::new(places.lines(&signed));
    let places = StoredValue::new(places);
    let inside_rules = Memo::new(move |_| places.with_value(|places| places.rules(&inside.read())));
    let factor = RwSignal::new(before.as_ref().is_some_and(|policy| policy.second_factor));
    let boxes = StoredValue::new(signs.clone());
    let policy = move || {
        let approvals = read(&every.read()).ok().flatten()?;
        let mut required = BTreeMap::new();
        for (risk, _, typed) in by_risk {
            let n = read(&typed.read()).ok()?;
            required.extend(n.map(|n| (risk, n)));
        }
        let cooling_hours = read(&cooling.read()).ok()?.unwrap_or(COOLING_HOURS);
        let mut signed = inside_rules.get().ok()?;
        boxes.with_value(|boxes| {
            let ticked = boxes.iter().filter(|(_, _, ticked)| ticked.get());
            signed.extend(ticked.map(|(risk, _, _)| SignedRule { deployment: None, risk: *risk }));
        });
        Some(Policy {
            approvals,
            by_risk: required,
            cooling_hours,
            signed,
            second_factor: factor.get(),
        })
    };
    let edit_form = EditForm::new(board_state.pen(), move || {
        let policy =
            policy().filter(|policy| board_state.board().read().policy.as_ref() != Some(policy));
        policy.map(|policy| Edit::SetPolicy(edit::SetPolicy { policy })).into_iter().collect()
    });
    let fields = by_risk.into_iter().zip(0..).map(|((_, words, typed), n)| {
        view! {
            <Approvals id=format!("policy-{n}") words typed placeholder="Same as every change"/>
        }
    });
    let fields = view! {
        <p class="muted">
            "Applies to all later changes in every deployment. This change must satisfy the old \
             and the new policy. Approvals of authors do not count. "
            {format!("Enter 1 to {MAX_APPROVALS} approvals.")}
        </p>
        <Approvals id="policy-every" words="Every change" typed=every placeholder=""/>
        {fields.collect_view()}
        <Approvals
            id="policy-cooling"
            words="Cooling period after an admin gives a reviewer access, in hours"
            typed=cooling
            placeholder="24"
        />
        <fieldset class="field">
            <legend>"Approvals signed with a passkey"</legend>
            <ul class="choices">
                {signs.into_iter().map(|(_, words, ticked)| view! {
                    <li><Checkbox words ticked/></li>
                }).collect_view()}
            </ul>
        </fieldset>
        <div class="field">
            <label for="policy-signed">"Signed approvals in single deployments"</label>
            <textarea
                class="area small"
                id="policy-signed"
                autocomplete="off"
                spellcheck="false"
                placeholder="web destructive"
                aria-invalid=move || inside_rules.read().is_err().then_some("true")
                aria-describedby="policy-signed-hint policy-signed-error"
                prop:value=move || inside.get()
                on:input=move |event| inside.set(event_target_value(&event))
            ></textarea>
            <span class="hint" id="policy-signed-hint">
                "Write one deployment per line, with a risk if the rule is only for that risk. Use \
                 IDs for deployments that are not below this one."
            </span>
            <FieldError
                id="policy-signed-error".to_owned()
                of=Signal::derive(move || inside_rules.get().err())
            />
        </div>
        <fieldset class="field">
            <legend>"Sign-in"</legend>
            <Checkbox words="Second factor at sign-in for everyone" ticked=factor/>
        </fieldset>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || Some("The proposal sets the policy.".to_owned());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

#[component]
fn Checkbox(words: &'static str, ticked: RwSignal<bool>) -> impl IntoView {
    view! {
        <label class="choice">
            <input
                type="checkbox"
                prop:checked=move || ticked.get()
                on:change=move |event| ticked.set(event_target_checked(&event))
            />
            <span>{words}</span>
        </label>
    }
    .into_any()
}

/// The deployments that the form knows by name.
struct Deployments(Vec<(DeploymentId, String)>);

impl Deployments {
    fn of(board: &Board) -> Self {
        let own = (board.id, board.name.to_string());
        Self(
            std::iter::once(own)
                .chain(board.destinations.iter().map(|place| (place.id, place.name.to_string())))
                .collect(),
        )
    }

    /// Formats the rules for single deployments as text.
    fn lines(&self, rules: &BTreeSet<SignedRule>) -> String {
        let line = |rule: &SignedRule| {
            let id = rule.deployment?;
            let known = self.0.iter().find(|(known, _)| *known == id);
            let name = known.map_or_else(|| id.to_string(), |(_, name)| name.clone());
            Some(rule.risk.map_or_else(|| name.clone(), |risk| format!("{name} {}", risk.as_str())))
        };
        rules.iter().filter_map(line).collect::<Vec<_>>().join("\n")
    }

    fn rules(&self, lines: &str) -> Result<BTreeSet<SignedRule>, String> {
        lines.lines().filter(|line| !line.trim().is_empty()).map(|line| self.rule(line)).collect()
    }

    fn rule(&self, line: &str) -> Result<SignedRule, String> {
        let mut words = line.split_whitespace();
        let (name, risk, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
        let known = self.0.iter().find(|(_, known)| known == name).map(|(id, _)| *id);
        let deployment = known.or_else(|| name.parse().ok()).ok_or_else(|| {
            format!(
                "Deployment {name} does not exist here or below. Use its ID from \
                /api/v1/deployments."
            )
        })?;
        if rest.is_some() {
            return Err(format!(
                "Invalid line \"{}\": write a deployment and at most one risk.",
                line.trim()
            ));
        }
        let of_word =
            |word: &str| RISKS.iter().map(|(risk, _)| *risk).find(|risk| risk.as_str() == word);
        let risk = risk.map(|word| {
            let all = RISKS.map(|(risk, _)| risk.as_str()).join(", ");
            of_word(word).ok_or_else(|| format!("Risk {word} does not exist. Use one of: {all}."))
        });
        Ok(SignedRule { deployment: Some(deployment), risk: risk.transpose()? })
    }
}

#[component]
fn Approvals(
    #[prop(into)] id: String,
    words: &'static str,
    typed: RwSignal<String>,
    placeholder: &'static str,
) -> impl IntoView {
    let error = move || read(&typed.read()).err();
    let error_id = format!("{id}-error");
    view! {
        <div class="field inline">
            <label for=id.clone()>{words}</label>
            <input
                class="input"
                id=id.clone()
                inputmode="numeric"
                autocomplete="off"
                autofocus=placeholder.is_empty()
                placeholder=placeholder
                aria-invalid=move || error().is_some().then_some("true")
                aria-describedby=error_id.clone()
                prop:value=move || typed.get()
                on:input=move |event| typed.set(event_target_value(&event))
            />
            <FieldError id=error_id.clone() of=Signal::derive(error)/>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn policy_rules_format_deployments_and_risks() {
        let (web, other) = (DeploymentId(Uuid::from_u128(7)), DeploymentId(Uuid::from_u128(8)));
        let places = Deployments(vec![(web, "web".into())]);
        let rule = |deployment, risk| SignedRule { deployment: Some(deployment), risk };
        let expected: BTreeSet<_> =
            [rule(web, None), rule(web, Some(Risk::Destructive)), rule(other, None)].into();
        let read = places.rules(&format!(" web\n\nweb  destructive \n{other}"));
        assert_eq!(read, Ok(expected.clone()));
        assert_eq!(places.rules(&places.lines(&expected)), Ok(expected));
        for (line, error) in [
            ("edge", "Deployment edge does not exist"),
            ("web x", "Risk x does not exist"),
            ("web move y", "at most one risk"),
        ] {
            assert!(places.rules(line).is_err_and(|text| text.contains(error)), "{line}");
        }
    }
}
