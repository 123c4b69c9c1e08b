//! Lists stay fast and bounded with very many proposals, and agree with the pages of the single
//! items.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::catalog::{ImportsWanted, RoleGraphWanted, RoleTie, RoleWanted, RolesWanted};
use api::deployments::DeploymentSummary;
use api::deployments::{DeploymentSort, DeploymentsWanted};
use api::listing::PAGE_SIZE;
use api::listing::{Cursor, Order, Sort};
use api::nodes::NodeSummary;
use api::nodes::{NodeSort, NodesWanted};
use api::reviews::ReviewSort;
use api::reviews::ReviewState;
use api::reviews::{ProposalsWanted, ReviewCount, ReviewStateFilter, ReviewsWanted, Whose};
use api::runs::RunSummary;
use api::runs::{RunSort, RunsWanted};
use api::workers::WorkerSort;
use api::workers::WorkersWanted;
use control::people::Actor;
use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use engine::ids::{DeploymentId, DeploymentName, NodeId, ReviewId};
use engine::plan::{Edit, edit};
use uuid::Uuid;

use crate::house::{House, role};
use crate::lint::jig;

/// Copies of a submission, each in an open proposal of its own, like many automatic proposals.
async fn more_like(house: &House, id: ReviewId, n: i64) {
    let mut transaction = house.database.owner().begin().await.unwrap();
    let sqls = [
        "CREATE TEMPORARY TABLE made ON COMMIT DROP AS SELECT 0::bigint AS proposal, 0::bigint AS review LIMIT 0",
        "WITH new AS (INSERT INTO proposal (deployment_id, kind, version, created_by) \
           SELECT p.deployment_id, 'autopilot', p.version, p.created_by FROM review s JOIN proposal p ON p.id = s.proposal_id, \
           generate_series(1, $2) WHERE s.id = $1 RETURNING id) INSERT INTO made SELECT id FROM new",
        "INSERT INTO edit (proposal_id, seq, actor, body) SELECT m.proposal, e.seq, e.actor, e.body FROM made m, edit e \
           WHERE e.proposal_id = (SELECT proposal_id FROM review WHERE id = $1) AND $2 > 0",
        "WITH new AS (INSERT INTO review (proposal_id, version, title, change_hash, effects_hash, policy_number, approvals_needed, \
           epoch, root_hash, summary, risk, created_by) SELECT m.proposal, s.version, 'No. ' || row_number() OVER (ORDER BY m.proposal), \
           s.change_hash, s.effects_hash, s.policy_number, s.approvals_needed, s.epoch, s.root_hash, s.summary, s.risk, s.created_by \
           FROM made m, review s WHERE s.id = $1 AND $2 > 0 RETURNING id, proposal_id) \
         UPDATE made m SET review = new.id FROM new WHERE new.proposal_id = m.proposal",
        "INSERT INTO review_base SELECT m.review, b.deployment_id, b.head_no FROM made m, review_base b \
           WHERE b.review_id = $1 AND $2 > 0",
        "INSERT INTO review_author SELECT m.review, a.person_id FROM made m, review_author a \
           WHERE a.review_id = $1 AND $2 > 0",
        "INSERT INTO review_document SELECT m.review, d.kind, d.id, d.old_hash, d.new_hash FROM made m, review_document d \
           WHERE d.review_id = $1 AND $2 > 0",
    ];
    for (at, sql) in sqls.into_iter().enumerate() {
        let query = sqlx::query(sql);
        let query = if at == 0 { query } else { query.bind(id.0).bind(n) };
        query.execute(&mut *transaction).await.unwrap();
    }
    transaction.commit().await.unwrap();
}

/// A change by ada that waits for review.
async fn one(house: &House, n: usize) -> ReviewId {
    let edit = house.bind("web", n, "app").await;
    house.submit(&house.ada, "web", vec![edit]).await
}

async fn badge(house: &House, by: &Actor) -> ReviewCount {
    house.control.frame(by).await.unwrap().pending_reviews
}

/// The badge after all impact calculations have finished.
async fn settled(house: &House, by: &Actor) -> ReviewCount {
    for _ in 0..60 {
        let waiting = badge(house, by).await;
        if !waiting.more || waiting.count == 100 {
            return waiting;
        }
    }
    panic!("it is never settled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn badge_counts_up_to_its_limit() {
    let house = House::new().await;
    house.bound("web", 4, "app").await;
    let id = one(&house, 1).await;
    more_like(&house, id, 99).await;
    let exactly = |count| ReviewCount { count, more: false };
    assert_eq!(settled(&house, &house.bo).await, exactly(100));
    assert_eq!(settled(&house, &house.ada).await, exactly(0), "their author's turn it is not");
    house.approve(&house.bo, id).await;
    assert_eq!(settled(&house, &house.bo).await, exactly(100), "99 to judge, and one to commit");
    assert_eq!(settled(&house, &house.ada).await, exactly(1));
    house.control.judge(&house.cy, id, VerdictKind::Reject, "no".into()).await.unwrap();
    assert_eq!(settled(&house, &house.bo).await, exactly(99));
    more_like(&house, id, 900).await;
    assert_eq!(settled(&house, &house.bo).await, ReviewCount { count: 100, more: true });
    assert_eq!(settled(&house, &house.ada).await, exactly(0));

    // Cached results are reused, and verdicts alone require no new plan.
    let worked_out = house.control.worked_out();
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(badge(&house, &house.bo).await, ReviewCount { count: 100, more: true });
    }
    let each = begun.elapsed() / 5;
    assert!(each < Duration::from_secs(1), "{each:?} for a badge over 1,000 reviews");
    assert_eq!(house.control.worked_out(), worked_out);
    println!("a badge over 1,000 open reviews: {each:?}");

    // With its jig off, no approval makes any of them ready.
    jig(&house, false).await;
    let listed = house.control.reviews(&house.bo, &ReviewsWanted::default()).await.unwrap();
    assert_eq!(
        listed.reviews.iter().map(|r| r.state).collect::<BTreeSet<_>>(),
        BTreeSet::from([ReviewState::Faulty])
    );
    assert_eq!(settled(&house, &house.bo).await, exactly(0), "however many had to be looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_requests_share_one_plan() {
    let house = House::new().await;
    let id = one(&house, 1).await;
    more_like(&house, id, 39).await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..24 {
        let control = house.control.clone();
        let by = [&house.bo, &house.cy][n % 2].clone();
        asked.spawn(async move {
            match n % 3 {
                0 => drop(control.review(&by, id).await.unwrap()),
                1 => drop(control.reviews(&by, &ReviewsWanted::default()).await.unwrap()),
                _ => drop(control.frame(&by).await.unwrap()),
            }
        });
    }
    asked.join_all().await;
    assert_eq!(settled(&house, &house.bo).await, ReviewCount { count: 40, more: false });
    // The review's page needs the complete plan, so the result that a list has cached may not be
    // enough.
    let worked_out = house.control.worked_out();
    assert!((40..=41).contains(&worked_out), "{worked_out} plans for 40 submissions");
}

#[tokio::test]
async fn dropped_request_does_not_interrupt_planning() {
    let house = House::new().await;
    let id = one(&house, 1).await;
    more_like(&house, id, 9).await;
    // Each of these requests is dropped while it runs.
    for _ in 0..5 {
        let _ =
            tokio::time::timeout(Duration::from_millis(1), house.control.frame(&house.bo)).await;
    }
    assert_eq!(settled(&house, &house.bo).await, ReviewCount { count: 10, more: false });
    assert!(house.control.worked_out() <= 10, "{}", house.control.worked_out());
}

async fn ids(house: &House, by: &Actor, wanted: ReviewsWanted) -> Vec<ReviewId> {
    let page = house.control.reviews(by, &wanted).await.unwrap();
    page.reviews.into_iter().map(|review| review.review).collect()
}

#[tokio::test]
async fn reviews_are_filtered_by_author_and_state() {
    let house = House::new().await;
    house.bound("web", 4, "app").await;
    let (web, edge) = (one(&house, 1).await, house.bind("edge", 2, "app").await);
    let edge = house.submit(&house.bo, "edge", vec![edge]).await;
    let node = house.node(4).await;
    let on_node = house.control.propose_on_node(&house.cy, node).await.unwrap();
    let unbind = Edit::Unbind(edit::Unbind {
        node,
        noderole: engine::cluster::NoderoleKey::first(role("app")),
        with_dependents: false,
    });
    let version = house.control.edit(&house.cy, on_node, 0, vec![unbind]).await.unwrap();
    let on_node =
        house.control.submit(&house.cy, on_node, version, "Empty 100% of n4".into()).await.unwrap();
    let first = ReviewId(1);

    let all = ReviewsWanted::default();
    assert_eq!(
        ids(&house, &house.ada, all.clone()).await,
        [on_node, edge, web],
        "what is on one node is there, too"
    );
    let any = ReviewsWanted { state: ReviewStateFilter::Any, ..all.clone() };
    assert_eq!(ids(&house, &house.ada, any.clone()).await, [on_node, edge, web, first]);
    assert_eq!(
        ids(
            &house,
            &house.ada,
            ReviewsWanted { state: ReviewStateFilter::Committed, ..all.clone() }
        )
        .await,
        [first]
    );
    assert_eq!(
        ids(
            &house,
            &house.ada,
            ReviewsWanted { state: ReviewStateFilter::Discarded, ..all.clone() }
        )
        .await,
        []
    );

    let mine = ReviewsWanted { whose: Whose::Mine, ..any.clone() };
    assert_eq!(ids(&house, &house.ada, mine.clone()).await, [web, first]);
    assert_eq!(ids(&house, &house.bo, mine).await, [edge]);
    let for_me = ReviewsWanted { whose: Whose::ForMe, ..all.clone() };
    assert_eq!(ids(&house, &house.bo, for_me.clone()).await, [on_node, web]);
    house.approve(&house.bo, web).await;
    assert_eq!(
        ids(&house, &house.cy, for_me.clone()).await,
        [edge, web],
        "it is approved and may be committed"
    );
    house.control.open_thread(&house.bo, web, Anchor::Whole, "Why?".into()).await.unwrap();
    assert_eq!(ids(&house, &house.cy, for_me.clone()).await, [edge]);
    let shown = house.listed(&house.cy, ReviewStateFilter::Open).await;
    assert_eq!(
        shown.iter().map(|review| review.state).collect::<Vec<_>>(),
        [ReviewState::Waiting, ReviewState::Waiting, ReviewState::Discussed]
    );
    for review in shown {
        let own = house.control.review(&house.cy, review.review).await.unwrap();
        assert_eq!(
            (own.state, own.gate.approvals, own.gate.needed),
            (review.state, review.approvals.0, review.approvals.1)
        );
        assert_eq!(
            (own.title, own.deployment, own.node),
            (review.title, review.deployment, review.node)
        );
        assert_eq!((own.authors, own.at), (review.authors, review.at));
        assert!(
            review.summary.starts_with(&own.summary[0]),
            "{}: {:?}",
            review.summary,
            own.summary
        );
    }

    let of = |deployment: &str| ReviewsWanted { deployment: deployment.into(), ..any.clone() };
    assert_eq!(ids(&house, &house.ada, of("edge")).await, [edge]);
    assert_eq!(
        ids(&house, &house.ada, of("web")).await,
        [on_node, web, first],
        "a node's is of where that was"
    );
    let unknown = house.control.reviews(&house.ada, &of("nowhere")).await.unwrap_err();
    assert_eq!(unknown.status, 404);
    let titled = |text: &str| ReviewsWanted { text: text.into(), ..any.clone() };
    assert_eq!(ids(&house, &house.ada, titled(" EMPTY 100% ")).await, [on_node]);
    for pattern in ["%", "_", "\\"] {
        let wanted = if pattern == "%" { vec![on_node] } else { Vec::new() };
        assert_eq!(
            ids(&house, &house.ada, titled(pattern)).await,
            wanted,
            "{pattern} stands for itself"
        );
    }
    let long = house.control.reviews(&house.ada, &titled(&"x".repeat(201))).await.unwrap_err();
    assert_eq!(long.status, 400);

    let open = house.board("web").await.proposal.unwrap();
    house.control.discard(&house.ada, open.id, open.version).await.unwrap();
    assert_eq!(
        ids(
            &house,
            &house.ada,
            ReviewsWanted { state: ReviewStateFilter::Discarded, ..all.clone() }
        )
        .await,
        [web]
    );
    assert_eq!(ids(&house, &house.ada, all).await, [on_node, edge]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_reviews_are_paged() {
    let house = House::new().await;
    let id = one(&house, 1).await;
    more_like(&house, id, 999).await;
    for state in [ReviewStateFilter::Open, ReviewStateFilter::Any] {
        let all: Vec<ReviewId> =
            house.listed(&house.bo, state).await.iter().map(|r| r.review).collect();
        assert_eq!((all.len(), all.last()), (1_000, Some(&id)));
        assert!(all.is_sorted_by(|a, b| a > b), "each once, newest first");
    }
    let searched = ReviewsWanted { text: "No. 99".into(), ..ReviewsWanted::default() };
    assert_eq!(house.control.reviews(&house.bo, &searched).await.unwrap().reviews.len(), 11);
    // Half of them now wait for another person.
    let sql = "INSERT INTO verdict (review_id, person_id, kind, reason) SELECT id, $1, 'request_changes', 'no' FROM review \
               WHERE id % 2 = 0";
    sqlx::query(sql).bind(house.cy.person.0).execute(house.database.owner()).await.unwrap();
    let mut wanted = ReviewsWanted { whose: Whose::ForMe, ..ReviewsWanted::default() };
    let mut found = Vec::new();
    loop {
        let page = house.control.reviews(&house.bo, &wanted).await.unwrap();
        assert!(page.reviews.len() <= PAGE_SIZE);
        found.extend(page.reviews.into_iter().map(|review| review.review.0));
        match page.next {
            None => break,
            next => wanted.before = next,
        }
    }
    assert_eq!(found.len(), 500);
    assert!(found.iter().all(|id| id % 2 == 1) && found.is_sorted_by(|a, b| a > b));
}

#[tokio::test]
async fn open_proposals_are_counted_and_paged() {
    let house = House::new().await;
    let (bind, other) = (house.bind("web", 1, "app").await, house.bind("web", 2, "app").await);
    let (web, version) = house.propose(&house.ada, "web", vec![bind, other]).await;
    house.control.undo(&house.bo, web, version).await.unwrap();
    let node = house.node(3).await;
    let on_node = house.control.propose_on_node(&house.cy, node).await.unwrap();
    let page = |by, wanted: ProposalsWanted| {
        let house = &house;
        async move { house.control.proposals(by, &wanted).await.unwrap() }
    };
    let all = page(&house.bo, ProposalsWanted::default()).await;
    assert_eq!(
        all.proposals
            .iter()
            .map(|p| (p.id, p.edits, p.authors.join(" "), p.review))
            .collect::<Vec<_>>(),
        [(on_node, 0, String::new(), None), (web, 1, "ada".into(), None)]
    );
    assert_eq!(all.proposals[0].scope.node.as_ref().unwrap().id, node);
    let mine = page(&house.cy, ProposalsWanted { mine: true, ..ProposalsWanted::default() }).await;
    assert_eq!(mine.proposals.iter().map(|p| p.id).collect::<Vec<_>>(), [on_node]);
    let here =
        page(&house.cy, ProposalsWanted { deployment: "web".into(), ..ProposalsWanted::default() })
            .await;
    assert_eq!(here.proposals.iter().map(|p| p.id).collect::<Vec<_>>(), [web]);

    let id = house.control.submit(&house.ada, web, version + 1, "one".into()).await.unwrap();
    let drafts = ProposalsWanted { drafts: true, ..ProposalsWanted::default() };
    let left = page(&house.bo, drafts.clone()).await;
    assert_eq!(
        left.proposals.iter().map(|p| p.id).collect::<Vec<_>>(),
        [on_node],
        "the other one was submitted as it is"
    );
    more_like(&house, id, 120).await;
    let (mut found, mut wanted) = (Vec::new(), ProposalsWanted::default());
    loop {
        let next = page(&house.bo, wanted.clone()).await;
        assert!(next.proposals.len() <= PAGE_SIZE);
        found.extend(next.proposals.into_iter().map(|p| p.id));
        wanted.before = next.next;
        if wanted.before.is_none() {
            break;
        }
    }
    assert_eq!(found.len(), 122);
    assert!(found.is_sorted_by(|a, b| a > b));
}

#[tokio::test]
async fn open_proposals_are_sorted_and_filtered_by_scope() {
    let house = House::new().await;
    let bind = house.bind("web", 1, "app").await;
    let (web, _) = house.propose(&house.ada, "web", vec![bind]).await;
    let system = house.control.propose(&house.ada, house.id("system").await).await.unwrap();
    let page = |text: &str, sort: &str| {
        let wanted = ProposalsWanted {
            text: text.into(),
            sort: sort.parse().unwrap(),
            ..ProposalsWanted::default()
        };
        let house = &house;
        async move {
            let page = house.control.proposals(&house.bo, &wanted).await.unwrap();
            page.proposals.into_iter().map(|p| p.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(page("", "deployment").await, [system, web]);
    assert_eq!(page("", "-deployment").await, [web, system]);
    assert_eq!(page("", "created").await, [web, system]);
    assert_eq!(page("WE", "").await, [web]);
    assert!(page("nowhere", "").await.is_empty());
}

#[tokio::test]
async fn worker_pages_have_no_duplicates_during_updates() {
    let house = House::new().await;
    let sql = "INSERT INTO worker (name, lease_until, started_at) \
               SELECT 'w' || n, now() - make_interval(secs => n % 7), now() - make_interval(secs => n / 3) \
               FROM generate_series(1, 130) n";
    sqlx::query(sql).execute(house.database.owner()).await.unwrap();
    for sort in Order::<WorkerSort>::words() {
        let mut wanted = WorkersWanted { sort: sort.parse().unwrap(), ..WorkersWanted::default() };
        let mut found = Vec::new();
        loop {
            let page = house.control.workers(&house.ada, &wanted).await.unwrap();
            assert!(!page.workers.is_empty() && page.workers.len() <= PAGE_SIZE, "{sort}");
            // The last worker of the page reports before the next page is requested. If the list is
            // sorted by that time, the worker may appear twice.
            if sort != "heartbeat" {
                let last = page.workers.last().unwrap();
                let sql = "UPDATE worker SET lease_until = now() + interval '1 hour' WHERE id = $1";
                sqlx::query(sql).bind(last.id).execute(house.database.owner()).await.unwrap();
            }
            found.extend(page.workers.into_iter().map(|worker| worker.name));
            wanted.before = page.next;
            if wanted.before.is_none() {
                break;
            }
        }
        let each: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), each.len()), (130, 130), "{sort}");
    }
    let first = house.control.workers(&house.ada, &WorkersWanted::default()).await.unwrap();
    let last = first.workers.last().unwrap().id;
    sqlx::query("DELETE FROM worker WHERE id = $1")
        .bind(last)
        .execute(house.database.owner())
        .await
        .unwrap();
    let wanted = WorkersWanted { before: first.next, ..WorkersWanted::default() };
    let second = house.control.workers(&house.ada, &wanted).await.unwrap();
    assert_eq!(second.workers.len(), PAGE_SIZE, "a row that is gone is a place all the same");
    let odd = WorkersWanted { before: Some(last.to_string().into()), ..WorkersWanted::default() };
    assert_eq!(house.control.workers(&house.ada, &odd).await.unwrap_err().status, 400);
}

#[tokio::test]
async fn draft_list_is_notified_of_changes() {
    let house = House::new().await;
    let told = async || -> i64 {
        let sql = "SELECT count(*) FROM event WHERE topic = 'reviews'";
        sqlx::query_scalar(sql).fetch_one(house.database.owner()).await.unwrap()
    };
    let before = told().await;
    let proposal = house.control.propose(&house.ada, house.id("web").await).await.unwrap();
    assert_eq!(told().await, before + 1);
    let edit = house.bind("web", 1, "app").await;
    house.control.edit(&house.ada, proposal, 0, vec![edit]).await.unwrap();
    assert_eq!(told().await, before + 2);
}

/// All sort orders of a list.
fn orders<S: Sort>() -> Vec<Order<S>> {
    Order::<S>::words().map(|word| word.parse().unwrap()).collect()
}

/// All pages of a list. `page` returns the page at a cursor, and the next cursor.
async fn walked<T>(
    mut page: impl AsyncFnMut(Option<Cursor>) -> (Vec<T>, Option<Cursor>),
) -> Vec<T> {
    let (mut all, mut place, mut pages) = (Vec::new(), None, 0);
    loop {
        let (rows, next) = page(place).await;
        assert!(rows.len() <= PAGE_SIZE && pages < 1_000, "pages are bounded, and end");
        all.extend(rows);
        (place, pages) = (next, pages + 1);
        if place.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn nodes_are_paged_in_every_order() {
    let house = House::new().await;
    // Only commits move nodes to other deployments. This test only concerns the list, so it inserts
    // the nodes without the guard.
    let sql = "ALTER TABLE node DISABLE TRIGGER USER; INSERT INTO node (fqdn, deployment_id, transport, alive, available) \
               SELECT 'x' || n || '.rack.example.com', d.id, 'ssh', n % 2 = 0, n % 3 > 0 FROM generate_series(1, 130) n \
               JOIN (SELECT id, row_number() OVER (ORDER BY name) AS place FROM deployment) d ON d.place = 1 + n % 3; \
               ALTER TABLE node ENABLE TRIGGER USER";
    sqlx::raw_sql(sql).execute(house.database.owner()).await.unwrap();
    let how = |node: &NodeSummary| if !node.alive { 0 } else { 1 + i32::from(node.available) };
    for order in orders::<NodeSort>() {
        let all = walked(async |after| {
            let page = house
                .control
                .find_nodes(
                    &house.ada,
                    &NodesWanted { sort: order, after, ..NodesWanted::default() },
                )
                .await;
            let page = page.unwrap();
            (page.nodes, page.next)
        })
        .await;
        assert_eq!(all.len(), 134, "{order}");
        let key = |node: &NodeSummary| match order.by {
            NodeSort::Name => (0, String::new(), node.fqdn.clone()),
            NodeSort::State => (how(node), String::new(), node.fqdn.clone()),
            NodeSort::Deployment => (0, node.deployment.to_string(), node.fqdn.clone()),
        };
        let mut sorted = all.clone();
        sorted.sort_by_key(key);
        if order.descending {
            sorted.reverse();
        }
        let names =
            |nodes: &[NodeSummary]| nodes.iter().map(|node| node.fqdn.clone()).collect::<Vec<_>>();
        assert_eq!(names(&all), names(&sorted), "{order}");
    }
    let first = house.control.find_nodes(&house.ada, &NodesWanted::default()).await.unwrap();
    let (sort, after) = (Order::ascending(NodeSort::State), first.next);
    let other = house
        .control
        .find_nodes(&house.ada, &NodesWanted { sort, after, ..NodesWanted::default() })
        .await;
    let refused = other.unwrap_err();
    assert_eq!(refused.status, 400);
    assert!(refused.detail.contains("for the sort order state"), "{refused:?}");
}

/// Deployments below *system*, some five levels deep, some with a common name prefix.
async fn with_deployments(house: &House, count: u128) {
    let system = house.id("system").await;
    let name = |n: u128| {
        if n.is_multiple_of(7) {
            format!("d{:02}-x", n % 20)
        } else {
            format!("d{:02}", n * 37 % 100)
        }
    };
    let id = |n: u128| DeploymentId(Uuid::from_u128(0xd000 + n));
    let create = |n: u128| {
        Edit::CreateDeployment(edit::CreateDeployment {
            id: id(n),
            phantom: NodeId(Uuid::from_u128(0xf000 + n)),
            name: DeploymentName::parse(&name(n)).unwrap(),
            parent: if n.is_multiple_of(5) { system } else { id(n - 1) },
        })
    };
    let review = house.submit(&house.ada, "system", (0..count).map(create).collect()).await;
    house.approve(&house.bo, review).await;
    house.commit(&house.ada, review).await.unwrap();
}

#[tokio::test]
async fn deployments_are_paged_in_every_order() {
    let house = House::new().await;
    with_deployments(&house, 60).await;
    for order in orders::<DeploymentSort>() {
        let all = walked(async |after| {
            let wanted = DeploymentsWanted { sort: order, after, ..DeploymentsWanted::default() };
            let page = house.control.find_deployments(&house.ada, &wanted).await.unwrap();
            assert!(page.deployments.len() <= PAGE_SIZE, "{order}");
            (page.deployments, page.next)
        })
        .await;
        let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((all.len(), names.len()), (63, 63), "{order}: each once");
        let key = |one: &DeploymentSummary| match order.by {
            DeploymentSort::Nodes => (one.nodes, one.name.to_string()),
            DeploymentSort::Errors => (one.steps.error, one.name.to_string()),
            DeploymentSort::Blueprint => (one.blueprint.0, one.name.to_string()),
            DeploymentSort::Name | DeploymentSort::Tree => (0, one.name.to_string()),
        };
        let mut sorted: Vec<_> = all.iter().map(key).collect();
        sorted.sort();
        if order.descending {
            sorted.reverse();
        }
        if order.by != DeploymentSort::Tree {
            assert_eq!(all.iter().map(key).collect::<Vec<_>>(), sorted, "{order}");
        }
    }
    let first =
        house.control.find_deployments(&house.ada, &DeploymentsWanted::default()).await.unwrap();
    let after = first.next.clone();
    let rest = DeploymentsWanted { after: first.next, ..DeploymentsWanted::default() };
    let rest = house.control.find_deployments(&house.ada, &rest).await.unwrap();
    let tree: Vec<DeploymentSummary> =
        first.deployments.into_iter().chain(rest.deployments).collect();
    let mut above: Vec<&str> = Vec::new();
    let mut last: BTreeMap<Vec<&str>, &str> = BTreeMap::new();
    for one in &tree {
        let depth = usize::try_from(one.depth).unwrap();
        assert!(depth <= above.len(), "{} stands directly below what is above it", one.name);
        above.truncate(depth);
        if let Some(before) = last.insert(above.clone(), one.name.as_str()) {
            assert!(before < one.name.as_str(), "siblings by name");
        }
        above.push(one.name.as_str());
    }
    let odd = DeploymentsWanted {
        sort: Order::ascending(DeploymentSort::Nodes),
        after,
        ..DeploymentsWanted::default()
    };
    assert_eq!(house.control.find_deployments(&house.ada, &odd).await.unwrap_err().status, 400);
    let gone = DeploymentsWanted {
        after: Some(Cursor::from("system d zz".to_owned())),
        ..DeploymentsWanted::default()
    };
    let behind = house.control.find_deployments(&house.ada, &gone).await.unwrap();
    assert_eq!(
        behind.deployments[0].name.as_str(),
        "d00-x",
        "behind one that is not there any more"
    );
}

#[tokio::test]
async fn runs_are_paged_in_every_order() {
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    let sql = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, state, outcome, \
                 queued_at, started_at, ended_at, lease_until) \
               SELECT s.id, s.node_id, s.concurrency_group_id, s.generation, 1, 1, sha256(''), false, 'ended', \
                 (ARRAY['succeeded', 'failed', 'lost'])[1 + n % 3], now(), \
                 CASE WHEN n % 7 > 0 THEN now() END, now() + make_interval(secs => n % 5), now() \
               FROM (SELECT * FROM step ORDER BY id LIMIT 1) s, generate_series(1, 120) n";
    sqlx::query(sql).execute(house.database.owner()).await.unwrap();
    let took = |run: &RunSummary| run.started.zip(run.ended).map_or(-1, |(from, to)| to.0 - from.0);
    for order in orders::<RunSort>() {
        let all = walked(async |before| {
            let wanted = RunsWanted { sort: order, before, ..RunsWanted::default() };
            let page = house.control.find_runs(&house.ada, &wanted).await.unwrap();
            (page.runs, page.next)
        })
        .await;
        assert!(all.len() >= 120, "{order}");
        let key = |run: &RunSummary| match order.by {
            RunSort::Queued => (0, String::new(), run.id.0),
            RunSort::State => (0, serde_json::to_string(&run.state).unwrap(), run.id.0),
            RunSort::Durations => (took(run), String::new(), run.id.0),
        };
        let mut sorted = all.clone();
        sorted.sort_by_key(key);
        if order.descending {
            sorted.reverse();
        }
        let ids = |runs: &[RunSummary]| runs.iter().map(|run| run.id.0).collect::<Vec<_>>();
        assert_eq!(ids(&all), ids(&sorted), "{order}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_are_paged_in_every_order() {
    let house = House::new().await;
    let id = one(&house, 1).await;
    more_like(&house, id, 120).await;
    for (order, state) in orders::<ReviewSort>()
        .into_iter()
        .flat_map(|order| [(order, ReviewStateFilter::Open), (order, ReviewStateFilter::Any)])
    {
        let all = walked(async |before| {
            let wanted = ReviewsWanted { sort: order, state, before, ..ReviewsWanted::default() };
            let page = house.control.reviews(&house.bo, &wanted).await.unwrap();
            (page.reviews, page.next)
        })
        .await;
        let all: Vec<(String, i64)> =
            all.into_iter().map(|review| (review.title, review.review.0)).collect();
        let once: BTreeSet<i64> = all.iter().map(|(_, id)| *id).collect();
        assert_eq!((all.len(), once.len()), (121, 121), "{order}");
        // The expected order uses the database's collation.
        let way = if order.descending { "DESC" } else { "ASC" };
        let by = if order.by == ReviewSort::Title {
            format!("title {way}, id {way}")
        } else {
            format!("id {way}")
        };
        let sql = format!("SELECT title, id FROM review ORDER BY {by}");
        let sorted: Vec<(String, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .fetch_all(house.database.owner())
            .await
            .unwrap();
        assert_eq!(all, sorted, "{order}");
    }
}

#[tokio::test]
async fn roles_have_list_details_and_graph() {
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    let list = async |wanted: RolesWanted| house.control.roles(&house.cy, &wanted).await.unwrap();
    let names = async |wanted| {
        list(wanted).await.roles.into_iter().map(|role| role.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        names(RolesWanted::default()).await,
        ["app", "base", "door", "lonely", "runtime", "still", "wipe"]
    );
    let sort = "-bound".parse().unwrap();
    let bound = list(RolesWanted { sort, ..RolesWanted::default() }).await;
    assert_eq!((bound.roles[0].noderoles, bound.count), (1, 7), "{bound:?}");
    assert_eq!(
        names(RolesWanted { filter: "ON".into(), ..RolesWanted::default() }).await,
        ["lonely"]
    );
    let of = RolesWanted { barclamp: "hosue".into(), ..RolesWanted::default() };
    let refused = house.control.roles(&house.cy, &of).await.unwrap_err();
    assert!(refused.status == 404 && refused.detail.contains("house"), "{refused:?}");

    let app = house.control.role(&house.cy, "app", &RoleWanted::default()).await.unwrap();
    assert_eq!(app.requires[0].by, [role("runtime")]);
    let web = app.bound.iter().find(|used| used.deployment.as_str() == "web").unwrap();
    assert_eq!((web.noderoles, app.bound.len(), app.versions.len()), (1, 2, 1));
    let wipe = house.control.role(&house.cy, "wipe", &RoleWanted::default()).await.unwrap();
    assert_eq!(wipe.flags, ["destructive"]);
    assert_eq!(
        house.control.role(&house.cy, "apq", &RoleWanted::default()).await.unwrap_err().status,
        404
    );

    let around = RoleGraphWanted { role: "runtime".into(), ..RoleGraphWanted::default() };
    let graph = house.control.role_graph(&house.cy, &around).await.unwrap();
    let said: Vec<(&str, &str, RoleTie)> = graph
        .edges
        .iter()
        .map(|edge| {
            (graph.roles[edge.from].name.as_str(), graph.roles[edge.to].name.as_str(), edge.tie)
        })
        .collect();
    assert_eq!(graph.count, 3);
    assert_eq!(said.len(), 2);
    assert!(
        said.contains(&("base", "runtime", RoleTie::Requires))
            && said.contains(&("runtime", "app", RoleTie::Requires))
    );
    let all = house.control.role_graph(&house.cy, &RoleGraphWanted::default()).await.unwrap();
    assert_eq!((all.count, all.roles.len()), (7, 7));
}

#[tokio::test]
async fn import_records_are_stored() {
    let house = House::new().await;
    let import = async |text: &str| {
        let files = [("house/house.yml".to_owned(), text.as_bytes().to_vec())].into();
        house.control.import_barclamps(Some(&house.ada), &files).await.unwrap()
    };
    let text: String = crate::house::BARCLAMP.replace("version: '1'", "version: '2'");
    let text: String = text
        .lines()
        .filter(|line| !line.contains("name: still"))
        .map(|line| format!("{line}\n"))
        .collect();
    let told = import(&text).await;
    import(&text).await;
    let list = async |wanted: ImportsWanted| {
        house.control.imports(&house.cy, &wanted).await.unwrap().imports
    };
    let all = list(ImportsWanted::default()).await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(!all[0].report.barclamps[0].new, "the same once more");
    assert_eq!(
        (all[1].by.as_deref(), &all[1].report.disappeared),
        (Some("ada"), &told.disappeared)
    );
    assert_eq!(all[1].report.findings.as_ref(), Some(&told.findings));
    assert_eq!(all[2].by, None, "what Gantry ships");
    let oldest =
        list(ImportsWanted { sort: "imported".parse().unwrap(), ..ImportsWanted::default() }).await;
    assert_eq!(
        oldest.iter().map(|import| import.id).rev().collect::<Vec<_>>(),
        all.iter().map(|import| import.id).collect::<Vec<_>>()
    );
    assert_eq!(
        list(ImportsWanted { barclamp: "hous".into(), ..ImportsWanted::default() }).await,
        []
    );
    assert_eq!(
        list(ImportsWanted { barclamp: "house".into(), ..ImportsWanted::default() }).await.len(),
        3
    );
    // A restart imports nothing new, so it adds no entry.
    let files = [("house/house.yml".to_owned(), crate::house::BARCLAMP.as_bytes().to_vec())].into();
    house.control.import_barclamps(None, &files).await.unwrap();
    assert_eq!(list(ImportsWanted::default()).await.len(), 3);
}

#[tokio::test]
async fn runs_are_found_by_worker_name_and_id() {
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    let worker: Uuid = sqlx::query_scalar(
        "INSERT INTO worker (name, lease_until) VALUES ('w-one', now()), ('w-two', now()) RETURNING id",
    )
    .fetch_one(house.database.owner())
    .await
    .unwrap();
    let sql = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, state, outcome, \
                 queued_at, ended_at, lease_until, worker_id) \
               SELECT s.id, s.node_id, s.concurrency_group_id, s.generation, 1, 1, sha256(''), false, 'ended', 'succeeded', now(), now(), now(), w.id \
               FROM (SELECT * FROM step ORDER BY id LIMIT 1) s, worker w, generate_series(1, 60)";
    sqlx::query(sql).execute(house.database.owner()).await.unwrap();
    for worker in ["w-one".to_owned(), worker.to_string()] {
        let all = walked(async |before| {
            let wanted = RunsWanted { worker: worker.clone(), before, ..RunsWanted::default() };
            let page = house.control.find_runs(&house.ada, &wanted).await.unwrap();
            (page.runs, page.next)
        })
        .await;
        assert_eq!(all.len(), 60, "{worker}");
        assert!(all.iter().all(|run| run.worker.as_deref() == Some("w-one")), "{worker}");
    }
    let none = RunsWanted { worker: "w-three".into(), ..RunsWanted::default() };
    let none = house.control.find_runs(&house.ada, &none).await.unwrap_err();
    assert!(none.status == 404 && none.detail.contains("w-three"), "{none:?}");
}
