//! The audit page: entries with filters, verification of the hash chain part by part, and the
//! export for offline verification.

use api::audit::AuditSort;
#[cfg(feature = "ssr")]
use api::audit::ChainQuery;
use api::audit::{AuditEntry, AuditPage, AuditQuery, AuditSource, ChainView, MAX_VERIFIED_LINKS};
use api::calls::List;
use api::live::Topic;
use engine::counting::either;
use engine::ids::{SYSTEM_ACTOR, actor_name};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::addresses;
use crate::clock::{TimeText, parse_time};
use crate::codec::AsJson;
use crate::components::list::{ListAddress, columns_of, refused};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::notice::problem_in_page;
use crate::components::{Empty, EquivalentCommands, Feed, FormValues, Icon, icon, load_with_error};
use crate::failure::{Failure, ServerResult};
use crate::live::{NOW, use_live};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};
use crate::validation::pretty;

columns_of!(Part {
    Time "time" "Time",
    Actor "actor" "Actor",
    Action "action" "Action",
    Subject "subject" "Subject",
    Sealed "sealed" "Sealed",
});

/// The parameter of the entry after which verification starts.
const VERIFY_AFTER_PARAM: &str = "check";
/// The parameter of the hash with which the previous part ended.
const CHAIN_LINK_PARAM: &str = "link";

#[derive(Clone, Copy)]
struct Entries;

impl ListPage for Entries {
    type Sort = AuditSort;
    type Part = Part;
    type Page = AuditPage;
    type Key = i64;

    const ID: &'static str = "audit";
    const NAMES: (&'static str, &'static str) = ("entry", "entries");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[
        Field::text("actor", "Actor", "actor is").like("ada, or gantry"),
        Field::text("action", "Action", "action is").like("review.commit"),
        Field::text("subject", "Subject", "subject is").like("a number or an id"),
        Field::choice("source", "Source", "source is", || {
            vec![("", "the application"), ("database", "the database"), ("all", "all")]
        }),
        Field::time("since", "From (UTC)", "from"),
        Field::time("until", "Until (UTC)", "until"),
    ];
    const EXTRA_PARAMS: &'static [&'static str] = &[VERIFY_AFTER_PARAM, CHAIN_LINK_PARAM];
    const NUMBERS: &'static [Part] = &[Part::Sealed];
    const SORTS: &'static [(AuditSort, &'static str)] = &[(AuditSort::At, "time")];
    const API_LIST: List = List::Audit;

    fn path(self) -> String {
        addresses::AUDIT.to_owned()
    }

    async fn fetch(self, listed: ListAddress<AuditSort>) -> ServerResult<AuditPage> {
        let (since, until) = (listed.time("since", "From")?, listed.time("until", "Until")?);
        let (sort, before) = listed.page_position()?;
        let (actor, action, subject) =
            (listed.param("actor"), listed.param("action"), listed.param("subject"));
        let source = match listed.param("source").as_str() {
            "database" => AuditSource::Database,
            "all" => AuditSource::All,
            _ => AuditSource::Application,
        };
        audit(AuditQuery {
            actor,
            action,
            subject,
            since,
            until,
            source,
            sort,
            limit: None,
            before,
        })
        .await
    }

    fn sorted_by(column: Part) -> Option<(AuditSort, bool)> {
        (column == Part::Time).then_some((AuditSort::At, true))
    }

    fn key(entry: &AuditEntry) -> i64 {
        entry.id
    }

    /// Most entries accompany an event of another object. Sign-ins and changes to people have no
    /// event. They appear with the next one.
    fn follow(self, feed: Feed<AuditPage>) {
        use_live().subscribe(
            vec![Topic::Blueprints, Topic::Reviews, Topic::Nodes],
            NOW,
            move |_| feed.eventually(),
        );
    }

    /// The API takes times in milliseconds.
    fn api_param(self, listed: &ListAddress<AuditSort>, word: &str) -> Option<String> {
        let text = listed.param(word);
        match word {
            "since" | "until" => parse_time(&text).map(|at| at.to_string()),
            _ => Some(text),
        }
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Audit title="No entries yet">
                <p>"Gantry records every change and decision here."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, entry: Memo<AuditEntry>, with: RowContext<Self>) -> AnyView {
        // An entry never changes. Only its seal is added later.
        let AuditEntry { id, at, name, action, subject, detail, .. } = entry.get_untracked();
        let actor = actor_name(name.as_deref()).to_owned();
        let actor_filter = name.unwrap_or_else(|| SYSTEM_ACTOR.to_owned());
        let link = |word: &str, value: &str| {
            with.listed.with_value(|listed| self.filtered_address(listed, word, value).address())
        };
        let (by, from_action) = (link("actor", &actor_filter), link("action", &action));
        let about = (!subject.is_empty()).then(|| link("subject", &subject));
        let subject = about.map(|about| view! { <a href=about><code>{subject}</code></a> });
        let is_more = detail.as_object().is_none_or(|fields| !fields.is_empty());
        let more = is_more.then(|| {
            let (text, label) = (pretty(&detail), format!("Details of entry {id}"));
            view! {
                <details class="more">
                    <summary aria-label=label>{icon(Icon::Right)} "Details"</summary>
                    <pre tabindex="0">{text}</pre>
                </details>
            }
        });
        let seal = move || match entry.read().sealed {
            Some(place) => view! { <span title="Position in the chain">{place}</span> }.into_any(),
            None => view! { <span class="muted">"not yet"</span> }.into_any(),
        };
        view! {
            <tr>
                <td data-label="Time" class="muted"><TimeText at/></td>
                {with.cell(Part::Actor, "", view! { <a href=by>{actor}</a> })}
                {with.cell(Part::Action, "", view! { <a href=from_action>{action}</a> })}
                {with.cell(Part::Subject, "", view! { <div>{subject} {more}</div> })}
                {with.cell(Part::Sealed, "", seal)}
            </tr>
        }
        .into_any()
    }

    /// The actions on the whole audit. Nothing for readers without the permission.
    fn below(self, with: RowContext<Self>, _: Callback<()>) -> AnyView {
        let verify = with.listed.with_value(|listed| checking(&listed.address(), 0, ""));
        view! {
            <section class="card" aria-label="Integrity of the chain">
                <header><h2>"Integrity of the chain"</h2></header>
                <div class="padded">
                    <p>
                        "Each sealed entry contains a hash of the entry before it. If an entry is \
                         changed or removed later, the chain breaks at that entry."
                    </p>
                    <div class="buttons">
                        <a class="button" href=verify>{icon(Icon::Check)} "Verify the chain"</a>
                        <a
                            class="button"
                            href=addresses::AUDIT_EXPORT
                            rel="external"
                            download="gantry-audit.jsonl"
                        >
                            {icon(Icon::Download)} "Export sealed entries"
                        </a>
                    </div>
                    <p class="muted">"Verify an export without a server:"</p>
                    <p><code>"gantry audit verify gantry-audit.jsonl"</code></p>
                    <EquivalentCommands
                        of=move |_: FormValues| vec![
                            api::audit::verify_call(),
                            api::audit::export_call()
                        ]
                    />
                </div>
            </section>
        }
        .into_any()
    }
}

/// A part of the chain to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    /// The id of the entry before the part.
    after: u64,
    /// The hash with which the previous part ended.
    link: String,
    /// The address of the list above.
    list: String,
}

impl Check {
    /// Parses the verification that an address requests. `None`: no verification. An invalid start
    /// is returned as written.
    fn read(query: &ParamsMap) -> Option<Result<Self, String>> {
        let word = query.get(VERIFY_AFTER_PARAM).filter(|word| !word.is_empty())?;
        let link = query.get(CHAIN_LINK_PARAM).unwrap_or_default().trim().to_owned();
        let check = |after| Self { after, link, list: Entries.read(query).address() };
        Some(word.parse().map(check).map_err(|_| word))
    }
}

/// The address of a list with verification of a part of the chain below it.
fn checking(list: &str, after: u64, link: &str) -> String {
    let sign = if list.contains('?') { '&' } else { '?' };
    let link =
        if link.is_empty() { String::new() } else { format!("&link={}", addresses::encoded(link)) };
    format!("{list}{sign}check={after}{link}")
}

#[component]
pub fn Audit() -> impl IntoView {
    let query = use_query_map();
    let list = ListOf::new(Entries);
    let check = Memo::new(move |_| Check::read(&query.read()));
    let chain = Resource::new(
        move || check.get(),
        |check| async move {
            match check {
                None => Ok(None),
                Some(Err(invalid)) => Err(invalid_start(&invalid)),
                Some(Ok(check)) => {
                    chain(check.after).await.map(|found| Some((found, check.link, check.list)))
                }
            }
        },
    );
    let checked = move || {
        // An invalid start has no number. The page shows the error instead.
        let after = check.get()?.map_or(0, |check| check.after);
        let show = move |found: Option<(ChainView, String, String)>| {
            found.map(|(found, link, list)| chain_result(&found, &Check { after, link, list }))
        };
        let page_links = move || {
            let list = Entries.read(&query.read_untracked()).address();
            view! { <a class="button" href=list>"Remove the invalid parameters"</a> }.into_any()
        };
        Some(load_with_error(chain, show, move |problem| problem_in_page(problem, page_links())))
    };
    view! {
        <Title text="Audit"/>
        <div class="head"><h1>"Audit"</h1></div>
        {list.view()}
        {checked}
    }
    .into_any()
}

/// The error about a start that is no entry's id.
fn invalid_start(invalid: &str) -> Failure {
    let shown: String = invalid.chars().take(40).collect();
    refused(format!(
        "Invalid value {shown:?} of `{VERIFY_AFTER_PARAM}`: it must be an entry number. Use 0 to \
         start at the first entry."
    ))
}

/// The result of verifying a part of the chain.
fn chain_result(found: &ChainView, Check { list, link, .. }: &Check) -> AnyView {
    let other = (!link.is_empty() && *link != found.chain.from.to_string()).then(|| {
        "the first link of this part differs from the last link of the part before it".to_owned()
    });
    let broken = found.broken.clone().or(other);
    let far = found.chain.last;
    let (color, shape, title) = match &broken {
        Some(_) => ("error", Icon::Error, "The chain is broken".to_owned()),
        None if found.end == 0 => ("todo", Icon::Todo, "No sealed entries yet".to_owned()),
        None if found.next.is_some() => (
            "active",
            Icon::Active,
            format!("The chain is valid up to entry {far} of {}", found.end),
        ),
        None => (
            "active",
            Icon::Active,
            format!("The chain is valid up to its end at entry {}", found.end),
        ),
    };
    let text = match broken {
        Some(broken) => format!(
            "The chain is valid up to entry {far}. The check failed: {broken}. Stored entries were \
             changed. Compare them with an export or a backup."
        ),
        None => format!(
            "Store the last link {} outside of this database. With it, you can later check that no earlier \
             entry was changed.",
            found.hash
        ),
    };
    let go_on = found.next.map(|next| {
        let address = checking(list, next, &found.chain.hash.to_string());
        view! {
            <a class="button" href=address>
                "Verify up to " {MAX_VERIFIED_LINKS} " more entries" {icon(Icon::Right)}
            </a>
        }
    });
    let unsealed = (found.unsealed > 0).then(|| {
        view! {
            <p class="muted">
                {found.unsealed} {either(found.unsealed, " entry is", " entries are")}
                " not sealed yet. Gantry seals new entries within a minute."
            </p>
        }
    });
    view! {
        <section class="notice" data-state=color role="status" aria-label="Verification result">
            {icon(shape)}
            <div>
                <b>{title}</b>
                <p>{text}</p>
                {unsealed}
            </div>
            <div class="buttons">{go_on}</div>
        </section>
    }
    .into_any()
}

#[server(name = ReadAudit, prefix = "/call", endpoint = "audit", input = AsJson, output = AsJson)]
pub async fn audit(query: AuditQuery) -> ServerResult<AuditPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.audit(&actor, &query).await).await
}

/// Verifies a part of the audit's hash chain.
#[server(name = VerifyChain, prefix = "/call", endpoint = "chain", input = AsJson, output = AsJson)]
pub async fn chain(after: u64) -> ServerResult<ChainView> {
    let (request, actor) = signed_in()?;
    answer(request.control.audit_chain(&actor, ChainQuery { after }).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(words: &[(&str, &str)]) -> ParamsMap {
        let mut query = ParamsMap::new();
        for (name, value) in words {
            query.insert((*name).to_owned(), (*value).to_owned());
        }
        query
    }

    #[test]
    fn audit_page_round_trips_through_address() {
        assert_eq!(Entries.read(&query(&[])).address(), "/audit");
        assert_eq!(checking("/audit", 0, ""), "/audit?check=0");
        let all = query(&[
            ("actor", "ada"),
            ("action", "a.b"),
            ("since", "2026-11-21T08:15"),
            ("before", "7"),
            ("check", "10000"),
            ("link", "ab"),
        ]);
        let Check { after, link, list } = Check::read(&all).unwrap().unwrap();
        let address =
            "/audit?actor=ada&action=a.b&since=2026-11-21T08%3A15&before=7&check=10000&link=ab";
        assert_eq!(checking(&list, after, &link), address);
        assert_eq!(
            Check::read(&query(&[("check", "abc")])),
            Some(Err("abc".to_owned())),
            "an invalid value is reported"
        );
        assert_eq!(Check::read(&query(&[("check", "")])), None);
        let other = Entries.filtered_address(&Entries.read(&all), "actor", "bo");
        assert_eq!(other.address(), "/audit?actor=bo&action=a.b&since=2026-11-21T08%3A15");
    }

    #[test]
    fn equivalent_command_has_times_in_milliseconds() {
        let call = Entries.api_call(
            &Entries.read(&query(&[("since", "2026-11-21T08:15:02"), ("until", "soon")])),
        );
        assert_eq!(call.path(), "/api/v1/audit");
        assert!(call.curl().contains("since=2026-11-21T08%3A15%3A02.000Z"), "{}", call.curl());
        assert!(!call.curl().contains("until"), "{}", call.curl());
    }
}
