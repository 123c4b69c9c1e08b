//! Invalid input is refused with the value, its field and a solution, and leaves no trace.

use api::listing::Cursor;
use api::nodes::NodeRequest;
use api::nodes::NodesQuery;
use api::runs::RunsQuery;
use api::views::board::BoardQuery;
use std::collections::BTreeMap;
use std::time::Duration;

use engine::ids::{BarclampName, DeploymentId, NodeId, ProposalId, ReviewId, RunId};
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{BARCLAMP, Installation, fqdn, role};

fn files(text: &str) -> BTreeMap<String, Vec<u8>> {
    [("stack/stack.yml".to_owned(), text.as_bytes().to_vec())].into()
}

#[tokio::test]
async fn broken_barclamps_are_reported_with_position() {
    let installation = Installation::new().await;
    let before = installation.traces().await;
    for (text, at, part) in [
        (
            "barclamp: {name: stack, version: '2'}\nroles:\n  - {name: a, jig: noop, requires: [b}\n",
            "stack/stack.yml:3:",
            "",
        ),
        (
            "barclamp: {name: stack, version: '2'}\nroles:\n  - {name: a, jig: noop, requires: [c]}\n  - {name: b, jig: noop, requires: [a]}\n  - {name: c, jig: noop, requires: [b]}\n",
            "stack/stack.yml:",
            "a -> c -> b -> a",
        ),
        (
            "barclamp: {name: stack, version: '2'}\nroles:\n  - {name: runtime, jig: noop}\n  - {name: a, jig: noop, requires: [runtme]}\n",
            "stack/stack.yml:4:",
            "\"runtime\"",
        ),
    ] {
        let problem = installation
            .control
            .import_barclamps(Some(&installation.ada), &files(text))
            .await
            .unwrap_err();
        assert_eq!((problem.status, problem.code.as_str()), (422, "barclamp"));
        assert!(problem.errors[0].at.starts_with(at), "{problem:?}");
        assert!(problem.errors.iter().any(|e| e.detail.contains(part)), "{part}: {problem:?}");
    }
    assert_eq!(installation.traces().await, before);
}

#[tokio::test]
async fn version_with_other_content_is_rejected() {
    let installation = Installation::new().await;
    let again = installation
        .control
        .import_barclamps(Some(&installation.ada), &files(BARCLAMP))
        .await
        .unwrap();
    assert!(!again.barclamps[0].new, "importing the same content again changes nothing");
    let before = installation.traces().await;
    let other = BARCLAMP.replace("8080", "8081");
    let problem = installation
        .control
        .import_barclamps(Some(&installation.ada), &files(&other))
        .await
        .unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "other_content"));
    assert_eq!(installation.traces().await, before);
}

#[tokio::test]
async fn version_similar_to_another_is_rejected() {
    let installation = Installation::new().await;
    let before = installation.traces().await;
    let stored = "version: '1'";
    assert!(BARCLAMP.contains(stored) || BARCLAMP.contains("version: \"1\""), "{BARCLAMP}");
    let with = |version: &str| {
        files(
            &BARCLAMP
                .replace(stored, &format!("version: {version}"))
                .replace("version: \"1\"", &format!("version: {version}")),
        )
    };
    for alike in ["'1 '", "' 1'", "'\u{ff11}'", "\u{ff11}", "\"1\\u200b\"", "'\u{661}'", "'1.'"] {
        let problem = installation
            .control
            .import_barclamps(Some(&installation.ada), &with(alike))
            .await
            .unwrap_err();
        assert_eq!(problem.status, 422, "{alike}: {problem:?}");
        assert!(
            problem.errors.iter().any(|error| error.detail.contains("Invalid version")),
            "{problem:?}"
        );
    }
    for same in ["'01'", "v1", "'0001'"] {
        let problem = installation
            .control
            .import_barclamps(Some(&installation.ada), &with(same))
            .await
            .unwrap_err();
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (409, "other_content"),
            "{same}: {problem:?}"
        );
        assert!(
            problem.errors[0].detail.contains("version \"1\", which is the same version"),
            "{problem:?}"
        );
    }
    assert_eq!(installation.traces().await, before);
}

#[tokio::test]
async fn all_conflicting_versions_are_reported_together() {
    let installation = Installation::new().await;
    let files = |port: &str| {
        let text = |name: &str, port: &str| {
            let roles = format!("roles: [{{name: {name}, jig: noop, template: {{port: {port}}}}}]");
            format!("barclamp: {{name: {name}, version: '2.E'}}\n{roles}\n").into_bytes()
        };
        ["one", "same", "two"]
            .map(|name| {
                (format!("{name}.yml"), text(name, if name == "same" { "1" } else { port }))
            })
            .into()
    };
    installation.control.import_barclamps(Some(&installation.ada), &files("1")).await.unwrap();
    let before = installation.traces().await;
    let problem = installation
        .control
        .import_barclamps(Some(&installation.ada), &files("2"))
        .await
        .unwrap_err();
    assert_eq!((problem.status, problem.code.as_str()), (409, "other_content"));
    assert!(
        problem.detail.starts_with(
            "Nothing was imported: one 2.E and two 2.E already exist with other content"
        ),
        "{problem:?}"
    );
    assert!(problem.detail.contains("Give the new contents new versions"), "{problem:?}");
    let named: Vec<&str> = problem.errors.iter().map(|error| error.at.as_str()).collect();
    assert_eq!(named, ["one 2.E", "two 2.E"]);
    assert_eq!(installation.traces().await, before);
}

#[tokio::test]
async fn invalid_edits_are_explained_and_leave_no_trace() {
    let installation = Installation::new().await;
    installation.bound("edge", 3, "app").await;
    installation.bound("web", 2, "app").await;
    installation.bound("system", 4, "app").await;
    let (web, edge) = (installation.id("web").await, installation.id("edge").await);
    let (n1, n2, n3) =
        (installation.node(1).await, installation.node(2).await, installation.node(3).await);
    let n4 = installation.node(4).await;
    let proposal = installation.control.propose(&installation.ada, web).await.unwrap();
    let before = installation.traces().await;
    let bind =
        |node, name: &str| Edit::Bind(edit::Bind { deployment: web, node, role: role(name) });
    let cases = [
        (bind(n1, "runtme"), "Did you mean \"runtime\"?"),
        (bind(n3, "app"), "belongs to edge, which is neither above nor below web"),
        (bind(n4, "app"), "Role app is already bound to node n4.house.example.com"),
        (bind(n2, "lonely"), "conflicts with app"),
        (bind(NodeId(uuid::Uuid::from_u128(7)), "app"), "does not exist"),
        (
            Edit::Bind(edit::Bind { deployment: edge, node: n1, role: role("app") }),
            "This proposal is only for deployment web",
        ),
        (
            Edit::Bind(edit::Bind {
                deployment: DeploymentId(uuid::Uuid::from_u128(7)),
                node: n1,
                role: role("app"),
            }),
            "does not exist. It was removed",
        ),
        (
            Edit::SetRoleData(edit::SetRoleData {
                deployment: web,
                role: role("app"),
                data: json!([1]),
            }),
            "must be a JSON object, but is an array",
        ),
        (
            Edit::SetRoleData(edit::SetRoleData {
                deployment: web,
                role: role("app"),
                data: json!({"$secret": "db", "version": 1}),
            }),
            "must be a JSON object, but is a reference to a secret",
        ),
        (
            Edit::SetNoderoleData(edit::SetNoderoleData {
                node: n2,
                noderole: engine::cluster::NoderoleKey::first(role("app")),
                data: json!({"$secret": "db", "version": 1}),
            }),
            "must be a JSON object, but is a reference to a secret",
        ),
        (
            Edit::UseBarclamp(edit::UseBarclamp {
                deployment: web,
                barclamp: BarclampName::parse("stack").unwrap(),
                version: engine::Hash::of_bytes(b"x"),
            }),
            "Import the barclamp",
        ),
    ];
    for (edit, part) in cases {
        let good = bind(n1, "app");
        let problem = installation
            .control
            .edit(&installation.ada, proposal, 0, vec![good, edit])
            .await
            .unwrap_err();
        assert_eq!(problem.status, 422, "{problem:?}");
        assert!(
            problem.errors[0].at == "edit 2" && problem.detail.contains(part),
            "{part}: {problem:?}"
        );
    }
    let none = installation.control.edit(&installation.ada, proposal, 0, vec![]).await.unwrap_err();
    assert_eq!(none.status, 400);
    let empty =
        installation.control.submit(&installation.ada, proposal, 0, "x".into()).await.unwrap_err();
    assert_eq!(empty.code, "empty");
    let untitled =
        installation.control.submit(&installation.ada, proposal, 0, "  ".into()).await.unwrap_err();
    assert_eq!(untitled.status, 400);
    assert_eq!(installation.traces().await, before);
}

#[tokio::test]
async fn ambiguous_data_is_rejected_with_its_path() {
    let installation = Installation::new().await;
    installation.bound("web", 2, "app").await;
    let (web, n2) = (installation.id("web").await, installation.node(2).await);
    let proposal = installation.control.propose(&installation.ada, web).await.unwrap();
    let before = installation.traces().await;
    let secret = |name: serde_json::Value| json!({"db": {"password": {"$secret": name}}});
    for (data, part) in [
        (secret(json!(1)), "/db/password has the key \"$secret\""),
        (secret(json!("db")), "Write {\"$secret\": \"a name\", \"version\": 1}"),
        (
            json!({"limits": [0, 9_007_199_254_740_992_u64]}),
            "9007199254740992 at /limits/1 is too large",
        ),
        (json!({"limits": [-9_007_199_254_740_992_i64]}), "Write it as a string"),
    ] {
        let key = engine::cluster::NoderoleKey::first(role("app"));
        for edit in [
            Edit::SetRoleData(edit::SetRoleData {
                deployment: web,
                role: role("app"),
                data: data.clone(),
            }),
            Edit::SetNoderoleData(edit::SetNoderoleData {
                node: n2,
                noderole: key,
                data: data.clone(),
            }),
        ] {
            let problem = installation
                .control
                .edit(&installation.ada, proposal, 0, vec![edit])
                .await
                .unwrap_err();
            assert!(problem.status == 422 && problem.detail.contains(part), "{part}: {problem:?}");
        }
    }
    assert_eq!(installation.traces().await, before);
    let good = json!({"db": {"password": {"$secret": "db", "version": 1}}, "most": 9_007_199_254_740_991_u64});
    let good =
        Edit::SetRoleData(edit::SetRoleData { deployment: web, role: role("app"), data: good });
    installation.control.edit(&installation.ada, proposal, 0, vec![good]).await.unwrap();
}

#[tokio::test]
async fn data_folder_is_rejected_as_root() {
    let installation = Installation::new().await;
    let control =
        installation.control.clone().with_data_folder(std::path::Path::new("/srv/gantry-data"));
    for folder in ["/srv/gantry-data", "/srv/gantry-data/postgres"] {
        let problem = control
            .add_node(&installation.ada, NodeRequest::named("web-1.rack.example.com", folder))
            .await
            .unwrap_err();
        assert!(
            problem.status == 400 && problem.detail.contains("/srv/gantry-data/nodes"),
            "{problem:?}"
        );
    }
    control
        .add_node(
            &installation.ada,
            NodeRequest::named("web-1.rack.example.com", "/srv/gantry-data/nodes/web-1"),
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn invalid_node_names_and_folders_are_rejected() {
    let installation = Installation::new().await;
    let before = installation.traces().await;
    for (name, folder, part) in [
        ("web", "/srv/nodes/x", "1 of at least 3 labels"),
        ("web_1.rack.example.com", "/srv/nodes/x", "'_'"),
        (fqdn(1).as_str(), "/srv/nodes/x", "already exists"),
        ("N1.House.Example.com", "/srv/nodes/x", "already exists"),
        ("web-1.rack.example.com", "", "neither a root folder nor SSH"),
        ("web-1.rack.example.com", "srv/x", "absolute path"),
        ("web-1.rack.example.com", "/", "absolute path"),
        ("web-1.rack.example.com", "/srv/../etc", "absolute path"),
    ] {
        let problem = installation
            .control
            .add_node(&installation.ada, NodeRequest::named(name, folder))
            .await
            .unwrap_err();
        assert!(problem.detail.contains(part), "{name} {folder}: {problem:?}");
    }
    assert_eq!(installation.traces().await, before);
    for folder in ["/srv/nodes/n1", "/srv/nodes", "/srv/nodes/n1/inner"] {
        let problem = installation
            .control
            .add_node(&installation.ada, NodeRequest::named("n8.house.example.com", folder))
            .await
            .unwrap_err();
        assert_eq!(problem.code, "root_in_use", "{folder}");
    }
    installation
        .control
        .add_node(&installation.ada, NodeRequest::named(" n9.house.example.com ", "/srv/nodes/n9"))
        .await
        .unwrap();
}

#[tokio::test]
async fn missing_objects_return_404() {
    let installation = Installation::new().await;
    let control = &installation.control;
    let problem = control.board(&installation.ada, "wbe", BoardQuery::default()).await.unwrap_err();
    assert_eq!(problem.status, 404);
    assert!(problem.detail.contains("Did you mean \"web\"?"), "{problem:?}");
    assert_eq!(control.review(&installation.ada, ReviewId(99)).await.unwrap_err().status, 404);
    assert_eq!(control.run(&installation.ada, RunId(99)).await.unwrap_err().status, 404);
    assert_eq!(control.log(&installation.ada, RunId(99), 0).await.unwrap_err().status, 404);
    assert_eq!(control.commit(&installation.ada, ReviewId(99)).await.unwrap_err().status, 404);
    assert_eq!(
        control
            .edit(
                &installation.ada,
                ProposalId(99),
                0,
                vec![installation.bind("web", 1, "app").await]
            )
            .await
            .unwrap_err()
            .status,
        404
    );
    assert_eq!(
        control
            .find_runs(
                &installation.ada,
                &RunsQuery { state: "sleeping".into(), ..RunsQuery::default() }
            )
            .await
            .unwrap_err()
            .status,
        400
    );
    assert_eq!(control.cancel(&installation.ada, RunId(99)).await.unwrap_err().status, 404);
    for (filter, after) in [("\0", None), ("", Some(Cursor::from("\0".to_owned())))] {
        let query = NodesQuery { filter: filter.into(), after, ..NodesQuery::default() };
        assert_eq!(control.find_nodes(&installation.ada, &query).await.unwrap_err().status, 400);
    }
}

#[tokio::test]
async fn database_outage_returns_503_and_recovers() {
    let installation = Installation::new().await;
    installation.database.set_connections_allowed(false).await.unwrap();
    installation.database.terminate_connections().await.unwrap();
    let problem = installation
        .control
        .board(&installation.ada, "web", BoardQuery::default())
        .await
        .unwrap_err();
    assert_eq!(problem.status, 503, "{problem:?}");
    assert!(!problem.detail.to_lowercase().contains("sql"), "{problem:?}");
    installation.database.set_connections_allowed(true).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), async {
        while installation
            .control
            .board(&installation.ada, "web", BoardQuery::default())
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("the pool connects again");
}
