//! Lists: the state is in the address, and active filters are shown.

use super::fake::{Fake, World};
use super::serve::{Page, get};

/// A list under test. All common properties are tested on each list.
struct List {
    path: &'static str,
    /// Filters, each with a value.
    words: &'static [(&'static str, &'static str)],
    /// A sort order other than the default.
    sort: &'static str,
    /// The cursor parameter, and a cursor in the default order. `None`: the list has no pages.
    place: Option<(&'static str, &'static str)>,
    /// An unknown parameter value.
    odd: Option<&'static str>,
    /// The API parameters of the equivalent request, except the sort order.
    same: &'static [&'static str],
    heads: &'static [&'static str],
    many: &'static str,
}

const LISTS: &[List] = &[
    List {
        path: "/nodes",
        words: &[("filter", "n1"), ("state", "dead"), ("deployment", "web")],
        sort: "-state",
        place: Some(("after", "x")),
        odd: Some("state=purple"),
        same: &["/nodes?", "filter=n1", "state=dead", "deployment=web", "sort=-state"],
        heads: &["Node", "State", "Deployment", "Steps", "Connection"],
        many: "nodes",
    },
    List {
        path: "/runs",
        words: &[
            ("state", "failed"),
            ("deployment", "web"),
            ("node", "n1"),
            ("role", "app"),
            ("worker", "w1"),
        ],
        sort: "duration",
        place: Some(("before", "7")),
        odd: Some("state=sleeping"),
        same: &[
            "/runs?",
            "state=failed",
            "deployment=web",
            "node=n1",
            "role=app",
            "worker=w1",
            "sort=duration",
        ],
        heads: &["Run", "State", "Noderole", "Deployment", "Worker", "Duration", "Queued"],
        many: "runs",
    },
    List {
        path: "/nodes/web-1.rack1.example.com/health-checks",
        words: &[("reached", "true"), ("filter", "refused")],
        sort: "at",
        place: Some(("before", "7")),
        odd: Some("reached=maybe"),
        same: &["/health-checks?", "reached=true", "filter=refused", "sort=at"],
        heads: &["When", "Result", "Address and error", "Duration", "Worker"],
        many: "health checks",
    },
    List {
        path: "/nodes/web-1.rack1.example.com/results",
        words: &[("outcome", "failed"), ("role", "app")],
        sort: "run",
        place: Some(("before", "7")),
        odd: Some("outcome=purple"),
        same: &["/results?", "outcome=failed", "role=app", "sort=run"],
        heads: &["Run", "Noderole", "Outcome", "Result", "Blueprint", "When"],
        many: "results",
    },
    List {
        path: "/nodes/web-1.rack1.example.com/noderoles",
        words: &[("state", "error"), ("role", "app")],
        sort: "-order",
        place: Some(("after", "order~-0~-00000000-0000-0000-0000-000000000001")),
        odd: Some("state=purple"),
        same: &["/noderoles?", "state=error", "role=app", "sort=-order"],
        heads: &["Role", "Deployment", "State", "Since"],
        many: "noderoles",
    },
    List {
        path: "/catalog/roles",
        words: &[("filter", "app"), ("barclamp", "demo")],
        sort: "-bound",
        place: Some(("after", "name~-a~-b")),
        odd: None,
        same: &["/roles?", "filter=app", "barclamp=demo", "sort=-bound"],
        heads: &["Role", "Barclamp", "Jig", "Flags", "Requires", "Noderoles"],
        many: "roles",
    },
    List {
        path: "/catalog/imports",
        words: &[("barclamp", "demo")],
        sort: "imported",
        place: Some(("before", "7")),
        odd: None,
        same: &["/imports?", "barclamp=demo", "sort=imported"],
        heads: &["Imported", "Versions", "Removed parts", "Findings"],
        many: "imports",
    },
    List {
        path: "/catalog",
        words: &[("filter", "demo")],
        sort: "-roles",
        place: Some(("after", "0")),
        odd: None,
        same: &["/barclamps?", "filter=demo", "sort=-roles"],
        heads: &["Barclamp", "Version", "Roles", "Used by", "Removed parts", "Imported"],
        many: "barclamps",
    },
    List {
        path: "/workers",
        words: &[("filter", "w"), ("alive", "true"), ("phase", "confirmed")],
        sort: "name",
        place: Some(("before", "-started~-7~-00000000-0000-0000-0000-000000000007")),
        odd: Some("phase=asleep"),
        same: &["/workers?", "filter=w", "alive=true", "phase=confirmed", "sort=name"],
        heads: &["Worker", "State", "Leased runs", "Jigs", "Last contact", "Started"],
        many: "workers",
    },
    List {
        path: "/audit",
        words: &[
            ("actor", "ada"),
            ("action", "review.commit"),
            ("subject", "128"),
            ("since", "2026-11-21T00:00"),
        ],
        sort: "at",
        place: Some(("before", "7")),
        odd: Some("since=yesterday"),
        same: &[
            "/audit?",
            "actor=ada",
            "action=review.commit",
            "subject=128",
            "since=2026-11-21T00%3A00%3A00.000Z",
            "sort=at",
        ],
        heads: &["Time", "Actor", "Action", "Subject", "Sealed"],
        many: "entries",
    },
    List {
        path: "/reviews",
        words: &[("state", "any"), ("deployment", "web"), ("filter", "nodes")],
        sort: "title",
        place: Some(("before", "7")),
        odd: Some("involvement=yours"),
        same: &["/reviews?", "state=any", "deployment=web", "filter=nodes", "sort=title"],
        heads: &["Change", "State", "Approvals", "By", "Submitted"],
        many: "reviews",
    },
    List {
        path: "/deployments",
        words: &[("filter", "web"), ("state", "error")],
        sort: "-nodes",
        place: Some(("after", "system%20web")),
        odd: Some("state=blue"),
        same: &["/deployments?", "filter=web", "state=error", "sort=-nodes"],
        heads: &["Deployment", "Steps", "Nodes", "Open changes", "Last change"],
        many: "deployments",
    },
    List {
        path: "/graphs",
        words: &[("filter", "web"), ("state", "error")],
        sort: "name",
        place: Some(("after", "system%20web")),
        odd: Some("state=blue"),
        same: &["/deployments?", "filter=web", "state=error", "sort=name"],
        heads: &["Deployment", "Steps", "Nodes", "Open changes", "Last change"],
        many: "deployments",
    },
    List {
        path: "/settings/people",
        words: &[("filter", "a"), ("disabled", "true")],
        sort: "-name",
        place: Some(("after", "x")),
        odd: Some("disabled=maybe"),
        same: &["/people?", "filter=a", "kind=human", "disabled=true", "sort=-name"],
        heads: &["Name", "Permissions", "Signs in with", "Last seen"],
        many: "accounts",
    },
    List {
        path: "/settings/services",
        words: &[("filter", "a"), ("disabled", "true")],
        sort: "-name",
        place: Some(("after", "x")),
        odd: Some("disabled=maybe"),
        same: &["/people?", "filter=a", "kind=service", "disabled=true", "sort=-name"],
        heads: &["Name", "Permissions", "Signs in with", "Last seen"],
        many: "accounts",
    },
];

impl List {
    fn address(&self, sort: &str) -> String {
        let words = self.words.iter().map(|(name, value)| format!("{name}={value}"));
        let all: Vec<String> = words.chain([format!("sort={sort}")]).collect();
        format!("{}?{}", self.path, all.join("&"))
    }
}

/// The text between `from` and the next `to`.
fn between<'p>(page: &'p Page, from: &str, to: &str) -> &'p str {
    let rest = page
        .body
        .split_once(from)
        .unwrap_or_else(|| panic!("{from} is missing in {}", page.body))
        .1;
    rest.split_once(to).map_or(rest, |(found, _)| found)
}

/// The page's text without markup.
fn text(html: &str) -> String {
    let parts = html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    parts.collect::<Vec<&str>>().join("")
}

fn without_rows(world: &mut World) {
    world.nodes.clear();
    world.runs.clear();
    world.machine.health_checks.clear();
    world.machine.noderoles.clear();
    world.results.clear();
    world.roles.clear();
    world.imports.clear();
    world.catalog.clear();
    world.reviews.clear();
    world.deployments.clear();
    world.people.clear();
    world.monitoring.workers.clear();
    world.monitoring.entries.clear();
}

#[tokio::test]
async fn query_appears_in_form_links_and_commands() {
    for list in LISTS {
        let fake = Fake::new(without_rows);
        let page = get(&fake, &list.address(list.sort)).await;
        assert_eq!(page.status, 200, "{}", list.path);
        let form = between(&page, "<h1", "more choose");
        for (name, value) in list.words {
            assert!(
                form.contains(&format!("name=\"{name}\"")),
                "{}: field {name} is missing in {form}",
                list.path
            );
            assert!(
                form.contains(&format!("value=\"{value}\"")),
                "{}: value {value} is missing in {form}",
                list.path
            );
        }
        let selected =
            form.split("<option").filter(|option| option.contains("selected")).collect::<String>();
        assert!(
            selected.contains(&format!("value=\"{}\"", list.sort)),
            "{}: {selected}",
            list.path
        );
        let text = |calls: &str| list.same.iter().all(|word| calls.contains(word));
        assert!(
            page.body.split("<div class=\"calls\">").skip(1).any(text),
            "{}: {}",
            list.path,
            page.body
        );
        let columns = between(&page, "more choose", "</form>");
        for (name, value) in list.words {
            let input = format!("name=\"{name}\" value=\"{value}\"");
            assert!(columns.contains(&input), "{}: {input} is missing in {columns}", list.path);
        }
    }
}

#[tokio::test]
async fn list_headers_sort_within_the_filter() {
    for list in LISTS {
        let fake = Fake::new(|_| {});
        let page = get(&fake, list.path).await;
        assert_eq!(page.status, 200, "{}", list.path);
        let heads = between(&page, "<thead", "</thead>");
        let found: Vec<String> =
            heads.split("</th>").map(text).map(|head| head.trim().to_owned()).collect();
        let found: Vec<&str> =
            found.iter().map(String::as_str).filter(|head| !head.is_empty()).collect();
        // Readers who may change nodes see an additional column.
        let named: Vec<&str> =
            found.into_iter().filter(|head| *head != "Actions" || list.path != "/nodes").collect();
        assert_eq!(named, list.heads, "{}: {heads}", list.path);
    }
}

#[tokio::test]
async fn numeric_cells_and_headers_share_a_class() {
    for (path, numbers) in
        [("/deployments", ["Nodes", "Last change"]), ("/catalog/roles", ["Requires", "Noderoles"])]
    {
        let page = get(&Fake::new(|_| {}), path).await;
        let heads = between(&page, "<thead", "</thead>");
        let marked = heads
            .split("<th ")
            .filter(|head| head.split('>').next().is_some_and(|tag| tag.contains("number")));
        let marked: Vec<String> =
            marked.map(|head| text(&format!("<th {head}")).trim().to_owned()).collect();
        assert_eq!(marked, numbers, "{path}: {heads}");
        for label in numbers {
            let cell = between(&page, &format!("<td data-label=\"{label}\""), ">");
            assert!(cell.contains("number"), "{path}: {label}: {cell}");
        }
    }
}

#[tokio::test]
async fn invalid_query_is_reported_and_form_stays() {
    for list in LISTS {
        let (name, value) =
            list.words.iter().find(|(name, _)| *name != "state").expect("a parameter of type text");
        let value_attribute = format!("value=\"{value}\"");
        let refused = |page: &Page, message: &str| {
            assert_eq!(page.status, 400, "{}: {message}", list.path);
            assert_eq!(
                page.body.matches("<h1").count(),
                1,
                "{}: {message}: the page must have exactly one heading",
                list.path
            );
            page.assert_contains(&[
                &value_attribute,
                &format!("href=\"{}\" class=\"button\">Show all ", list.path),
            ]);
            assert!(
                !page.body.contains("`next`"),
                "{}: the page must not mention parameters of the API",
                list.path
            );
        };
        let sorted =
            get(&Fake::new(|_| {}), &format!("{}?{name}={value}&sort=color", list.path)).await;
        refused(&sorted, "an order");
        sorted.assert_contains(&["Invalid value for sort: ", "Clear filter"]);
        if let Some(odd) = list.odd {
            refused(
                &get(&Fake::new(|_| {}), &format!("{}?{name}={value}&{odd}", list.path)).await,
                odd,
            );
        }
        let of_no_list =
            get(&Fake::new(|_| {}), &format!("{}?{name}={value}&fits=1", list.path)).await;
        refused(&of_no_list, "a word");
        let without = format!(
            "href=\"{}?{name}={value}\" class=\"button\">Remove the invalid parameters",
            list.path
        );
        of_no_list.assert_contains(&["fits", "Unknown parameter ", &without]);
        let columns =
            get(&Fake::new(|_| {}), &format!("{}?{name}={value}&columns=color", list.path)).await;
        refused(&columns, "a column");
        if let Some((place, _)) = list.place {
            let address = format!("{}?{name}={value}&{place}=a~-b~-c~-d~-e", list.path);
            let page = get(&Fake::new(|_| {}), &address).await;
            refused(&page, "a place");
            page.assert_contains(&[
                "Open the first page",
                &format!("href=\"{}?{name}={value}\"", list.path),
            ]);
        }
    }
}

#[tokio::test]
async fn unknown_parameter_is_reported_on_every_page() {
    for path in ["/pending", "/blueprints", "/settings/people", "/settings/services"] {
        let page = get(&Fake::new(|_| {}), &format!("{path}?fits=1")).await;
        assert_eq!(page.status, 400, "{path}");
        page.assert_contains(&["Unknown parameter ", &format!("href=\"{path}\"")]);
    }
    let chain = get(&Fake::new(|_| {}), "/audit?actor=ada&check=abc").await;
    assert_eq!(chain.status, 400);
    chain.assert_contains(&[
        "it must be an entry number",
        "href=\"/audit?actor=ada\" class=\"button\">Remove the invalid parameters",
    ]);
    // The parameters of a form that was refused without JavaScript are not reported as unknown.
    let back = get(&Fake::new(|_| {}), "/nodes?__path=%2Fcall%2Fretry&__err=e30%3D").await;
    assert_eq!(back.status, 200);
}

#[tokio::test]
async fn page_after_the_end_links_to_first() {
    // The cursors of the catalog are versions, so no page follows an unknown one.
    for list in LISTS.iter().filter(|list| list.path != "/catalog") {
        let Some((word, place)) = list.place else { continue };
        let page = get(&Fake::new(without_rows), &format!("{}?{word}={place}", list.path)).await;
        assert_eq!(page.status, 200, "{}: {}", list.path, page.body);
        page.assert_contains(&[&format!("No more {}", list.many), "Open the first page"]);
        page.assert_lacks(&["Pages of the list"]);
        let (name, value) = list.words.last().expect("a parameter");
        let narrow = get(&Fake::new(without_rows), &format!("{}?{name}={value}", list.path)).await;
        narrow.assert_contains(&["Filter: ", "Clear filter"]);
    }
}

#[tokio::test]
async fn drafts_sort_and_filter_like_reviews() {
    let fake = Fake::new(|_| {});
    let page =
        get(&fake, "/reviews?state=drafts&filter=web&sort=title&columns=change&columns=by").await;
    page.assert_contains(&[
        "href=\"/proposals/19\"",
        "data-label=\"By\"",
        "name=\"state\" value=\"drafts\"",
    ]);
    page.assert_lacks(&["data-label=\"Approvals\""]);
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    let request = reported
        .iter()
        .find(|text| text.starts_with("proposals "))
        .expect("a request for proposals");
    assert!(
        request.contains("\"filter\":\"web\"") && request.contains("\"sort\":\"deployment\""),
        "{request}"
    );
}

#[tokio::test]
async fn deployments_return_to_tree_order() {
    let fake = Fake::new(|_| {});
    get(&fake, "/deployments?sort=name&filter=w")
        .await
        .assert_contains(&["href=\"/deployments?filter=w\"", "Show as a tree"]);
    get(&fake, "/deployments").await.assert_lacks(&["Show as a tree"]);
}

#[tokio::test]
async fn deployment_pages_are_sections_of_the_tree() {
    let fake = Fake::new(|world| world.long = true);
    get(&fake, "/deployments?state=idle")
        .await
        .assert_contains(&["href=\"/deployments?state=idle&amp;after=system%20web\""]);
    let rest = get(&fake, "/deployments?after=system%20web").await;
    rest.assert_contains(&["data-depth=\"1\"", "href=\"/deployments\""]);
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    assert!(
        reported
            .iter()
            .any(|text| text.starts_with("deployments ")
                && text.contains("\"after\":\"system web\"")),
        "{reported:?}"
    );
    let graphs = get(&fake, "/graphs").await;
    graphs.assert_contains(&["href=\"/graphs?after=system%20web\""]);
}

#[tokio::test]
async fn target_history_rejects_invalid_order_and_cursor() {
    let fake =
        Fake::new(|world| world.targets.next = Some(api::listing::Cursor::from("2".to_owned())));
    let newest = get(&fake, "/blueprints?deployment=web&from=1").await;
    newest.assert_contains(&[
        "newest first",
        "Older",
        "href=\"/blueprints?deployment=web&amp;from=1&amp;before=2\"",
    ]);
    newest.assert_contains(&[
        "name=\"deployment\" list=\"blueprints-deployment-offered\"",
        "name=\"sort\"",
        "name=\"to\"",
    ]);
    newest.assert_lacks(&["type=\"hidden\" name=\"from\""]);
    get(&fake, "/blueprints?sort=number").await.assert_contains(&[
        "oldest first",
        "Next",
        "/api/v1/blueprints?sort=number",
    ]);
    for (odd, text) in [
        ("before=x", "Invalid cursor in before"),
        ("sort=color", "Valid orders: number, -number."),
        ("sort=number&before=2", "Invalid cursor in before"),
    ] {
        let page = get(&fake, &format!("/blueprints?deployment=web&{odd}")).await;
        assert_eq!((page.status, page.body.matches("<h1").count()), (400, 1), "{odd}");
        page.assert_contains(&[
            text,
            "value=\"web\"",
            "href=\"/blueprints\" class=\"button\">Show all ",
        ]);
    }
}

#[tokio::test]
async fn worker_links_to_its_runs() {
    let fake = Fake::new(|_| {});
    let name = fake.0.lock().expect("an unpoisoned lock").monitoring.workers[0].name.clone();
    let link = format!("href=\"/runs?worker={}\"", name.replace(' ', "%20"));
    get(&fake, "/workers").await.assert_contains(&[&link, "all runs"]);
    get(&fake, "/runs?worker=w1")
        .await
        .assert_contains(&["value=\"w1\"", "gantry run list --worker w1"]);
}

#[tokio::test]
async fn headers_sort_and_keep_the_filter() {
    let fake = Fake::new(|world| world.long = true);
    let plain = get(&fake, "/nodes").await;
    plain.assert_contains(&[
        "aria-sort=\"ascending\"",
        "href=\"/nodes?sort=-name\"",
        "href=\"/nodes?sort=state\"",
    ]);
    plain.assert_lacks(&["filter=&", "sort=name\"", "Clear"]);
    let narrow = get(&fake, "/nodes?filter=web&sort=-name&state=&columns=name&columns=state").await;
    narrow.assert_contains(&[
        "aria-sort=\"descending\"",
        "value=\"web\"",
        "Clear",
        "href=\"/nodes?sort=-name&amp;columns=name%2Cstate\"",
    ]);
    narrow.assert_contains(&[
        "href=\"/nodes?filter=web&amp;columns=name%2Cstate\"",
        "name=\"columns\" value=\"name,state\"",
    ]);
    narrow.assert_contains(&["data-label=\"State\""]);
    narrow.assert_lacks(&["data-label=\"Steps\"", "data-label=\"Connection\""]);
    let next = "href=\"/nodes?filter=web&amp;sort=-name&amp;columns=name%2Cstate&amp;after=";
    narrow.assert_contains(&[next]);
}

#[tokio::test]
async fn unknown_value_is_reported_and_filter_stays() {
    let fake = Fake::new(|_| {});
    for (path, text) in [
        (
            "/nodes?state=purple&filter=n1",
            "Invalid value for state: &quot;purple&quot;. Use one of: alive, dead, maintenance, \
             record_only.",
        ),
        (
            "/nodes?sort=color&filter=n1",
            "Valid orders: name, -name, state, -state, deployment, -deployment.",
        ),
        (
            "/runs?state=sleeping&node=n1",
            "Invalid value for state: &quot;sleeping&quot;. Use one of: queued, running",
        ),
        (
            "/reviews?involvement=yours&filter=n1",
            "Invalid value for involvement: &quot;yours&quot;. Use one of: all, for_me, mine.",
        ),
        ("/catalog/roles?sort=age&filter=n1", "Valid orders: name, -name, barclamp, -barclamp"),
    ] {
        let page = get(&fake, path).await;
        assert_eq!(page.status, 400, "{path}");
        let body = page.body.replace("&quot;", "\"");
        assert!(body.contains(&text.replace("&quot;", "\"")), "{path}: {body}");
        page.assert_contains(&["value=\"n1\"", "Clear filter"]);
    }
}

#[tokio::test]
async fn empty_list_names_filter_or_first_action() {
    let fake = Fake::new(|world| {
        world.nodes.clear();
        world.runs.clear();
        world.roles.clear();
        world.imports.clear();
    });
    get(&fake, "/nodes?filter=db&state=dead")
        .await
        .assert_contains(&["name contains “db”, state is “dead”", "Show all "]);
    get(&fake, "/runs?node=n1").await.assert_contains(&["No run matches", "node is “n1”"]);
    get(&fake, "/runs?before=7").await.assert_contains(&["No more runs", "Open the first page"]);
    get(&fake, "/catalog/roles").await.assert_contains(&["No roles yet"]);
    get(&fake, "/catalog/roles?filter=x").await.assert_contains(&["No role matches"]);
    get(&fake, "/catalog/graph").await.assert_contains(&["No roles yet"]);
    get(&fake, "/catalog/imports").await.assert_contains(&["No imports yet"]);
}

#[tokio::test]
async fn catalog_has_roles_graph_and_imports() {
    let fake = Fake::new(|_| {});
    let roles = get(&fake, "/catalog/roles").await;
    roles.assert_contains(&[
        "href=\"/catalog/roles/app?barclamp=demo\"",
        "The base of the demo",
        "implicit",
        "aria-current=\"page\"",
    ]);
    let role = get(&fake, "/catalog/roles/app").await;
    role.assert_contains(&[
        "aria-label=\"Sections of the catalog\"",
        ">Dependencies<",
        "gantry role show app",
    ]);
    role.assert_contains(&["10-start", &format!("gantry role script --hash {}", "5f".repeat(32))]);
    role.assert_contains(&[
        "href=\"/catalog/roles/base\"",
        "Conflicts with",
        "cluster",
        "href=\"/deployments/web\"",
        "same as in the newest version",
        "8080",
    ]);
    assert_eq!(get(&fake, "/catalog/roles/nothing").await.status, 404);
    let graph = get(&fake, "/catalog/graph").await;
    graph.assert_contains(&[
        "<svg",
        "class=\"dependency requires\"",
        "id=\"ties\"",
        "href=\"/catalog/graph#ties\"",
    ]);
    graph.assert_lacks(&["style=", "preceeded"]);
    let imports = get(&fake, "/catalog/imports").await;
    imports.assert_contains(&[
        "role still",
        "demo.yml:1:1: note: odd",
        "2 more",
        "3 lines were not stored.",
    ]);
    let many = Fake::new(|world| world.long = true);
    get(&many, "/catalog/graph").await.assert_contains(&["301 roles are too many for one graph"]);
}
