//! Lists: their whole state is in their address, and what hides a part of them is said.

use crate::fake::Fake;
use crate::serve::get;

#[tokio::test]
async fn heads_sort_and_keep_what_the_list_is_asked_for() {
    let fake = Fake::new(|world| world.long = true);
    let plain = get(&fake, "/nodes").await;
    plain.says(&["aria-sort=\"ascending\"", "href=\"/nodes?sort=-name\"", "href=\"/nodes?sort=state\""]);
    plain.says_not(&["filter=&", "sort=name\"", "Clear"]);
    let narrow = get(&fake, "/nodes?filter=web&sort=-name&state=&columns=name&columns=life").await;
    narrow.says(&[
        "aria-sort=\"descending\"",
        "value=\"web\"",
        "Clear",
        "href=\"/nodes?sort=-name&amp;columns=name%2Clife\"",
    ]);
    narrow.says(&["href=\"/nodes?filter=web&amp;columns=name%2Clife\"", "name=\"columns\" value=\"name,life\""]);
    narrow.says(&["data-label=\"Life\""]);
    narrow.says_not(&["data-label=\"Steps\"", "data-label=\"Reached\""]);
    let next = "href=\"/nodes?filter=web&amp;sort=-name&amp;columns=name%2Clife&amp;after=";
    narrow.says(&[next]);
}

#[tokio::test]
async fn what_there_is_not_to_be_asked_for_is_said_and_loses_nothing() {
    let fake = Fake::new(|_| {});
    for (path, said) in [
        (
            "/nodes?state=purple&filter=n1",
            "state: there is no &quot;purple&quot; here. There are: alive, dead, unavailable, record.",
        ),
        ("/nodes?sort=colour&filter=n1", "There are: name, -name, state, -state, deployment, -deployment."),
        ("/runs?state=sleeping&node=n1", "state: there is no &quot;sleeping&quot; here. There are: queued, running"),
        ("/reviews?whose=yours&text=n1", "whose: there is no &quot;yours&quot; here. There are: all, for_me, mine."),
        ("/catalog/roles?sort=age&filter=n1", "There are: name, -name, barclamp, -barclamp"),
    ] {
        let page = get(&fake, path).await;
        assert_eq!(page.status, 400, "{path}");
        let body = page.body.replace("&quot;", "\"");
        assert!(body.contains(&said.replace("&quot;", "\"")), "{path}: {body}");
        page.says(&["value=\"n1\"", "Clear"]);
    }
}

#[tokio::test]
async fn an_empty_list_says_what_hides_it_or_what_to_do() {
    let fake = Fake::new(|world| {
        world.nodes.clear();
        world.runs.clear();
        world.roles.clear();
        world.imports.clear();
    });
    get(&fake, "/nodes?filter=db&state=dead").await.says(&["name contains “db”, state is “dead”", "All "]);
    get(&fake, "/runs?node=n1").await.says(&["No run fits", "node is “n1”"]);
    get(&fake, "/runs?before=7").await.says(&["There are no more runs", "To its beginning"]);
    get(&fake, "/catalog/roles").await.says(&["No roles yet"]);
    get(&fake, "/catalog/roles?filter=x").await.says(&["No role fits"]);
    get(&fake, "/catalog/graph").await.says(&["No roles yet"]);
    get(&fake, "/catalog/imports").await.says(&["Nothing was imported yet"]);
}

#[tokio::test]
async fn the_catalog_has_roles_a_picture_of_them_and_imports() {
    let fake = Fake::new(|_| {});
    let roles = get(&fake, "/catalog/roles").await;
    roles.says(&[
        "href=\"/catalog/roles/app?barclamp=demo\"",
        "The base of the demo",
        "implicit",
        "aria-current=\"page\"",
    ]);
    let role = get(&fake, "/catalog/roles/app").await;
    role.says(&["aria-label=\"Parts of the catalog\"", "How they hang together", "gantry role show app"]);
    role.says(&[
        "href=\"/catalog/roles/base\"",
        "Conflicts with",
        "cluster",
        "href=\"/deployments/web\"",
        "as in the newest",
        "8080",
    ]);
    assert_eq!(get(&fake, "/catalog/roles/nothing").await.status, 404);
    let graph = get(&fake, "/catalog/graph").await;
    graph.says(&["<svg", "class=\"tie requires\"", "id=\"ties\"", "href=\"/catalog/graph#ties\""]);
    graph.says_not(&["style=", "preceeded"]);
    let imports = get(&fake, "/catalog/imports").await;
    imports.says(&["role still", "demo.yml:1:1: note: odd", "2 more", "3 lines more were not kept."]);
    let many = Fake::new(|world| world.long = true);
    get(&many, "/catalog/graph").await.says(&["301 roles are too many for one picture"]);
}
