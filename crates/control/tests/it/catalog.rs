//! Versions of a barclamp: the items that they lack, and the preview of their use.

use api::catalog::BarclampsQuery;
use control::people::{NewPerson, Permission};
use engine::ids::BarclampName;
use engine::plan::{Edit, MAX_REASON, edit};

use crate::installation::{BARCLAMP, Installation};

#[tokio::test]
async fn missing_items_are_shown_before_version_is_used() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let import = async |version: &str, without: &str| {
        let text = BARCLAMP.replace("version: '1'", &format!("version: '{version}'"));
        let text: String = text
            .lines()
            .filter(|line| without.is_empty() || !line.contains(without))
            .map(|line| format!("{line}\n"))
            .collect();
        let files = [("stack/stack.yml".to_owned(), text.into_bytes())].into();
        installation.control.import_barclamps(Some(&installation.ada), &files).await.unwrap()
    };
    let second = import("2", "name: still").await;
    assert_eq!(second.removed_parts, ["Barclamp stack 2 no longer has: role still"]);
    assert!(
        second.lines().contains(&"Barclamp stack 2 no longer has: role still".to_owned()),
        "{second:?}"
    );
    import("3", "name: lonely").await;

    let catalog = installation
        .control
        .find_barclamps(&installation.cy, &BarclampsQuery::default())
        .await
        .unwrap()
        .versions;
    let listed: Vec<_> = catalog
        .iter()
        .map(|v| {
            (
                v.version.as_str(),
                v.previous.as_deref(),
                v.removed_parts.as_slice(),
                v.by.as_deref(),
                v.used_by.len(),
            )
        })
        .collect();
    let lonely = ["role lonely".to_owned()];
    let still = ["role still".to_owned()];
    let expected = [
        ("3", Some("2"), &lonely[..], Some("ada"), 0),
        ("2", Some("1"), &still[..], Some("ada"), 0),
        ("1", None, &[][..], None, 1),
    ];
    assert_eq!(listed, expected);

    assert!(
        installation.board("web").await.versions.is_empty(),
        "versions are offered only while a proposal is open"
    );
    installation.control.propose(&installation.ada, installation.id("web").await).await.unwrap();
    let board = installation.board("web").await;
    let offered: Vec<_> = board
        .versions
        .iter()
        .map(|v| (v.version.as_str(), v.in_use, v.missing.as_slice()))
        .collect();
    assert_eq!(
        offered,
        [("3", false, &lonely[..]), ("2", false, &still[..]), ("1", true, &[][..])],
        "missing items are relative to the version in use"
    );

    let proposal = board.proposal.unwrap();
    let (deployment, barclamp) = (board.id, BarclampName::parse("stack").unwrap());
    let using = |n: usize| {
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment,
            barclamp: barclamp.clone(),
            version: board.versions[n].hash,
        })
    };
    let traces = installation.traces().await;
    // The demo's deployments have every role, so a version without one of them is refused; without
    // the role it fits.
    let refused = installation
        .control
        .preview_edits(&installation.cy, proposal.id, vec![using(1)])
        .await
        .unwrap();
    assert!(refused.refused.len() == 1 && refused.refused[0].contains("still"), "{refused:?}");
    let drop = Edit::RemoveRole(edit::RemoveRole {
        deployment,
        role: crate::installation::role("lonely"),
    });
    let fine = installation
        .control
        .preview_edits(&installation.cy, proposal.id, vec![drop.clone(), using(0)])
        .await
        .unwrap();
    assert_eq!(fine.refused, Vec::<String>::new());
    assert!(
        fine.lines
            .iter()
            .any(|line| line.starts_with("Uses stack 3 (") && line.ends_with(" in web.")),
        "{fine:?}"
    );
    assert_eq!(installation.traces().await, traces, "a preview stores nothing");

    installation
        .control
        .edit(&installation.ada, proposal.id, proposal.version, vec![drop, using(0)])
        .await
        .unwrap();
    let board = installation.board("web").await;
    assert_eq!(
        board.versions.iter().find(|v| v.in_use).map(|v| v.version.as_str()),
        Some("3"),
        "the version of the draft is in use"
    );
    let text = &board.proposal.unwrap().edits[1].text;
    assert!(text.starts_with("use stack 3 ("), "{text}");
}

#[tokio::test]
async fn preview_requires_edit_permission() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let deployment = installation.id("web").await;
    installation.control.propose(&installation.ada, deployment).await.unwrap();
    let proposal = installation.board("web").await.proposal.unwrap();
    let again = |length: usize| {
        let reason = "x".repeat(length);
        vec![Edit::RerunSlice(edit::RerunSlice {
            deployment,
            roles: [crate::installation::role("app")].into(),
            reason,
        })]
    };
    installation
        .control
        .preview_edits(&installation.cy, proposal.id, again(MAX_REASON))
        .await
        .unwrap();
    let long = installation
        .control
        .preview_edits(&installation.cy, proposal.id, again(MAX_REASON + 1))
        .await
        .unwrap_err();
    assert_eq!((long.status, long.code.as_str()), (422, "edit_refused"));
    assert!(long.detail.contains("the limit is 1000. Shorten it"), "{long:?}");
    let traces = installation.traces().await;
    let edited = installation
        .control
        .edit(&installation.ada, proposal.id, proposal.version, again(900_000))
        .await
        .unwrap_err();
    assert_eq!(
        (edited.status, edited.code.as_str(), edited.detail.len() < 200),
        (422, "edit_refused", true),
        "{edited:?}"
    );
    assert_eq!(installation.traces().await, traces, "a rejected preview stores nothing");

    installation
        .people
        .create_person(None, &NewPerson::human("vi", [Permission::Viewer]))
        .await
        .unwrap();
    let viewer = installation.people.sign_in_as_owner("vi").await.unwrap();
    let refused =
        installation.control.preview_edits(&viewer, proposal.id, again(1)).await.unwrap_err();
    assert_eq!(refused.status, 403, "{refused:?}");
}

fn barclamp(name: &str, version: &str, more: &str) -> std::collections::BTreeMap<String, Vec<u8>> {
    let text = format!("barclamp: {{name: {name}, version: '{version}', parent: core}}\n{more}");
    [(format!("{name}/{name}.yml"), text.into_bytes())].into()
}

/// The version number determines the newest version, not the time of the import.
#[tokio::test]
async fn version_number_determines_newest_not_import_time() {
    let installation = Installation::new().await;
    let import = async |version: &str, roles: &str| {
        let roles: String =
            roles.split(' ').map(|role| format!("  - {{name: {role}, jig: noop}}\n")).collect();
        installation
            .control
            .import_barclamps(
                Some(&installation.ada),
                &barclamp("tool", version, &format!("roles:\n{roles}")),
            )
            .await
            .unwrap()
    };
    import("1.8", "saw axe").await;
    import("2.0", "saw plane").await;
    assert_eq!(
        import("1.9", "saw").await.removed_parts,
        ["Barclamp tool 1.9 no longer has: role axe"],
        "the version is compared with 1.8, not with 2.0"
    );
    assert_eq!(
        import("1.9", "saw").await.removed_parts,
        [""; 0],
        "the role was part of the previous version"
    );

    let catalog = installation
        .control
        .find_barclamps(&installation.cy, &BarclampsQuery::default())
        .await
        .unwrap()
        .versions;
    let tools = catalog.iter().filter(|version| version.barclamp.as_str() == "tool");
    let listed: Vec<_> =
        tools.map(|version| (version.version.as_str(), version.previous.as_deref())).collect();
    assert_eq!(listed, [("2.0", Some("1.9")), ("1.9", Some("1.8")), ("1.8", None)]);
    // New barclamps build on 2.0, although 1.9 was imported last.
    let builds = barclamp("work", "1", "roles:\n  - {name: bench, jig: noop, requires: [plane]}\n");
    let done =
        installation.control.import_barclamps(Some(&installation.ada), &builds).await.unwrap();
    assert_eq!(done.findings, [""; 0]);
}

/// Files are parsed outside of the transaction that imports them, against a catalog that another
/// import may change meanwhile.
#[tokio::test]
async fn parallel_imports_both_complete() {
    let installation = Installation::new().await;
    let of = |name: &str| {
        let mut files =
            barclamp(name, "1", &format!("roles:\n  - {{name: {name}-saw, jig: noop}}\n"));
        files.extend(barclamp(
            &format!("{name}2"),
            "1",
            &format!("roles:\n  - {{name: {name}-axe, jig: noop}}\n"),
        ));
        files
    };
    let (one, two) = (of("one"), of("two"));
    let (first, second) = tokio::join!(
        installation.control.import_barclamps(Some(&installation.ada), &one),
        installation.control.import_barclamps(Some(&installation.ada), &two),
    );
    for imported in [first.unwrap(), second.unwrap()] {
        assert!(
            imported.barclamps.len() == 2 && imported.barclamps.iter().all(|barclamp| barclamp.new),
            "{imported:?}"
        );
    }
    let again = installation.control.import_barclamps(Some(&installation.ada), &one).await.unwrap();
    assert!(again.barclamps.iter().all(|barclamp| !barclamp.new), "{again:?}");
    // A barclamp that requires roles of both finds them.
    let builds = barclamp(
        "work",
        "1",
        "roles:\n  - {name: bench, jig: noop, requires: [one-axe, two-saw]}\n",
    );
    assert_eq!(
        installation
            .control
            .import_barclamps(Some(&installation.ada), &builds)
            .await
            .unwrap()
            .findings,
        [""; 0]
    );
}

/// Each role conflicts with a role of the other import. Only the one that is linked first is
/// reported.
#[tokio::test]
async fn second_parallel_import_sees_the_first() {
    let installation = Installation::new().await;
    let of = |name: &str, other: &str| {
        barclamp(
            name,
            "1",
            &format!("roles:\n  - {{name: {name}-saw, jig: noop, conflicts: [{other}-saw]}}\n"),
        )
    };
    let (one, two) = (of("one", "two"), of("two", "one"));
    // Both parse their files before either imports anything.
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::IMPORT_LOCK)
        .execute(&mut *transaction)
        .await
        .unwrap();
    let between = async {
        installation.so_many_wait(2).await;
        transaction.commit().await.unwrap();
    };
    let (first, second, ()) = tokio::join!(
        installation.control.import_barclamps(Some(&installation.ada), &one),
        installation.control.import_barclamps(Some(&installation.ada), &two),
        between,
    );
    let findings = [first.unwrap().findings, second.unwrap().findings].concat();
    let alone = findings.iter().filter(|finding| finding.contains("which no barclamp has")).count();
    assert_eq!(alone, 1, "only one import found no other version: {findings:?}");
}

/// A jig that the files use but do not declare is imported between two imports of the same files.
#[tokio::test]
async fn reimport_after_jig_import_is_unchanged() {
    let installation = Installation::new().await;
    let work = barclamp("work", "1", "roles:\n  - {name: bench, jig: ansible}\n");
    let first =
        installation.control.import_barclamps(Some(&installation.ada), &work).await.unwrap();
    let jigs = "jigs: [{name: ansible, class: AnsibleJig, implementor: client}]\nroles:\n  - {name: client, jig: noop, flags: [implicit]}\n";
    installation
        .control
        .import_barclamps(Some(&installation.ada), &barclamp("root", "1", jigs))
        .await
        .unwrap();
    let again =
        installation.control.import_barclamps(Some(&installation.ada), &work).await.unwrap();
    assert_eq!((again.barclamps[0].hash, again.barclamps[0].new), (first.barclamps[0].hash, false));
}

/// Binding uses the effective version, so the board offers only its roles.
#[tokio::test]
async fn board_offers_roles_of_effective_version() {
    let installation = Installation::new().await;
    let lonely = crate::installation::role("lonely");
    let drop = Edit::RemoveRole(edit::RemoveRole {
        deployment: installation.id("web").await,
        role: lonely.clone(),
    });
    let dropped = installation.submit(&installation.ada, "web", vec![drop]).await;
    installation.approve(&installation.bo, dropped).await;
    installation.commit(&installation.ada, dropped).await.unwrap();
    let offers =
        async || installation.board("web").await.choices.iter().any(|choice| choice.role == lonely);
    assert!(offers().await, "the version of system has the role");

    let text = BARCLAMP.replace("version: '1'", "version: '2'");
    let text: String = text
        .lines()
        .filter(|line| !line.contains("name: lonely"))
        .map(|line| format!("{line}\n"))
        .collect();
    let files = [("stack/stack.yml".to_owned(), text.into_bytes())].into();
    let version = installation
        .control
        .import_barclamps(Some(&installation.ada), &files)
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    let name = BarclampName::parse("stack").unwrap();
    let using = Edit::UseBarclamp(edit::UseBarclamp {
        deployment: installation.id("web").await,
        barclamp: name,
        version,
    });
    let (proposal, number) = installation.propose(&installation.ada, "web", vec![using]).await;
    assert!(!offers().await, "the version that web would use lacks the role");
    let number = installation.control.undo(&installation.ada, proposal, number).await.unwrap();
    assert!(offers().await);
    installation.control.redo(&installation.ada, proposal, number).await.unwrap();

    // A new barclamp, used in the draft, offers its roles there.
    let files = barclamp("tool", "1", "roles:\n  - {name: saw, jig: noop}\n");
    let version = installation
        .control
        .import_barclamps(Some(&installation.ada), &files)
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    let saw = async || {
        installation
            .board("web")
            .await
            .choices
            .into_iter()
            .find(|choice| choice.role.as_str() == "saw")
    };
    assert_eq!(saw().await, None, "the version is imported but not in use");
    let tool = BarclampName::parse("tool").unwrap();
    let using = Edit::UseBarclamp(edit::UseBarclamp {
        deployment: installation.id("web").await,
        barclamp: tool.clone(),
        version,
    });
    installation.propose(&installation.ada, "web", vec![using]).await;
    assert_eq!(saw().await.map(|choice| choice.barclamp), Some(tool));
}

#[tokio::test]
async fn preview_of_closed_proposal_is_refused() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let (proposal, version) =
        installation.propose(&installation.ada, "web", vec![edit.clone()]).await;
    installation.control.discard(&installation.ada, proposal, version).await.unwrap();
    let preview = installation
        .control
        .preview_edits(&installation.ada, proposal, vec![edit.clone()])
        .await
        .unwrap();
    assert_eq!(
        preview.refused,
        ["This proposal was discarded and accepts no more edits. Open a new proposal."]
    );
    assert!(preview.lines.is_empty());
    let refused = installation
        .control
        .edit(&installation.ada, proposal, version, vec![edit.clone()])
        .await
        .unwrap_err();
    let detail = "This proposal was discarded and accepts no more edits. Open a new proposal.";
    assert_eq!((refused.code.as_str(), refused.detail.as_str()), ("version", detail));
    let id = installation.submit(&installation.ada, "web", vec![edit.clone()]).await;
    installation.approve(&installation.bo, id).await;
    let committed = installation.control.review(&installation.ada, id).await.unwrap();
    installation.commit(&installation.ada, id).await.unwrap();
    let refused = installation
        .control
        .undo(&installation.ada, committed.proposal, committed.version)
        .await
        .unwrap_err();
    assert_eq!(
        refused.detail,
        "This proposal was committed and accepts no more edits. Open a new proposal."
    );
    let unknown = engine::ids::ProposalId(4711);
    assert_eq!(
        installation
            .control
            .preview_edits(&installation.ada, unknown, vec![edit])
            .await
            .unwrap_err()
            .status,
        404
    );
}

#[tokio::test]
async fn browser_gets_used_and_newly_used_versions() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let web = installation.id("web").await;
    let text = BARCLAMP
        .replace("version: '1'", "version: '2'")
        .replace("template: {app: {port: 8080}}", "template: {app: {port: 1}}");
    let files = [("stack/stack.yml".to_owned(), text.into_bytes())].into();
    let version = installation
        .control
        .import_barclamps(Some(&installation.ada), &files)
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    let proposal = installation.control.propose(&installation.ada, web).await.unwrap();
    let planner = async |known: Option<&str>| {
        installation
            .control
            .planner(&installation.ada, web, known)
            .await
            .unwrap()
            .expect("an open proposal")
    };
    let before = planner(None).await;
    let versions = |view: &api::views::board::PlannerView| {
        view.planning_data
            .as_ref()
            .map(|planning_data| (planning_data.barclamps.len(), planning_data.roles.len()))
    };
    assert_eq!(versions(&before), Some((1, 7)), "the other version is imported but not in use");
    assert_eq!(
        versions(&planner(Some(&before.stamp)).await),
        None,
        "a browser with the current versions receives no others"
    );

    let barclamp = BarclampName::parse("stack").unwrap();
    let using = Edit::UseBarclamp(edit::UseBarclamp { deployment: web, barclamp, version });
    installation.control.edit(&installation.ada, proposal, 0, vec![using]).await.unwrap();
    let after = planner(Some(&before.stamp)).await;
    assert_eq!(versions(&after), Some((2, 8)), "the changed role is included");
    // The browser's plan equals the server's.
    let effects =
        after.planning_data.unwrap().open().unwrap().effects_with(&after.edits, &[]).unwrap();
    assert_eq!((effects.refused.len(), effects.hash().unwrap()), (0, after.effects));

    // No error: a board may request this after another person has closed the proposal.
    installation.control.discard(&installation.ada, proposal, after.version).await.unwrap();
    assert_eq!(
        installation
            .control
            .planner(&installation.ada, web, Some(&after.stamp))
            .await
            .map(|view| view.is_none()),
        Ok(true)
    );
}

/// Scripts are reviewed as text, and a pin as a change of the version that it replaces.
#[tokio::test]
async fn review_shows_changes_of_a_version() {
    let installation = Installation::new().await;
    let import = async |version: &str, script: &str| {
        let mut files = barclamp("tool", version, "roles:\n  - {name: saw, jig: script}\n");
        files.insert("tool/scripts/saw/10-cut.sh".into(), script.as_bytes().to_vec());
        installation
            .control
            .import_barclamps(Some(&installation.ada), &files)
            .await
            .unwrap()
            .barclamps[0]
            .hash
    };
    let (first, second) =
        (import("1", "#!/bin/sh\ncut\nend\n").await, import("2", "#!/bin/sh\nburn\nend\n").await);
    let web = installation.id("web").await;
    let pin = |name: &str, version| {
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: web,
            barclamp: BarclampName::parse(name).unwrap(),
            version,
        })
    };
    let seen = |version: &Option<api::catalog::PinnedVersion>| {
        version.as_ref().map(|v| (v.version.clone(), v.from.as_ref().map(ToString::to_string)))
    };
    let own = |version: &str| Some((version.to_owned(), None));

    let used = installation.submit(&installation.ada, "web", vec![pin("tool", first)]).await;
    let review = installation.control.review(&installation.bo, used).await.unwrap();
    assert_eq!((seen(&review.pins[0].old), seen(&review.pins[0].new)), (None, own("1")));
    installation.approve(&installation.bo, used).await;
    let before = installation.commit(&installation.ada, used).await.unwrap();

    // The installation barclamp is pinned on system, so web already has a version of it.
    let text = BARCLAMP.replace("version: '1'", "version: '2'");
    let files = [("stack/stack.yml".to_owned(), text.into_bytes())].into();
    let newer = installation
        .control
        .import_barclamps(Some(&installation.ada), &files)
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    let changed = installation
        .submit(&installation.ada, "web", vec![pin("tool", second), pin("stack", newer)])
        .await;
    let reported = |pins: &[api::catalog::PinChange]| {
        let pins =
            pins.iter().map(|pin| (pin.barclamp.to_string(), seen(&pin.old), seen(&pin.new)));
        pins.collect::<Vec<_>>()
    };
    let expected = [
        ("stack".to_owned(), Some(("1".to_owned(), Some("system".to_owned()))), own("2")),
        ("tool".to_owned(), own("1"), own("2")),
    ];
    let review = installation.control.review(&installation.bo, changed).await.unwrap();
    assert_eq!(reported(&review.pins), expected);
    let lines = |contents: &[api::catalog::ContentChange]| {
        let [file] = contents.iter().flat_map(|content| &content.files).collect::<Vec<_>>()[..]
        else {
            panic!("expected one changed file: {contents:?}")
        };
        let api::catalog::FileText::Lines { lines, cut: false } = &file.text else {
            panic!("{file:?}")
        };
        let differ = lines.iter().filter(|line| line.mark != api::catalog::LineMark::Unchanged);
        let lines: Vec<String> =
            differ.map(|line| format!("{:?} {}", line.mark, line.text)).collect();
        (file.name.clone(), lines)
    };
    let expected_lines =
        ("10-cut.sh".to_owned(), vec!["Removed cut".to_owned(), "Added burn".to_owned()]);
    let file = lines(&review.contents);
    assert!(file.0.ends_with(&expected_lines.0) && file.1 == expected_lines.1, "{file:?}");

    // After the commit, the review and the comparison of the two blueprints still show the same.
    installation.approve(&installation.bo, changed).await;
    let after = installation.commit(&installation.ada, changed).await.unwrap();
    let review = installation.control.review(&installation.bo, changed).await.unwrap();
    assert_eq!(
        (reported(&review.pins), lines(&review.contents)),
        (expected.to_vec(), file.clone())
    );
    let (from, to) =
        (api::blueprints::Point::Number(before), api::blueprints::Point::Number(after));
    let compared = installation.control.compare(&installation.cy, from, to, None).await.unwrap();
    assert_eq!(
        (reported(&compared.pins), lines(&compared.contents)),
        (expected.to_vec(), file.clone())
    );

    // The difference between two submissions of a proposal contains script text too.
    let edge = installation.id("edge").await;
    let using = |version| {
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: edge,
            barclamp: BarclampName::parse("tool").unwrap(),
            version,
        })
    };
    let earlier = installation.submit(&installation.ada, "edge", vec![using(first)]).await;
    installation.control.record_view(&installation.bo, earlier).await.unwrap();
    let later = installation.submit(&installation.ada, "edge", vec![using(second)]).await;
    let since = installation.control.changes_since_view(&installation.bo, later).await.unwrap();
    assert_eq!(
        (since.before, reported(&since.pins)),
        (Some(earlier), vec![("tool".to_owned(), own("1"), own("2"))])
    );
    assert_eq!(lines(&since.contents), file);
}

#[tokio::test]
async fn own_pin_is_replaced_by_inherited_version() {
    let installation = Installation::new().await;
    let (web, name) = (installation.id("web").await, BarclampName::parse("stack").unwrap());
    let text = BARCLAMP.replace("version: '1'", "version: '2'").replace("port: 8080", "port: 9090");
    let files = [("stack/stack.yml".to_owned(), text.into_bytes())].into();
    let newer = installation
        .control
        .import_barclamps(Some(&installation.ada), &files)
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    installation.bound("web", 1, "app").await;
    let used = Edit::UseBarclamp(edit::UseBarclamp {
        deployment: web,
        barclamp: name.clone(),
        version: newer,
    });
    let id = installation.submit(&installation.ada, "web", vec![used]).await;
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();

    installation.control.propose(&installation.ada, web).await.unwrap();
    let board = installation.board("web").await;
    let own: Vec<_> = board
        .own_versions
        .iter()
        .map(|own| (own.barclamp.as_str(), own.version.as_str()))
        .collect();
    assert_eq!(own, [("stack", "2")]);
    let above = board.own_versions[0].inherited.clone().unwrap();
    assert_eq!(
        (above.from.as_str(), above.version.as_str(), above.missing),
        ("system", "1", vec![])
    );
    let proposal = board.proposal.unwrap();
    let back =
        Edit::InheritBarclamp(edit::InheritBarclamp { deployment: web, barclamp: name.clone() });
    let lines = installation
        .control
        .preview_edits(&installation.bo, proposal.id, vec![back.clone()])
        .await
        .unwrap();
    let line = |lines: &[String]| {
        lines.iter().any(|line| line.starts_with("Uses stack 1 (") && line.contains(" instead of "))
    };
    assert!(lines.refused.is_empty() && line(&lines.lines), "{lines:?}");
    let version = installation
        .control
        .edit(&installation.ada, proposal.id, proposal.version, vec![back.clone()])
        .await
        .unwrap();
    let board = installation.board("web").await;
    let using: Vec<_> = board
        .versions
        .iter()
        .filter(|choice| choice.in_use)
        .map(|choice| choice.version.as_str())
        .collect();
    assert_eq!((board.own_versions.len(), using), (0, vec!["1"]), "the board shows the draft");
    assert_eq!(
        board.proposal.unwrap().undo.as_deref(),
        Some("inherit stack from the parent deployment")
    );
    let version = installation.control.undo(&installation.ada, proposal.id, version).await.unwrap();
    assert_eq!(installation.board("web").await.own_versions.len(), 1);
    let version = installation.control.redo(&installation.ada, proposal.id, version).await.unwrap();
    let again = installation
        .control
        .edit(&installation.ada, proposal.id, version, vec![back])
        .await
        .unwrap_err();
    assert!(again.detail.contains("web has no version of stack of its own"), "{again:?}");

    let id = installation
        .control
        .submit(&installation.ada, proposal.id, version, "as above".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    let seen = |side: &Option<api::catalog::PinnedVersion>| {
        side.as_ref().map(|v| (v.version.clone(), v.from.is_some()))
    };
    assert_eq!(
        (seen(&review.pins[0].old), seen(&review.pins[0].new)),
        (Some(("2".into(), false)), Some(("1".into(), true)))
    );
    let reported =
        installation.control.review_difference(&installation.bo, id).await.unwrap().text();
    let pin = reported
        .lines()
        .find(|line| line.contains("barclamp stack"))
        .unwrap_or_else(|| panic!("{reported}"));
    assert!(
        pin.starts_with("  * barclamp stack: 2 (") && pin.ends_with("), from system"),
        "{reported}"
    );
    assert!(reported.contains("/template/app/port: 9090 -> 8080"), "{reported}");
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
}

#[tokio::test]
async fn barclamps_exchange_roles_in_one_request() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let import = async |name: &str, version: &str, role: &str| {
        let files = barclamp(name, version, &format!("roles:\n  - {{name: {role}, jig: noop}}\n"));
        let version = installation
            .control
            .import_barclamps(Some(&installation.ada), &files)
            .await
            .unwrap()
            .barclamps[0]
            .hash;
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: web,
            barclamp: BarclampName::parse(name).unwrap(),
            version,
        })
    };
    let first = [import("one", "1", "saw").await, import("two", "1", "axe").await];
    let id = installation.submit(&installation.ada, "web", first.into()).await;
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let (one, two) = (import("one", "2", "axe").await, import("two", "2", "saw").await);
    let (proposal, version) =
        (installation.control.propose(&installation.ada, web).await.unwrap(), 0);
    let alone = installation
        .control
        .edit(&installation.ada, proposal, version, vec![one.clone()])
        .await
        .unwrap_err();
    assert!(alone.detail.contains("Barclamps one and two both have a role axe"), "{alone:?}");
    let version = installation
        .control
        .edit(&installation.ada, proposal, version, vec![two, one])
        .await
        .unwrap();
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "exchanged".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn removed_script_is_shown_in_every_review() {
    let installation = Installation::new().await;
    let import = async |version: &str, scripts: &[&str]| {
        let mut files = barclamp("tool", version, "roles:\n  - {name: saw, jig: script}\n");
        files.extend(
            scripts
                .iter()
                .map(|name| (format!("tool/scripts/saw/{name}"), b"#!/bin/sh\ncut\n".to_vec())),
        );
        installation
            .control
            .import_barclamps(Some(&installation.ada), &files)
            .await
            .unwrap()
            .barclamps[0]
            .hash
    };
    let (first, second) =
        (import("1", &["10-cut.sh", "20-oil.sh"]).await, import("2", &["10-cut.sh"]).await);
    let web = installation.id("web").await;
    let using = |version| {
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: web,
            barclamp: BarclampName::parse("tool").unwrap(),
            version,
        })
    };
    let id = installation.submit(&installation.ada, "web", vec![using(first)]).await;
    assert!(
        installation
            .control
            .review(&installation.bo, id)
            .await
            .unwrap()
            .summary
            .contains(&"Nothing is removed.".to_owned())
    );
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let id = installation.submit(&installation.ada, "web", vec![using(second)]).await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    let gone = |line: &&String| {
        line.contains("20-oil.sh") && line.starts_with("In web, tool no longer has: script ")
    };
    assert!(review.summary.iter().any(|line| gone(&line)), "{:?}", review.summary);
    assert!(!review.summary.contains(&"Nothing is removed.".to_owned()), "{:?}", review.summary);
    assert_eq!(review.impact.lost.count, 1, "the impact lists the removed script as lost");
    let reported =
        installation.control.review_difference(&installation.bo, id).await.unwrap().text();
    let line = reported.lines().map(str::trim).find(|line| line.contains("20-oil.sh:"));
    assert!(
        line.is_some_and(|line| line.starts_with("- script ") && line.ends_with(": +0 -2 lines")),
        "{reported}"
    );
}

/// The importer need not be the reviewer.
#[tokio::test]
async fn misleading_script_is_flagged_in_every_view() {
    let installation = Installation::new().await;
    let import =
        async |version: &str, scripts: &[(&str, &str)]| {
            let mut files = barclamp("tool", version, "roles:\n  - {name: saw, jig: script}\n");
            files.extend(scripts.iter().map(|(name, text)| {
                (format!("tool/scripts/saw/{name}"), text.as_bytes().to_vec())
            }));
            installation
                .control
                .import_barclamps(Some(&installation.ada), &files)
                .await
                .unwrap()
                .barclamps[0]
                .hash
        };
    let (plain, old) =
        (("10-cut.sh", "#!/bin/sh\ncut\n"), ("20-old.sh", "#!/bin/sh\necho \u{fe0f}\n"));
    let bad = ("30-new.sh", "#!/bin/sh\n: \u{202e}x\n:\u{200b}\n");
    let first = import("1", &[plain, old]).await;
    let second = import("2", &[plain, old, bad]).await;
    let reported = |found: &api::catalog::HiddenCharacters| {
        assert_eq!(found.more, 0);
        found.scripts.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let of_old = "saw of tool, 20-old.sh:2:6: The script has the character U+FE0F, which is invisible \
                  or misleading";
    let of_new = "saw of tool, 30-new.sh:2:3: The script has the character U+202E, which is invisible \
                  or misleading. It has 2 such characters, in lines 2, 3";

    let catalog = installation
        .control
        .find_barclamps(&installation.cy, &BarclampsQuery::default())
        .await
        .unwrap()
        .versions;
    let of = |version: &str| {
        catalog.iter().find(|v| v.barclamp.as_str() == "tool" && v.version == version).unwrap()
    };
    assert_eq!(
        (reported(&of("1").hidden_characters), reported(&of("2").hidden_characters)),
        (vec![of_old.into()], vec![of_old.into(), of_new.into()])
    );

    let web = installation.id("web").await;
    let pin = |version| {
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: web,
            barclamp: BarclampName::parse("tool").unwrap(),
            version,
        })
    };
    let used = installation.submit(&installation.ada, "web", vec![pin(first)]).await;
    assert_eq!(
        reported(
            &installation.control.review(&installation.bo, used).await.unwrap().hidden_characters
        ),
        [of_old]
    );
    installation.approve(&installation.bo, used).await;
    let before = installation.commit(&installation.ada, used).await.unwrap();

    // Findings of the previous version are not repeated for the next version.
    let newer = installation.submit(&installation.ada, "web", vec![pin(second)]).await;
    assert_eq!(
        reported(
            &installation.control.review(&installation.bo, newer).await.unwrap().hidden_characters
        ),
        [of_new]
    );
    installation.approve(&installation.bo, newer).await;
    let after = installation.commit(&installation.ada, newer).await.unwrap();
    let compare = async |from, to| {
        let (from, to) = (api::blueprints::Point::Number(from), api::blueprints::Point::Number(to));
        installation.control.compare(&installation.cy, from, to, None).await.unwrap()
    };
    let found = compare(before, after).await;
    assert_eq!(reported(&found.hidden_characters), [of_new]);
    assert!(
        found.text().contains(&format!(
            "Scripts with hidden characters, which can run other commands than they show:\n  {of_new}\n"
        )),
        "{}",
        found.text()
    );
    assert!(compare(after, before).await.hidden_characters.is_empty());

    // Adding a role adds its scripts; binding an existing role to a node adds none.
    let add =
        Edit::AddRole(edit::AddRole { deployment: web, role: crate::installation::role("saw") });
    let added = installation.submit(&installation.ada, "web", vec![add]).await;
    assert_eq!(
        reported(
            &installation.control.review(&installation.bo, added).await.unwrap().hidden_characters
        ),
        [of_old, of_new]
    );
    installation.approve(&installation.bo, added).await;
    installation.commit(&installation.ada, added).await.unwrap();
    let bind = installation.bind("web", 1, "saw").await;
    let bound = installation.submit(&installation.ada, "web", vec![bind]).await;
    assert!(
        installation
            .control
            .review(&installation.bo, bound)
            .await
            .unwrap()
            .hidden_characters
            .is_empty()
    );
}
