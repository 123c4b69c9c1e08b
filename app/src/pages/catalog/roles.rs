//! The roles of the catalog, from the newest version of each barclamp.

use api::calls::List;
use api::catalog::{RolePage, RoleSort, RoleSummary, RolesQuery};
use api::live::Topic;
use engine::ids::{BarclampName, RoleName};
use leptos::prelude::*;
use leptos_meta::Title;

use crate::addresses;
use crate::codec::AsJson;
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{Empty, Icon};
use crate::failure::ServerResult;
use crate::pages::catalog::tabs;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

columns_of!(Part {
    Role "role" "Role",
    Barclamp "barclamp" "Barclamp",
    Jig "jig" "Jig",
    Flags "flags" "Flags",
    Requires "requires" "Requires",
    Bound "bound" "Noderoles",
});

#[derive(Clone, Copy)]
struct AllRoles;

impl ListPage for AllRoles {
    type Sort = RoleSort;
    type Part = Part;
    type Page = RolePage;
    type Key = (BarclampName, RoleName);

    const ID: &'static str = "role";
    const NAMES: (&'static str, &'static str) = ("role", "roles");
    const CURSOR_PARAM: &'static str = "after";
    const FIELDS: &'static [Field] = &[
        Field::text("filter", "Name or description", "name or description contains"),
        Field::text("barclamp", "Barclamp", "barclamp is"),
    ];
    const NUMBERS: &'static [Part] = &[Part::Requires, Part::Bound];
    const SORTS: &'static [(RoleSort, &'static str)] = &[
        (RoleSort::Name, "name"),
        (RoleSort::Barclamp, "barclamp"),
        (RoleSort::Jig, "jig"),
        (RoleSort::Bound, "noderoles"),
    ];
    const TOPICS: &'static [Topic] = &[Topic::Blueprints];
    const API_LIST: List = List::Roles;

    fn path(self) -> String {
        addresses::ROLES.to_owned()
    }

    async fn fetch(self, address: ListAddress<RoleSort>) -> ServerResult<RolePage> {
        let (sort, after) = address.page_position()?;
        let (filter, barclamp) = (address.param("filter"), address.param("barclamp"));
        roles(RolesQuery { filter, barclamp, sort, limit: None, after }).await
    }

    fn sorted_by(column: Part) -> Option<(RoleSort, bool)> {
        match column {
            Part::Role => Some((RoleSort::Name, false)),
            Part::Barclamp => Some((RoleSort::Barclamp, false)),
            Part::Jig => Some((RoleSort::Jig, false)),
            Part::Bound => Some((RoleSort::Bound, true)),
            Part::Flags | Part::Requires => None,
        }
    }

    fn key(role: &RoleSummary) -> Self::Key {
        (role.barclamp.clone(), role.name.clone())
    }

    fn caption(page: &RolePage) -> Option<String> {
        Some(match page.count {
            1 => "1 role".to_owned(),
            count => format!("{count} roles"),
        })
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Catalog title="No roles yet">
                <p>"Roles are defined in barclamps. Import the first one."</p>
                <a class="button" href=addresses::CATALOG>"Open catalog"</a>
            </Empty>
        }
        .into_any()
    }

    fn row(self, role: Memo<RoleSummary>, with: RowContext<Self>) -> AnyView {
        let first = role.get_untracked();
        let (page, of) = (
            addresses::role_in(&first.name, &first.barclamp),
            addresses::roles_of(&first.barclamp),
        );
        let barclamp = view! {
            <span>
                <a href=of>{first.barclamp.to_string()}</a> " "
                {move || role.read().version.clone()}
            </span>
        };
        let bound = view! {
            {move || role.read().noderoles}
            <span class="muted">" in " {move || role.read().deployments} " deployment(s)"</span>
        };
        view! {
            <tr>
                <td>
                    <div>
                        <a class="main" href=page>{first.name.to_string()}</a>
                        <div class="muted">{move || role.read().description.clone()}</div>
                    </div>
                </td>
                {with.cell(Part::Barclamp, "", barclamp)}
                {with.cell(Part::Jig, "", move || role.read().jig.to_string())}
                {with.cell(Part::Flags, "", move || role.read().flags.join(", "))}
                {with.cell(Part::Requires, "", move || role.read().requires)}
                {with.cell(Part::Bound, "", bound)}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn Roles() -> impl IntoView {
    let list = ListOf::new(AllRoles);
    view! {
        <Title text="Roles"/>
        <div class="head"><h1>"Roles"</h1></div>
        {tabs(addresses::ROLES)}
        {list.view()}
    }
    .into_any()
}

#[server(name = ReadRoles, prefix = "/call", endpoint = "roles", input = AsJson, output = AsJson)]
pub async fn roles(query: RolesQuery) -> ServerResult<RolePage> {
    let (request, actor) = signed_in()?;
    answer(request.control.roles(&actor, &query).await).await
}
