//! A person's passkeys: on their own account page and on the page for admins.

use api::people::{PasskeyRequest, PasskeyView, Signature};
use api::{Problem, limits};
use engine::ids::PasskeyId;
use leptos::form::ActionForm;
use leptos::{html, prelude::*};

use super::server_functions::{self, RevokePasskey};
use crate::clock::TimeText;
use crate::components::action::{act, on_success, problem_of};
use crate::components::{EquivalentCommands, FormValues, Icon, ProblemNotice, icon};
use crate::failure::{Failure, ServerResult};
use crate::passkey;

/// The id of the card on the account page.
pub(crate) const PASSKEYS_ID: &str = "passkeys";

/// The list of passkeys with their commands.
#[component]
pub(super) fn Passkeys(
    passkeys: Signal<Vec<PasskeyView>>,
    /// Whether they belong to the reader.
    own: bool,
    changed: Callback<()>,
) -> impl IntoView {
    let revoke = ServerAction::<RevokePasskey>::new();
    on_success(revoke, move |()| changed.run(()));
    let (busy, problem) = (RwSignal::new(false), RwSignal::new(None::<Problem>));
    let may_confirm =
        Memo::new(move |_| !own || passkeys.read().iter().any(|passkey| passkey.confirmed));
    let one = move |passkey: PasskeyView| {
        let id = passkey.id;
        let confirm = (!passkey.confirmed && may_confirm.get()).then(|| {
            let word = if own { "Confirm with another passkey" } else { "Confirm passkey" };
            let label = format!("{word}: {}", passkey.name);
            let click = move |_| act(busy, problem, confirmed(id), move |_| changed.run(()));
            view! {
                <button
                    class="button small needs-scripts"
                    type="button"
                    aria-label=label
                    disabled=move || busy.get()
                    on:click=click
                >
                    {word}
                </button>
            }
        });
        let label = format!("Revoke passkey {}", passkey.name);
        view! {
            <tr>
                <td><b>{passkey.name.clone()}</b></td>
                <td data-label="Host">{passkey.host.clone()}</td>
                <td data-label="Fingerprint"><code>{passkey.fingerprint.clone()}</code></td>
                <td data-label="Created"><TimeText at=passkey.created/></td>
                <td data-label="Last used">{match passkey.used {
                    Some(at) => view! { <TimeText at/> }.into_any(),
                    None => view! { <span class="muted">"never"</span> }.into_any(),
                }}</td>
                <td data-label="State">{state(&passkey)}</td>
                <td data-label="Actions">
                    <div class="buttons">
                        {confirm}
                        <ActionForm action=revoke>
                            <input type="hidden" name="passkey" value=id.to_string()/>
                            <button
                                class="button quiet small"
                                type="submit"
                                aria-label=label.clone()
                                title=label
                                disabled=move || revoke.pending().get()
                            >
                                {icon(Icon::Cross)} "Revoke"
                            </button>
                        </ActionForm>
                    </div>
                </td>
            </tr>
        }
    };
    let table = move || {
        let passkeys = passkeys.get();
        if passkeys.is_empty() {
            return view! { <p class="padded muted">"No passkeys yet."</p> }.into_any();
        }
        view! {
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Name"</th>
                        <th scope="col">"Host"</th>
                        <th scope="col">"Fingerprint"</th>
                        <th scope="col">"Created"</th>
                        <th scope="col">"Last used"</th>
                        <th scope="col">"State"</th>
                        <th scope="col">"Actions"</th>
                    </tr>
                </thead>
                <tbody>{passkeys.into_iter().map(one).collect_view()}</tbody>
            </table>
        }
        .into_any()
    };
    let hint = move || {
        let waiting = passkeys.read().iter().any(|passkey| !passkey.confirmed);
        waiting.then_some(match (own, may_confirm.get()) {
            (true, true) => {
                "A passkey that is not confirmed does not count for signed verdicts. \
                Confirm it with your other passkey."
            }
            (true, false) => {
                "A passkey that is not confirmed does not count for signed verdicts. \
                Read its fingerprint to an admin, who confirms it."
            }
            (false, _) => {
                "Compare the fingerprint with the person before you confirm a passkey. \
                You sign the confirmation with your own passkey."
            }
        })
    };
    view! {
        {table}
        <div class="padded">
            {move || hint().map(|hint| view! { <p class="muted">{hint}</p> })}
            <ProblemNotice problem=problem_of(revoke)/>
            <ProblemNotice problem=problem/>
            <EquivalentCommands of=move |_: FormValues| {
                let list = own.then(api::calls::show_account);
                let revoke = passkeys.read()
                    .first()
                    .map(|passkey| api::calls::revoke_passkey(passkey.id));
                list.into_iter().chain(revoke).collect::<Vec<_>>()
            }/>
        </div>
    }
    .into_any()
}

fn state(passkey: &PasskeyView) -> impl IntoView + use<> {
    if !passkey.confirmed {
        return view! {
            <span class="pill" data-state="warn">{icon(Icon::Todo)} "not confirmed"</span>
        }
        .into_any();
    }
    let by = passkey.confirmed_by.clone().map(|by| format!(" by {by}"));
    let revoked = passkey.confirmer_revoked.map(|at| {
        view! { <span class="muted">", with a passkey that was revoked "<TimeText at=at/></span> }
    });
    view! {
        <span class="pill" data-state="active">{icon(Icon::Check)} "confirmed"</span>
        <span class="muted">{by}</span> {revoked}
    }
    .into_any()
}

/// The form that registers a passkey on this device.
#[component]
pub(crate) fn RegisterForm(changed: Callback<()>) -> impl IntoView {
    let (busy, problem) = (RwSignal::new(false), RwSignal::new(None::<Problem>));
    let made = RwSignal::new(None::<PasskeyView>);
    let name = NodeRef::<html::Input>::new();
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let typed = name.get_untracked().map(|field| field.value()).unwrap_or_default();
        made.set(None);
        act(busy, problem, registered(typed), move |passkey| {
            if let Some(field) = name.get_untracked() {
                field.set_value("");
            }
            made.set(Some(passkey));
            changed.run(());
        });
    };
    let done = move || {
        made.get().map(|made| {
            view! {
                <div class="notice" role="status">
                    <p>
                        "Passkey " <b>{made.name}</b> " is registered. Its fingerprint is "
                        <code>{made.fingerprint}</code> "."
                    </p>
                </div>
            }
        })
    };
    view! {
        <form class="form needs-scripts" on:submit=submit>
            <div class="field">
                <label for="passkey-name">"Name"</label>
                <input
                    class="input"
                    id="passkey-name"
                    name="name"
                    node_ref=name required
                    maxlength=limits::PASSKEY_NAME
                    autocomplete="off"
                    placeholder="Laptop"
                />
                <span class="hint">
                    "Name the device, so that you recognize the passkey later."
                </span>
            </div>
            <ProblemNotice problem=problem/>
            {done}
            <div class="buttons">
                <button class="button" type="submit" disabled=move || busy.get()>
                    "Register a passkey"
                </button>
            </div>
        </form>
        <p class="no-scripts muted">
            "Passkeys need JavaScript. Turn it on in your browser to register a passkey."
        </p>
    }
    .into_any()
}

async fn registered(name: String) -> ServerResult<PasskeyView> {
    let challenge = server_functions::passkey_options().await?;
    let answer = passkey::create(challenge.options).await.map_err(refused)?;
    server_functions::register_passkey(PasskeyRequest { name, answer }).await
}

async fn confirmed(id: PasskeyId) -> ServerResult<PasskeyView> {
    let request = server_functions::confirmation_options(id).await?;
    let answer = passkey::get(request.options).await.map_err(refused)?;
    server_functions::confirm_passkey(id, Signature { nonce: request.nonce, answer }).await
}

/// The error for a passkey that the browser could not use.
pub(crate) fn refused(reason: String) -> Failure {
    Failure(Problem::new(409, "passkey_not_used", "The passkey was not used", reason))
}
