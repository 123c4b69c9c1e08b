//! Lists stay fast and bounded with very many proposals, and agree with the pages of the single
//! items.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::catalog::{ImportsQuery, RoleEdgeReason, RoleGraphQuery, RoleQuery, RolesQuery};
use api::deployments::DeploymentSummary;
use api::deployments::{DeploymentSort, DeploymentsQuery};
use api::listing::PAGE_SIZE;
use api::listing::{Cursor, Order, Sort};
use api::nodes::NodeSummary;
use api::nodes::{NodeSort, NodesQuery};
use api::proposals::ProposalsQuery;
use api::reviews::ReviewSort;
use api::reviews::ReviewState;
use api::reviews::{ReviewCount, ReviewFilter, ReviewStateFilter, ReviewsQuery};
use api::runs::RunSummary;
use api::runs::{RunSort, RunsQuery};
use api::workers::WorkerSort;
use api::workers::WorkersQuery;
use control::people::Actor;
use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use engine::ids::{DeploymentId, DeploymentName, NodeId, ReviewId};
use engine::plan::{Edit, edit};
use uuid::Uuid;

use crate::installation::{Installation, role};
use crate::lint::jig;

/// Copies of a submission, each in an open proposal of its own, like many automatic proposals.
async fn more_like(installation: &Installation, id: ReviewId, n: i64) {
    let mut transaction = installation.database.owner().begin().await.unwrap();
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
async fn one(installation: &Installation, n: usize) -> ReviewId {
    let edit = installation.bind("web", n, "app").await;
    installation.submit(&installation.ada, "web", vec![edit]).await
}

async fn badge(installation: &Installation, by: &Actor) -> ReviewCount {
    installation.control.frame(by).await.unwrap().pending_reviews
}

/// The badge after all impact calculations have finished.
async fn settled(installation: &Installation, by: &Actor) -> ReviewCount {
    for _ in 0..60 {
        let waiting = badge(installation, by).await;
        if !waiting.more || waiting.count == 100 {
            return waiting;
        }
    }
    panic!("the count was not final after all attempts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn badge_counts_up_to_its_limit() {
    let installation = Installation::new().await;
    installation.bound("web", 4, "app").await;
    let id = one(&installation, 1).await;
    more_like(&installation, id, 99).await;
    let exactly = |count| ReviewCount { count, more: false };
    assert_eq!(settled(&installation, &installation.bo).await, exactly(100));
    assert_eq!(
        settled(&installation, &installation.ada).await,
        exactly(0),
        "an author's own reviews must not be counted"
    );
    installation.approve(&installation.bo, id).await;
    assert_eq!(
        settled(&installation, &installation.bo).await,
        exactly(100),
        "99 reviews to review and one to commit must be counted"
    );
    assert_eq!(settled(&installation, &installation.ada).await, exactly(1));
    installation
        .control
        .give_verdict(&installation.cy, id, VerdictKind::Reject, "no".into())
        .await
        .unwrap();
    assert_eq!(settled(&installation, &installation.bo).await, exactly(99));
    more_like(&installation, id, 900).await;
    assert_eq!(
        settled(&installation, &installation.bo).await,
        ReviewCount { count: 100, more: true }
    );
    assert_eq!(settled(&installation, &installation.ada).await, exactly(0));

    // Cached results are reused, and verdicts alone require no new plan.
    let computed = installation.control.computed();
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(
            badge(&installation, &installation.bo).await,
            ReviewCount { count: 100, more: true }
        );
    }
    let each = begun.elapsed() / 5;
    assert!(each < Duration::from_secs(1), "a badge over 1,000 reviews took {each:?}");
    assert_eq!(installation.control.computed(), computed);
    println!("a badge over 1,000 open reviews: {each:?}");

    // With its jig off, no approval makes any of them ready.
    jig(&installation, false).await;
    let listed =
        installation.control.reviews(&installation.bo, &ReviewsQuery::default()).await.unwrap();
    assert_eq!(
        listed.reviews.iter().map(|r| r.state).collect::<BTreeSet<_>>(),
        BTreeSet::from([ReviewState::Invalid])
    );
    assert_eq!(
        settled(&installation, &installation.bo).await,
        exactly(0),
        "the badge is empty after all reviews were computed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_requests_share_one_plan() {
    let installation = Installation::new().await;
    let id = one(&installation, 1).await;
    more_like(&installation, id, 39).await;
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..24 {
        let control = installation.control.clone();
        let by = [&installation.bo, &installation.cy][n % 2].clone();
        requests.spawn(async move {
            match n % 3 {
                0 => drop(control.review(&by, id).await.unwrap()),
                1 => drop(control.reviews(&by, &ReviewsQuery::default()).await.unwrap()),
                _ => drop(control.frame(&by).await.unwrap()),
            }
        });
    }
    requests.join_all().await;
    assert_eq!(
        settled(&installation, &installation.bo).await,
        ReviewCount { count: 40, more: false }
    );
    // The review's page needs the complete plan, so the result that a list has cached may not be
    // enough.
    let computed = installation.control.computed();
    assert!((40..=41).contains(&computed), "planned {computed} times for 40 reviews");
}

#[tokio::test]
async fn dropped_request_does_not_interrupt_planning() {
    let installation = Installation::new().await;
    let id = one(&installation, 1).await;
    more_like(&installation, id, 9).await;
    // Each of these requests is dropped while it runs.
    for _ in 0..5 {
        let _ = tokio::time::timeout(
            Duration::from_millis(1),
            installation.control.frame(&installation.bo),
        )
        .await;
    }
    assert_eq!(
        settled(&installation, &installation.bo).await,
        ReviewCount { count: 10, more: false }
    );
    assert!(installation.control.computed() <= 10, "{}", installation.control.computed());
}

async fn ids(installation: &Installation, by: &Actor, query: ReviewsQuery) -> Vec<ReviewId> {
    let page = installation.control.reviews(by, &query).await.unwrap();
    page.reviews.into_iter().map(|review| review.review).collect()
}

#[tokio::test]
async fn reviews_are_filtered_by_author_and_state() {
    let installation = Installation::new().await;
    installation.bound("web", 4, "app").await;
    let (web, edge) = (one(&installation, 1).await, installation.bind("edge", 2, "app").await);
    let edge = installation.submit(&installation.bo, "edge", vec![edge]).await;
    let node = installation.node(4).await;
    let on_node = installation.control.propose_on_node(&installation.cy, node).await.unwrap();
    let unbind = Edit::Unbind(edit::Unbind {
        node,
        noderole: engine::cluster::NoderoleKey::first(role("app")),
        with_dependents: false,
    });
    let version =
        installation.control.edit(&installation.cy, on_node, 0, vec![unbind]).await.unwrap();
    let on_node = installation
        .control
        .submit(&installation.cy, on_node, version, "Empty 100% of n4".into())
        .await
        .unwrap();
    let first = ReviewId(1);

    let all = ReviewsQuery::default();
    assert_eq!(
        ids(&installation, &installation.ada, all.clone()).await,
        [on_node, edge, web],
        "the list includes the review on a node"
    );
    let any = ReviewsQuery { state: ReviewStateFilter::Any, ..all.clone() };
    assert_eq!(
        ids(&installation, &installation.ada, any.clone()).await,
        [on_node, edge, web, first]
    );
    assert_eq!(
        ids(
            &installation,
            &installation.ada,
            ReviewsQuery { state: ReviewStateFilter::Committed, ..all.clone() }
        )
        .await,
        [first]
    );
    assert_eq!(
        ids(
            &installation,
            &installation.ada,
            ReviewsQuery { state: ReviewStateFilter::Discarded, ..all.clone() }
        )
        .await,
        []
    );

    let mine = ReviewsQuery { involvement: ReviewFilter::Mine, ..any.clone() };
    assert_eq!(ids(&installation, &installation.ada, mine.clone()).await, [web, first]);
    assert_eq!(ids(&installation, &installation.bo, mine).await, [edge]);
    let for_me = ReviewsQuery { involvement: ReviewFilter::ForMe, ..all.clone() };
    assert_eq!(ids(&installation, &installation.bo, for_me.clone()).await, [on_node, web]);
    installation.approve(&installation.bo, web).await;
    assert_eq!(
        ids(&installation, &installation.cy, for_me.clone()).await,
        [edge, web],
        "an approved review that can be committed is listed"
    );
    installation
        .control
        .open_thread(&installation.bo, web, Anchor::Whole, "Why?".into())
        .await
        .unwrap();
    assert_eq!(ids(&installation, &installation.cy, for_me.clone()).await, [edge]);
    let shown = installation.listed(&installation.cy, ReviewStateFilter::Open).await;
    assert_eq!(
        shown.iter().map(|review| review.state).collect::<Vec<_>>(),
        [ReviewState::Waiting, ReviewState::Waiting, ReviewState::ThreadsOpen]
    );
    for review in shown {
        let own = installation.control.review(&installation.cy, review.review).await.unwrap();
        assert_eq!(
            (own.state, own.gate.approvals, own.gate.needed),
            (review.state, review.approvals.valid, review.approvals.required)
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

    let of = |deployment: &str| ReviewsQuery { deployment: deployment.into(), ..any.clone() };
    assert_eq!(ids(&installation, &installation.ada, of("edge")).await, [edge]);
    assert_eq!(
        ids(&installation, &installation.ada, of("web")).await,
        [on_node, web, first],
        "a review on a node is listed under its deployment at that time"
    );
    let unknown =
        installation.control.reviews(&installation.ada, &of("nowhere")).await.unwrap_err();
    assert_eq!(unknown.status, 404);
    let titled = |text: &str| ReviewsQuery { filter: text.into(), ..any.clone() };
    assert_eq!(ids(&installation, &installation.ada, titled(" EMPTY 100% ")).await, [on_node]);
    for pattern in ["%", "_", "\\"] {
        let expected = if pattern == "%" { vec![on_node] } else { Vec::new() };
        assert_eq!(
            ids(&installation, &installation.ada, titled(pattern)).await,
            expected,
            "{pattern} is matched literally"
        );
    }
    let long = installation
        .control
        .reviews(&installation.ada, &titled(&"x".repeat(201)))
        .await
        .unwrap_err();
    assert_eq!(long.status, 400);

    let open = installation.board("web").await.proposal.unwrap();
    installation.control.discard(&installation.ada, open.id, open.version).await.unwrap();
    assert_eq!(
        ids(
            &installation,
            &installation.ada,
            ReviewsQuery { state: ReviewStateFilter::Discarded, ..all.clone() }
        )
        .await,
        [web]
    );
    assert_eq!(ids(&installation, &installation.ada, all).await, [on_node, edge]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_reviews_are_paged() {
    let installation = Installation::new().await;
    let id = one(&installation, 1).await;
    more_like(&installation, id, 999).await;
    for state in [ReviewStateFilter::Open, ReviewStateFilter::Any] {
        let all: Vec<ReviewId> =
            installation.listed(&installation.bo, state).await.iter().map(|r| r.review).collect();
        assert_eq!((all.len(), all.last()), (1_000, Some(&id)));
        assert!(all.is_sorted_by(|a, b| a > b), "each review is listed once, newest first");
    }
    let searched = ReviewsQuery { filter: "No. 99".into(), ..ReviewsQuery::default() };
    assert_eq!(
        installation.control.reviews(&installation.bo, &searched).await.unwrap().reviews.len(),
        11
    );
    // Half of them now wait for another person.
    let sql = "INSERT INTO verdict (review_id, person_id, kind, reason) SELECT id, $1, 'request_changes', 'no' FROM review \
               WHERE id % 2 = 0";
    sqlx::query(sql)
        .bind(installation.cy.person.0)
        .execute(installation.database.owner())
        .await
        .unwrap();
    let mut query = ReviewsQuery { involvement: ReviewFilter::ForMe, ..ReviewsQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = installation.control.reviews(&installation.bo, &query).await.unwrap();
        assert!(page.reviews.len() <= PAGE_SIZE);
        found.extend(page.reviews.into_iter().map(|review| review.review.0));
        match page.next {
            None => break,
            next => query.before = next,
        }
    }
    assert_eq!(found.len(), 500);
    assert!(found.iter().all(|id| id % 2 == 1) && found.is_sorted_by(|a, b| a > b));
}

#[tokio::test]
async fn open_proposals_are_counted_and_paged() {
    let installation = Installation::new().await;
    let (bind, other) =
        (installation.bind("web", 1, "app").await, installation.bind("web", 2, "app").await);
    let (web, version) =
        installation.propose_each(&installation.ada, "web", vec![bind, other]).await;
    installation.control.undo(&installation.bo, web, version).await.unwrap();
    let node = installation.node(3).await;
    let on_node = installation.control.propose_on_node(&installation.cy, node).await.unwrap();
    let page = |by, query: ProposalsQuery| {
        let installation = &installation;
        async move { installation.control.proposals(by, &query).await.unwrap() }
    };
    let all = page(&installation.bo, ProposalsQuery::default()).await;
    assert_eq!(
        all.proposals
            .iter()
            .map(|p| (p.id, p.edits, p.authors.join(" "), p.review))
            .collect::<Vec<_>>(),
        [(on_node, 0, String::new(), None), (web, 1, "ada".into(), None)]
    );
    assert_eq!(all.proposals[0].scope.node.as_ref().unwrap().id, node);
    let mine =
        page(&installation.cy, ProposalsQuery { mine: true, ..ProposalsQuery::default() }).await;
    assert_eq!(mine.proposals.iter().map(|p| p.id).collect::<Vec<_>>(), [on_node]);
    let drafts = page(
        &installation.cy,
        ProposalsQuery { deployment: "web".into(), ..ProposalsQuery::default() },
    )
    .await;
    assert_eq!(drafts.proposals.iter().map(|p| p.id).collect::<Vec<_>>(), [web]);

    let id = installation
        .control
        .submit(&installation.ada, web, version + 1, "one".into())
        .await
        .unwrap();
    let drafts = ProposalsQuery { drafts: true, ..ProposalsQuery::default() };
    let left = page(&installation.bo, drafts.clone()).await;
    assert_eq!(
        left.proposals.iter().map(|p| p.id).collect::<Vec<_>>(),
        [on_node],
        "the other proposal was submitted unchanged"
    );
    more_like(&installation, id, 120).await;
    let (mut found, mut query) = (Vec::new(), ProposalsQuery::default());
    loop {
        let next = page(&installation.bo, query.clone()).await;
        assert!(next.proposals.len() <= PAGE_SIZE);
        found.extend(next.proposals.into_iter().map(|p| p.id));
        query.before = next.next;
        if query.before.is_none() {
            break;
        }
    }
    assert_eq!(found.len(), 122);
    assert!(found.is_sorted_by(|a, b| a > b));
}

#[tokio::test]
async fn open_proposals_are_sorted_and_filtered_by_scope() {
    let installation = Installation::new().await;
    let bind = installation.bind("web", 1, "app").await;
    let (web, _) = installation.propose(&installation.ada, "web", vec![bind]).await;
    let system = installation
        .control
        .propose(&installation.ada, installation.id("system").await)
        .await
        .unwrap();
    let page = |text: &str, sort: &str| {
        let query = ProposalsQuery {
            filter: text.into(),
            sort: sort.parse().unwrap(),
            ..ProposalsQuery::default()
        };
        let installation = &installation;
        async move {
            let page = installation.control.proposals(&installation.bo, &query).await.unwrap();
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
    let installation = Installation::new().await;
    let sql = "INSERT INTO worker (name, lease_until, started_at) \
               SELECT 'w' || n, now() - make_interval(secs => n % 7), now() - make_interval(secs => n / 3) \
               FROM generate_series(1, 130) n";
    sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    for sort in Order::<WorkerSort>::names() {
        let mut query = WorkersQuery { sort: sort.parse().unwrap(), ..WorkersQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = installation.control.workers(&installation.ada, &query).await.unwrap();
            assert!(!page.workers.is_empty() && page.workers.len() <= PAGE_SIZE, "{sort}");
            // The last worker of the page reports before the next page is requested. If the list is
            // sorted by that time, the worker may appear twice.
            if sort != "heartbeat" {
                let last = page.workers.last().unwrap();
                let sql = "UPDATE worker SET lease_until = now() + interval '1 hour' WHERE id = $1";
                sqlx::query(sql)
                    .bind(last.id)
                    .execute(installation.database.owner())
                    .await
                    .unwrap();
            }
            found.extend(page.workers.into_iter().map(|worker| worker.name));
            query.before = page.next;
            if query.before.is_none() {
                break;
            }
        }
        let each: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), each.len()), (130, 130), "{sort}");
    }
    let first =
        installation.control.workers(&installation.ada, &WorkersQuery::default()).await.unwrap();
    let last = first.workers.last().unwrap().id;
    sqlx::query("DELETE FROM worker WHERE id = $1")
        .bind(last)
        .execute(installation.database.owner())
        .await
        .unwrap();
    let query = WorkersQuery { before: first.next, ..WorkersQuery::default() };
    let second = installation.control.workers(&installation.ada, &query).await.unwrap();
    assert_eq!(second.workers.len(), PAGE_SIZE, "a cursor remains valid if its row is deleted");
    let odd = WorkersQuery { before: Some(last.to_string().into()), ..WorkersQuery::default() };
    assert_eq!(
        installation.control.workers(&installation.ada, &odd).await.unwrap_err().status,
        400
    );
}

#[tokio::test]
async fn draft_list_is_notified_of_changes() {
    let installation = Installation::new().await;
    let reported = async || -> i64 {
        let sql = "SELECT count(*) FROM event WHERE topic = 'reviews'";
        sqlx::query_scalar(sql).fetch_one(installation.database.owner()).await.unwrap()
    };
    let before = reported().await;
    let proposal = installation
        .control
        .propose(&installation.ada, installation.id("web").await)
        .await
        .unwrap();
    assert_eq!(reported().await, before + 1);
    let edit = installation.bind("web", 1, "app").await;
    installation.control.edit(&installation.ada, proposal, 0, vec![edit]).await.unwrap();
    assert_eq!(reported().await, before + 2);
}

/// All sort orders of a list.
fn orders<S: Sort>() -> Vec<Order<S>> {
    Order::<S>::names().map(|word| word.parse().unwrap()).collect()
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
    let installation = Installation::new().await;
    // Only commits move nodes to other deployments. This test only concerns the list, so it inserts
    // the nodes without the guard.
    let sql = "ALTER TABLE node DISABLE TRIGGER USER; INSERT INTO node (fqdn, deployment_id, transport, alive, available) \
               SELECT 'x' || n || '.rack.example.com', d.id, 'ssh', n % 2 = 0, n % 3 > 0 FROM generate_series(1, 130) n \
               JOIN (SELECT id, row_number() OVER (ORDER BY name) AS place FROM deployment) d ON d.place = 1 + n % 3; \
               ALTER TABLE node ENABLE TRIGGER USER";
    sqlx::raw_sql(sql).execute(installation.database.owner()).await.unwrap();
    let how = |node: &NodeSummary| if !node.alive { 0 } else { 1 + i32::from(node.available) };
    for order in orders::<NodeSort>() {
        let all = walked(async |after| {
            let page = installation
                .control
                .find_nodes(
                    &installation.ada,
                    &NodesQuery { sort: order, after, ..NodesQuery::default() },
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
    let first =
        installation.control.find_nodes(&installation.ada, &NodesQuery::default()).await.unwrap();
    let (sort, after) = (Order::ascending(NodeSort::State), first.next);
    let other = installation
        .control
        .find_nodes(&installation.ada, &NodesQuery { sort, after, ..NodesQuery::default() })
        .await;
    let refused = other.unwrap_err();
    assert_eq!(refused.status, 400);
    assert!(refused.detail.contains("for the sort order state"), "{refused:?}");
}

/// Deployments below *system*, some five levels deep, some with a common name prefix.
async fn with_deployments(installation: &Installation, count: u128) {
    let system = installation.id("system").await;
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
    let review =
        installation.submit(&installation.ada, "system", (0..count).map(create).collect()).await;
    installation.approve(&installation.bo, review).await;
    installation.commit(&installation.ada, review).await.unwrap();
}

#[tokio::test]
async fn deployments_are_paged_in_every_order() {
    let installation = Installation::new().await;
    with_deployments(&installation, 60).await;
    for order in orders::<DeploymentSort>() {
        let all = walked(async |after| {
            let query = DeploymentsQuery { sort: order, after, ..DeploymentsQuery::default() };
            let page =
                installation.control.find_deployments(&installation.ada, &query).await.unwrap();
            assert!(page.deployments.len() <= PAGE_SIZE, "{order}");
            (page.deployments, page.next)
        })
        .await;
        let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((all.len(), names.len()), (63, 63), "{order}: each deployment is listed once");
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
    let first = installation
        .control
        .find_deployments(&installation.ada, &DeploymentsQuery::default())
        .await
        .unwrap();
    let after = first.next.clone();
    let rest = DeploymentsQuery { after: first.next, ..DeploymentsQuery::default() };
    let rest = installation.control.find_deployments(&installation.ada, &rest).await.unwrap();
    let tree: Vec<DeploymentSummary> =
        first.deployments.into_iter().chain(rest.deployments).collect();
    let mut above: Vec<&str> = Vec::new();
    let mut last: BTreeMap<Vec<&str>, &str> = BTreeMap::new();
    for one in &tree {
        let depth = usize::try_from(one.depth).unwrap();
        assert!(depth <= above.len(), "{} must follow its parent", one.name);
        above.truncate(depth);
        if let Some(before) = last.insert(above.clone(), one.name.as_str()) {
            assert!(before < one.name.as_str(), "siblings must be sorted by name");
        }
        above.push(one.name.as_str());
    }
    let odd = DeploymentsQuery {
        sort: Order::ascending(DeploymentSort::Nodes),
        after,
        ..DeploymentsQuery::default()
    };
    assert_eq!(
        installation.control.find_deployments(&installation.ada, &odd).await.unwrap_err().status,
        400
    );
    let gone = DeploymentsQuery {
        after: Some(Cursor::from("system d zz".to_owned())),
        ..DeploymentsQuery::default()
    };
    let behind = installation.control.find_deployments(&installation.ada, &gone).await.unwrap();
    assert_eq!(
        behind.deployments[0].name.as_str(),
        "d00-x",
        "the list continues after a deployment that was removed"
    );
}

#[tokio::test]
async fn runs_are_paged_in_every_order() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let sql = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, state, outcome, \
                 queued_at, started_at, ended_at, lease_until) \
               SELECT s.id, s.node_id, s.concurrency_group_id, s.generation, 1, 1, sha256(''), false, 'ended', \
                 (ARRAY['succeeded', 'failed', 'lost'])[1 + n % 3], now(), \
                 CASE WHEN n % 7 > 0 THEN now() END, now() + make_interval(secs => n % 5), now() \
               FROM (SELECT * FROM step ORDER BY id LIMIT 1) s, generate_series(1, 120) n";
    sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    let took = |run: &RunSummary| run.started.zip(run.ended).map_or(-1, |(from, to)| to.0 - from.0);
    for order in orders::<RunSort>() {
        let all = walked(async |before| {
            let query = RunsQuery { sort: order, before, ..RunsQuery::default() };
            let page = installation.control.find_runs(&installation.ada, &query).await.unwrap();
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
    let installation = Installation::new().await;
    let id = one(&installation, 1).await;
    more_like(&installation, id, 120).await;
    for (order, state) in orders::<ReviewSort>()
        .into_iter()
        .flat_map(|order| [(order, ReviewStateFilter::Open), (order, ReviewStateFilter::Any)])
    {
        let all = walked(async |before| {
            let query = ReviewsQuery { sort: order, state, before, ..ReviewsQuery::default() };
            let page = installation.control.reviews(&installation.bo, &query).await.unwrap();
            (page.reviews, page.next)
        })
        .await;
        let all: Vec<(String, i64)> =
            all.into_iter().map(|review| (review.title, review.review.0)).collect();
        let once: BTreeSet<i64> = all.iter().map(|(_, id)| *id).collect();
        assert_eq!((all.len(), once.len()), (121, 121), "{order}");
        // The expected order uses the database's collation.
        let direction = if order.descending { "DESC" } else { "ASC" };
        let by = if order.by == ReviewSort::Title {
            format!("title {direction}, id {direction}")
        } else {
            format!("id {direction}")
        };
        let sql = format!("SELECT title, id FROM review ORDER BY {by}");
        let sorted: Vec<(String, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .fetch_all(installation.database.owner())
            .await
            .unwrap();
        assert_eq!(all, sorted, "{order}");
    }
}

#[tokio::test]
async fn roles_have_list_details_and_graph() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let list = async |query: RolesQuery| {
        installation.control.roles(&installation.cy, &query).await.unwrap()
    };
    let names = async |query| {
        list(query).await.roles.into_iter().map(|role| role.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        names(RolesQuery::default()).await,
        ["app", "base", "door", "lonely", "runtime", "still", "wipe"]
    );
    let sort = "-bound".parse().unwrap();
    let bound = list(RolesQuery { sort, ..RolesQuery::default() }).await;
    assert_eq!((bound.roles[0].noderoles, bound.count), (1, 7), "{bound:?}");
    assert_eq!(
        names(RolesQuery { filter: "ON".into(), ..RolesQuery::default() }).await,
        ["lonely"]
    );
    let of = RolesQuery { barclamp: "stakc".into(), ..RolesQuery::default() };
    let refused = installation.control.roles(&installation.cy, &of).await.unwrap_err();
    assert!(refused.status == 404 && refused.detail.contains("stack"), "{refused:?}");

    let app =
        installation.control.role(&installation.cy, "app", &RoleQuery::default()).await.unwrap();
    assert_eq!(app.requires[0].by, [role("runtime")]);
    let web = app.bound.iter().find(|used| used.deployment.as_str() == "web").unwrap();
    assert_eq!((web.noderoles, app.bound.len(), app.versions.len()), (1, 2, 1));
    let wipe =
        installation.control.role(&installation.cy, "wipe", &RoleQuery::default()).await.unwrap();
    assert_eq!(wipe.flags, ["destructive"]);
    assert_eq!(
        installation
            .control
            .role(&installation.cy, "apq", &RoleQuery::default())
            .await
            .unwrap_err()
            .status,
        404
    );

    let around = RoleGraphQuery { role: "runtime".into(), ..RoleGraphQuery::default() };
    let graph = installation.control.role_graph(&installation.cy, &around).await.unwrap();
    let lines: Vec<(&str, &str, RoleEdgeReason)> = graph
        .edges
        .iter()
        .map(|edge| {
            (graph.roles[edge.from].name.as_str(), graph.roles[edge.to].name.as_str(), edge.reason)
        })
        .collect();
    assert_eq!(graph.count, 3);
    assert_eq!(lines.len(), 2);
    assert!(
        lines.contains(&("base", "runtime", RoleEdgeReason::Requires))
            && lines.contains(&("runtime", "app", RoleEdgeReason::Requires))
    );
    let all = installation
        .control
        .role_graph(&installation.cy, &RoleGraphQuery::default())
        .await
        .unwrap();
    assert_eq!((all.count, all.roles.len()), (7, 7));
}

#[tokio::test]
async fn import_records_are_stored() {
    let installation = Installation::new().await;
    let import = async |text: &str| {
        let files = [("stack/stack.yml".to_owned(), text.as_bytes().to_vec())].into();
        installation.control.import_barclamps(Some(&installation.ada), &files).await.unwrap()
    };
    let text: String = crate::installation::BARCLAMP.replace("version: '1'", "version: '2'");
    let text: String = text
        .lines()
        .filter(|line| !line.contains("name: still"))
        .map(|line| format!("{line}\n"))
        .collect();
    let reported = import(&text).await;
    import(&text).await;
    let list = async |query: ImportsQuery| {
        installation.control.imports(&installation.cy, &query).await.unwrap().imports
    };
    let all = list(ImportsQuery::default()).await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(!all[0].report.barclamps[0].new, "the same version is not new");
    assert_eq!(
        (all[1].by.as_deref(), &all[1].report.removed_parts),
        (Some("ada"), &reported.removed_parts)
    );
    assert_eq!(all[1].report.findings, reported.findings);
    assert_eq!(all[2].by, None, "shipped barclamps have no importing person");
    let oldest =
        list(ImportsQuery { sort: "imported".parse().unwrap(), ..ImportsQuery::default() }).await;
    assert_eq!(
        oldest.iter().map(|import| import.id).rev().collect::<Vec<_>>(),
        all.iter().map(|import| import.id).collect::<Vec<_>>()
    );
    assert_eq!(list(ImportsQuery { barclamp: "hous".into(), ..ImportsQuery::default() }).await, []);
    assert_eq!(
        list(ImportsQuery { barclamp: "stack".into(), ..ImportsQuery::default() }).await.len(),
        3
    );
    // A restart imports nothing new, so it adds no entry.
    let files =
        [("stack/stack.yml".to_owned(), crate::installation::BARCLAMP.as_bytes().to_vec())].into();
    installation.control.import_barclamps(None, &files).await.unwrap();
    assert_eq!(list(ImportsQuery::default()).await.len(), 3);
}

#[tokio::test]
async fn runs_are_found_by_worker_name_and_id() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let worker: Uuid = sqlx::query_scalar(
        "INSERT INTO worker (name, lease_until) VALUES ('w-one', now()), ('w-two', now()) RETURNING id",
    )
    .fetch_one(installation.database.owner())
    .await
    .unwrap();
    let sql = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, state, outcome, \
                 queued_at, ended_at, lease_until, worker_id) \
               SELECT s.id, s.node_id, s.concurrency_group_id, s.generation, 1, 1, sha256(''), false, 'ended', 'succeeded', now(), now(), now(), w.id \
               FROM (SELECT * FROM step ORDER BY id LIMIT 1) s, worker w, generate_series(1, 60)";
    sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    for worker in ["w-one".to_owned(), worker.to_string()] {
        let all = walked(async |before| {
            let query = RunsQuery { worker: worker.clone(), before, ..RunsQuery::default() };
            let page = installation.control.find_runs(&installation.ada, &query).await.unwrap();
            (page.runs, page.next)
        })
        .await;
        assert_eq!(all.len(), 60, "{worker}");
        assert!(all.iter().all(|run| run.worker.as_deref() == Some("w-one")), "{worker}");
    }
    let none = RunsQuery { worker: "w-three".into(), ..RunsQuery::default() };
    let none = installation.control.find_runs(&installation.ada, &none).await.unwrap_err();
    assert!(none.status == 404 && none.detail.contains("w-three"), "{none:?}");
}
