//! The account menu: the user's name, their permissions, and *Sign out*.

use api::people::AccessNotice;
use api::views::frame::Me;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::server_functions::SignOut;
use super::theme::ThemeChoice;
use crate::addresses;
use crate::components::action::problem_of;
use crate::components::{EquivalentCommands, FormValues, Icon, ProblemNotice, icon};

#[component]
pub(super) fn Account(me: Me, reset: Option<AccessNotice>) -> impl IntoView {
    let sign_out = ServerAction::<SignOut>::new();
    let session = me.session;
    let may = if me.permissions.is_empty() { "none".to_owned() } else { me.permissions.join(", ") };
    let reset = reset.map(|notice| {
        view! {
            <a class="pill" data-state="warn" href=addresses::ACCOUNT>
                {icon(Icon::Warn)} {notice.by} " reset your sign-in"
            </a>
        }
    });
    view! {
        {reset}
        <div class="account">
            <button
                type="button"
                popovertarget="account-menu"
                aria-label=format!("Account of {}", me.name)
            >
                {icon(Icon::Person)}
                <span class="caption">{me.name.clone()}</span>
            </button>
            <div class="account-menu" id="account-menu" popover="auto">
                <dl class="facts">
                    <dt>"Signed in as"</dt>
                    <dd><b>{me.name}</b></dd>
                    <dt>"Permissions"</dt>
                    <dd>{may}</dd>
                </dl>
                <ThemeChoice/>
                <ProblemNotice problem=problem_of(sign_out)/>
                <ActionForm action=sign_out>
                    <EquivalentCommands
                        of=move |_: FormValues| {
                            session.into_iter().map(api::calls::end_session).collect::<Vec<_>>()
                        }
                    />
                    <button class="button wide" type="submit">
                        {icon(Icon::Leave)} "Sign out"
                    </button>
                </ActionForm>
            </div>
        </div>
    }
    .into_any()
}
