//! The roles of the catalog, as the newest version of each barclamp has them.

use api::catalog::{RolePage, RoleSort, RoleSummary, RolesWanted};
use api::live::Topic;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::calls;
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::pages::catalog::parts_of_it;
use crate::parts::list::{Column, Listed, Shown, columns, filters, head, hidden, pager, plain_head, text_field};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, load, rows};
use crate::places;

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    filter: String,
    barclamp: String,
    listed: Listed<RoleSort>,
}

impl Asked {
    fn read(query: &ParamsMap) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        let (filter, barclamp) = (word("filter"), word("barclamp"));
        let listed = Listed::read(places::ROLES, query, "after")
            .asked("filter", "name or description contains", &filter)
            .asked("barclamp", "barclamp is", &barclamp);
        Self { filter, barclamp, listed }
    }

    fn wanted(&self) -> Result<RolesWanted, Failure> {
        Ok(RolesWanted {
            filter: self.filter.clone(),
            barclamp: self.barclamp.clone(),
            sort: self.listed.order()?,
            after: self.listed.place(),
        })
    }
}

const SORTS: &[(RoleSort, &str)] = &[
    (RoleSort::Name, "name"),
    (RoleSort::Barclamp, "barclamp"),
    (RoleSort::Jig, "jig"),
    (RoleSort::Bound, "noderoles"),
];

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Role,
    Barclamp,
    Jig,
    Flags,
    Requires,
    Bound,
}

impl Column for Part {
    const EVERY: &'static [Self] = &[Self::Role, Self::Barclamp, Self::Jig, Self::Flags, Self::Requires, Self::Bound];

    fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Barclamp => "barclamp",
            Self::Jig => "jig",
            Self::Flags => "flags",
            Self::Requires => "requires",
            Self::Bound => "bound",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::Barclamp => "Barclamp",
            Self::Jig => "Jig",
            Self::Flags => "Flags",
            Self::Requires => "Requires",
            Self::Bound => "Noderoles",
        }
    }
}

async fn fetch(asked: Asked) -> Answer<RolePage> {
    calls::roles(asked.wanted()?).await
}

/// The list of roles.
#[component]
pub fn Roles() -> impl IntoView {
    let query = use_query_map();
    let asked = Memo::new(move |_| Asked::read(&query.read()));
    let listed = Memo::new(move |_| asked.read().listed.clone());
    let roles = Resource::new(move || asked.get(), fetch);
    let fields = (
        text_field("role-filter", "filter", "Name or description", Signal::derive(move || asked.read().filter.clone())),
        text_field("role-barclamp", "barclamp", "Barclamp", Signal::derive(move || asked.read().barclamp.clone())),
    );
    view! {
        <Title text="Roles"/>
        <div class="head"><h1>"Roles"</h1></div>
        {parts_of_it(places::ROLES)}
        {filters(listed, SORTS, fields)}
        {columns::<_, Part>(listed)}
        {load(roles, move |first| view! { <List first asked=asked.get_untracked()/> })}
    }
    .into_any()
}

#[component]
fn List(first: RolePage, asked: Asked) -> impl IntoView {
    let listed = asked.listed.clone();
    let feed = Feed::new(first, move || fetch(asked.clone()));
    use_live().hear(vec![Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().roles.clone());
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let count = move || match feed.value().read().count {
        1 => "One role".to_owned(),
        count => format!("{count} roles"),
    };
    let shown = Shown::of(&listed);
    let of = StoredValue::new(listed);
    let table = move || {
        match is_empty.get() {
        true => of.with_value(|listed| hidden(listed, "role", "roles")).unwrap_or_else(|| {
            view! {
                <Empty icon=Icon::Catalog title="No roles yet">
                    <p>"Roles come with barclamps. Import the first one."</p>
                    <a class="button" href=places::CATALOG>"Catalog"</a>
                </Empty>
            }
            .into_any()
        }),
        false => view! {
            <table class="table folds">
                <caption class="count">{count}</caption>
                <thead><tr>{of.with_value(|listed| heads(listed, shown))}</tr></thead>
                <tbody>{rows(list.into(), |role| (role.barclamp.clone(), role.name.clone()), move |role| row(role, shown))}</tbody>
            </table>
        }
        .into_any(),
    }
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table} {move || of.with_value(|listed| pager(listed, next.get().as_ref()))}</div>
    }
    .into_any()
}

fn heads(listed: &Listed<RoleSort>, shown: Shown<Part>) -> AnyView {
    let one = |part: &Part| match part {
        Part::Role => head(listed, RoleSort::Name, part.label(), false),
        Part::Barclamp => head(listed, RoleSort::Barclamp, part.label(), false),
        Part::Jig => head(listed, RoleSort::Jig, part.label(), false),
        Part::Bound => head(listed, RoleSort::Bound, part.label(), true),
        Part::Flags | Part::Requires => plain_head(part.label()),
    };
    Part::EVERY.iter().filter(|part| shown.has(**part)).map(one).collect_view().into_any()
}

fn row(role: Memo<RoleSummary>, shown: Shown<Part>) -> impl IntoView {
    let first = role.get_untracked();
    let (page, of) = (places::role_in(&first.name, &first.barclamp), places::roles_of(&first.barclamp));
    view! {
        <tr>
            <td>
                <div>
                    <a class="main" href=page>{first.name.to_string()}</a>
                    <div class="muted">{move || role.read().description.clone()}</div>
                </div>
            </td>
            {shown.has(Part::Barclamp).then(|| view! {
                <td data-label="Barclamp"><span><a href=of>{first.barclamp.to_string()}</a> " " {move || role.read().version.clone()}</span></td>
            })}
            {shown.has(Part::Jig).then(|| view! { <td data-label="Jig">{move || role.read().jig.to_string()}</td> })}
            {shown.has(Part::Flags).then(|| view! { <td data-label="Flags">{move || role.read().flags.join(", ")}</td> })}
            {shown.has(Part::Requires).then(|| view! { <td data-label="Requires" class="number">{move || role.read().requires}</td> })}
            {shown.has(Part::Bound).then(|| view! {
                <td data-label="Noderoles" class="number">{move || role.read().noderoles} <span class="muted">" in " {move || role.read().deployments}</span></td>
            })}
        </tr>
    }
    .into_any()
}
