//! Settings: your own account, the approval policy and, for admins, all accounts.

pub mod account;
pub(crate) mod passkeys;
pub mod people;
pub mod person;
pub mod policy;
pub mod server_functions;
pub mod tokens;

use api::people::Grant;
use leptos::prelude::*;
use leptos_router::hooks::use_location;

use crate::addresses;
use crate::components::{FormValues, Icon, Refused, escape_textarea, icon};

/// The permission to manage accounts.
pub(crate) const ADMIN: &str = "admin";

/// The tabs of the settings.
#[component]
fn SettingsTabs() -> impl IntoView {
    let path = use_location().pathname;
    let link = move |place: &'static str, word: &'static str| {
        let is_current = move || {
            path.with(|path| {
                path.starts_with(place)
                    || (path == addresses::SETTINGS && place == addresses::ACCOUNT)
            })
        };
        view! {
            <a class="button small" href=place aria-current=move || is_current().then_some("page")>
                {word}
            </a>
        }
    };
    view! {
        <nav class="buttons" aria-label="Settings">
            {link(addresses::ACCOUNT, "My account")}
            {link(addresses::PEOPLE, "People")}
            {link(addresses::SERVICES, "Service accounts")}
            {link(addresses::POLICY, "Policy")}
        </nav>
    }
    .into_any()
}

/// Describes grants in words.
fn grants_text(grants: &[Grant]) -> String {
    if grants.is_empty() {
        return "none".into();
    }
    let word = |grant: &Grant| match &grant.deployment {
        None => grant.permission.clone(),
        Some(deployment) => format!("{} in {deployment}", grant.permission),
    };
    grants.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The id of the section with grants on the page of an account.
const GRANTS_ID: &str = "may";

/// A warning for an account without permissions, with a link to the form at `there`. `None` for all
/// others.
fn no_grants_warning(grants: &[Grant], link: String) -> Option<AnyView> {
    grants.is_empty().then(|| {
        view! {
            <div class="notice" data-state="warn" role="status">
                {icon(Icon::Warn)}
                <div>
                    <b>"No permissions yet"</b>
                    <p>
                        "This account cannot see anything. Grant a permission under "
                        <a href=link>"Permissions"</a> "."
                    </p>
                </div>
            </div>
        }
        .into_any()
    })
}

/// The grants of the form's checkboxes and text. Skips invalid lines, which the server rejects.
fn granted(typed: FormValues) -> Vec<Grant> {
    let everywhere = ["viewer", "operator", "reviewer", "admin"]
        .into_iter()
        .filter(|word| typed.is_checked(word));
    let everywhere = everywhere.map(|word| Grant { permission: word.into(), deployment: None });
    let inside = typed.get("inside");
    let lines = inside.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let inside = lines.map(|(permission, deployment)| Grant {
        permission: permission.to_lowercase(),
        deployment: Some(deployment.trim().to_owned()),
    });
    everywhere.chain(inside).collect()
}

/// The fields for grants. `id` is a prefix for ids, unique on the page.
#[component]
fn GrantFields(
    id: &'static str,
    grants: Vec<Grant>,
    service: bool,
    /// The input of a refused form.
    #[prop(optional)]
    refused: Option<Refused>,
) -> impl IntoView {
    let refused = refused.filter(Refused::is_here);
    let has = |word: &str| match &refused {
        Some(refused) => refused.typed(word).is_some(),
        None => grants.iter().any(|grant| grant.deployment.is_none() && grant.permission == word),
    };
    let inside = grants
        .iter()
        .filter_map(|grant| Some(format!("{} {}", grant.permission, grant.deployment.as_ref()?)));
    let text = inside.collect::<Vec<String>>().join("\n");
    let inside = refused.as_ref().map_or(text, |refused| refused.value_or("inside", ""));
    let choices = [
        ("viewer", "viewer", "reads everything except secrets"),
        (
            "operator",
            "operator",
            "proposes changes, commits approved reviews, retries steps, puts deployments on hold",
        ),
        ("reviewer", "reviewer", "gives verdicts on reviews of other people"),
        (
            "admin",
            "admin",
            match service {
                true => "adds accounts and manages those that have no permission beyond its own",
                false => "manages accounts and permissions",
            },
        ),
    ];
    let shown = choices.into_iter().filter(|(name, ..)| !service || *name != "reviewer");
    let one = |(name, word, about): (&'static str, &'static str, &'static str)| {
        view! {
            <li>
                <label class="choice">
                    <input type="checkbox" name=name value="on" checked=has(name)/>
                    <span><b>{word}</b> " " <small>{about}</small></span>
                </label>
            </li>
        }
    };
    let area = format!("{id}-inside");
    let inside_hint = match service {
        true => "One per line: viewer or operator, then the deployment.",
        false => "One per line: viewer, operator or reviewer, then the deployment.",
    };
    view! {
        <fieldset class="field">
            <legend>"In all deployments"</legend>
            <ul class="choices">{shown.map(one).collect_view()}</ul>
        </fieldset>
        <div class="field">
            <label for=area.clone()>"In single deployments and the deployments below them"</label>
            <textarea
                class="input mono"
                id=area
                name="inside"
                rows="3"
                spellcheck="false"
                placeholder="operator web"
            >
                {escape_textarea(inside)}
            </textarea>
            <span class="hint">{inside_hint}</span>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_described_with_deployment() {
        let grant = |permission: &str, deployment: Option<&str>| Grant {
            permission: permission.into(),
            deployment: deployment.map(str::to_owned),
        };
        assert_eq!(grants_text(&[]), "none");
        assert_eq!(
            grants_text(&[grant("viewer", None), grant("operator", Some("web"))]),
            "viewer, operator in web"
        );
    }
}
