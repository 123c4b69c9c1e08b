//! The differences of a review, by deployment and by node. Nodes with equal changes share one card.
//! Unchanged objects are only counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::blueprints::RoleValueChange;
use api::catalog::{ContentChange, FileChange, PinChange, PinnedRole};
use api::reviews::{Discussion, ReviewView};
use engine::Hash;
use engine::blueprint::Anchor;
use engine::blueprint::difference::{
    BarclampDifference, DeploymentDifference, Difference, EdgeDifference, Mark, NodeDifference,
    NoderoleDifference, RoleDifference, Sides,
};
use engine::blueprint::text::{NamedNoderole, Names as DisplayNames};
use engine::cluster::connection::FieldChange;
use engine::cluster::{Connection, EdgeKind, NoderoleKey, phantom};
use engine::counting::{either, many};
use engine::data::{Change, ChangeKind};
use engine::gate::{Policy, PolicySetting};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, ReviewId};
use leptos::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::files;
use super::noderole;
use super::viewed::{self, Marks};
use crate::addresses;
use crate::components::{Empty, Feed, Icon, icon};

/// The maximum number of cards that are visible without expanding.
const MAX_OPEN_CARDS: usize = 40;
/// The maximum number of noderoles in one card. The rest is a count.
const LINES: usize = 200;
/// The maximum number of lines of a change that is expanded initially.
const GLANCE: usize = 30;
/// The maximum number of edges of one noderole. The rest is a count.
const MAX_EDGES: usize = 20;

/// A summary of a difference by kind: `1 role and 12 noderoles`. The top of a review and the
/// comparison of two blueprints share this summary, so that they agree. A card also counts single
/// values and therefore counts lines.
///
/// If only some of the documents are loaded, the content of the others is unknown. Then all of them
/// are counted as documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::pages) struct Changed {
    pub(super) parts: Vec<String>,
    /// Whether noderoles change.
    pub(super) is_on_nodes: bool,
}

impl Changed {
    /// Summarizes a difference. `more` further documents are not loaded.
    pub fn of(difference: &Difference, more: usize) -> Self {
        let counts = match more {
            0 => counts_by_kind(difference).to_vec(),
            more => vec![(difference.documents().count() + more, "document")],
        };
        let is_on_nodes =
            counts.iter().any(|(n, noun)| *n > 0 && matches!(*noun, "noderole" | "document"));
        let counted = counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, noun)| many(n, noun));
        let policy = difference.policy.as_ref().map(|_| "the policy".to_owned());
        Self { parts: counted.chain(policy).collect(), is_on_nodes }
    }
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts.as_slice() {
            [] => f.write_str("nothing"),
            [one] => f.write_str(one),
            [all @ .., last] => write!(f, "{} and {last}", all.join(", ")),
        }
    }
}

/// The number of differences of each kind. Deployments and nodes are counted only if nothing inside
/// of them differs.
fn counts_by_kind(difference: &Difference) -> [(usize, &'static str); 5] {
    let Difference { deployments, nodes, .. } = difference;
    let plain = deployments.iter().filter(|d| d.roles.is_empty() && d.barclamps.is_empty());
    let empty = nodes.iter().filter(|node| node.noderoles.is_empty());
    [
        (plain.count(), "deployment"),
        (deployments.iter().map(|d| d.barclamps.len()).sum(), "barclamp"),
        (deployments.iter().map(|d| d.roles.len()).sum(), "role"),
        (empty.count(), "node"),
        (nodes.iter().map(|node| node.noderoles.len()).sum(), "noderole"),
    ]
}

/// Names and contents that the rendering of a difference needs.
#[derive(Clone, Default)]
struct Names {
    known: DisplayNames,
    brought: BTreeMap<NoderoleId, String>,
    /// The differences between role contents, by old and new hash. A node's card omits those that
    /// its deployment's card shows.
    contents: BTreeMap<(Hash, Hash), RoleContentDifference>,
    /// The roles that change because barclamps are pinned to other versions.
    pins: Vec<PinChange>,
    /// The effective values of deployment roles whose data or template changes.
    role_values: Vec<RoleValueChange>,
    comment_links: Option<CommentLinks>,
    marks: Option<Marks>,
    /// Whether cards are initially expanded.
    is_expanded: bool,
}

/// The difference between two contents of a role.
#[derive(Clone)]
struct RoleContentDifference {
    changes: Vec<Change>,
    files: Vec<FileChange>,
}

impl Names {
    /// Adds the differences between contents and between pinned versions.
    fn with_versions(self, contents: Vec<ContentChange>, pins: Vec<PinChange>) -> Self {
        let differences = contents.into_iter().map(|content| {
            let ContentChange { old, new, changes, files } = content;
            ((old, new), RoleContentDifference { changes, files })
        });
        Self { contents: differences.collect(), pins, ..self }
    }

    fn pin(&self, deployment: DeploymentId, barclamp: &BarclampName) -> Option<&PinChange> {
        self.pins.iter().find(|pin| pin.deployment == deployment && pin.barclamp == *barclamp)
    }

    fn talk(&self, anchor: Anchor, subject: &str) -> AnyView {
        self.comment_links.map(|comment_links| comment_links.link(anchor, subject)).into_any()
    }

    fn deployment(&self, id: Option<DeploymentId>) -> String {
        let name = id.and_then(|id| self.known.deployments.get(&id).map(ToString::to_string));
        name.unwrap_or_else(|| "a removed deployment".into())
    }

    fn node(&self, fqdn: &Fqdn) -> String {
        self.known.node(fqdn).into_owned()
    }

    /// Rows for the difference between two contents: the changed values of the definition, and the
    /// files.
    fn content_rows(&self, sides: Sides<Option<Hash>>) -> AnyView {
        let difference = sides.old.zip(sides.new).and_then(|both| self.contents.get(&both));
        let Some(RoleContentDifference { changes, files }) = difference else {
            return ().into_any();
        };
        let definition = changes.iter().cloned().map(definition_row).collect_view();
        (definition, files.iter().cloned().map(files::file_row).collect_view()).into_any()
    }
}

/// The numbers of all threads and of open threads, by the change that they are about.
type Threads = BTreeMap<Anchor, (usize, usize)>;

/// Links from each change to its discussion.
#[derive(Clone, Copy)]
pub(super) struct CommentLinks {
    review: ReviewId,
    threads: Memo<Threads>,
}

impl CommentLinks {
    pub(super) fn of(review: ReviewId, discussion: Feed<Discussion>) -> Self {
        let threads = Memo::new(move |_| {
            let mut threads = Threads::new();
            for thread in &discussion.value().read().threads {
                let entry = threads.entry(thread.anchor.clone()).or_default();
                entry.0 += 1;
                entry.1 += usize::from(thread.resolved.is_none());
            }
            threads
        });
        Self { review, threads }
    }

    /// A link to the discussion of one change, with the number of threads.
    fn link(self, anchor: Anchor, subject: &str) -> AnyView {
        let address = format!(
            "{}?tab=discussion&about={}",
            addresses::review(self.review),
            addresses::encoded(&anchor.to_string())
        );
        let counts =
            Memo::new(move |_| self.threads.read().get(&anchor).copied().unwrap_or_default());
        let (has_threads, has_open) = (move || counts.get().0 > 0, move || counts.get().1 > 0);
        let label = format!("Comment on {subject}");
        let text = move || {
            let (all, open) = counts.get();
            (all > 0).then(|| {
                view! {
                    <span class="num">{all}</span>
                    <span class="visually-hidden">
                        {either(all, " thread, ", " threads, ")} {open} " open"
                    </span>
                }
            })
        };
        view! {
            <a
                class="thread-link"
                class:open=has_open
                class:has-threads=has_threads
                href=address
                title=label
            >
                {icon(Icon::Talk)}
                <span class="visually-hidden">{label.clone()}</span>
                {move || text()}
            </a>
        }
        .into_any()
    }
}

/// The name of a change: `app on n1, /app/port`.
pub(super) fn words(review: &ReviewView, anchor: &Anchor) -> String {
    let deployment = |id: &DeploymentId| {
        review.deployments.get(id).map_or_else(|| id.to_string(), ToString::to_string)
    };
    let node = |id: &NodeId| {
        let found = review.difference.nodes.iter().find(|node| node.id == *id);
        found.map_or_else(|| id.to_string(), |node| called(&node.fqdn, &review.deployments))
    };
    let subject = match anchor {
        Anchor::Whole => "the whole change".to_owned(),
        Anchor::Policy(_) => "the policy".to_owned(),
        Anchor::Deployment(id) => format!("deployment {}", deployment(id)),
        Anchor::Barclamp(id, barclamp) => format!("{barclamp} in {}", deployment(id)),
        Anchor::Role(id, role, _) => format!("{role} in {}", deployment(id)),
        Anchor::Node(id) => format!("node {}", node(id)),
        Anchor::Noderole(id, key, _) => format!("{key} on {}", node(id)),
    };
    match anchor.value() {
        Some(path) if !path.is_empty() => format!("{subject}, {path}"),
        _ => subject,
    }
}

/// The display name of a node.
pub(super) fn called(fqdn: &Fqdn, deployments: &BTreeMap<DeploymentId, DeploymentName>) -> String {
    phantom::short_name(fqdn, |id| deployments.get(&id).map(ToString::to_string)).into_owned()
}

#[component]
pub(super) fn Changes(
    /// The review that provides names.
    review: RwSignal<ReviewView>,
    /// The differences: those of the review, or those since the version that the reader last
    /// viewed.
    difference: Difference,
    /// Names of dependencies that the review does not contain.
    #[prop(optional)]
    noderoles: BTreeMap<NoderoleId, NamedNoderole>,
    /// The differences inside of roles and between versions, if not those of the review.
    #[prop(optional)]
    versions: Option<(Vec<ContentChange>, Vec<PinChange>)>,
    /// Links to comments. `None` if comments are impossible.
    comment_links: Option<CommentLinks>,
    /// The changes that this person has viewed. Without it, all cards are expanded.
    #[prop(optional)]
    marks: Option<Marks>,
) -> impl IntoView {
    // A review never changes, so the differences are rendered once.
    let review = review.get_untracked();
    let is_expanded = lines(&difference) <= GLANCE;
    let mut known = DisplayNames { deployments: review.deployments, noderoles };
    known.noderoles.extend(review.noderoles);
    // They belong to the difference of the review itself.
    let role_values = if versions.is_none() { review.role_values } else { Vec::new() };
    let context = Names {
        known,
        role_values,
        brought: review.required_by,
        comment_links,
        marks,
        is_expanded,
        ..Names::default()
    };
    let (contents, pins) = versions.unwrap_or((review.contents, review.pins));
    drawn(difference, context.with_versions(contents, pins))
}

/// The differences between any two blueprints.
pub(in crate::pages) fn differs(
    difference: Difference,
    known: DisplayNames,
    contents: Vec<ContentChange>,
    pins: Vec<PinChange>,
) -> impl IntoView {
    let is_expanded = lines(&difference) <= GLANCE;
    drawn(
        difference,
        Names { known, is_expanded, ..Names::default() }.with_versions(contents, pins),
    )
}

fn drawn(difference: Difference, mut context: Names) -> AnyView {
    let nothing = difference.is_empty();
    let Difference { deployments, nodes, unchanged, policy } = difference;
    if nothing {
        return view! {
            <div class="card">
                <Empty icon=Icon::Review title="No differences">
                    <p>"Both sides have the same content."</p>
                </Empty>
            </div>
        }
        .into_any();
    }
    let of_pins = context.pins.iter().flat_map(|pin| &pin.roles).map(|role| role.contents);
    let of_roles = deployments.iter().flat_map(|d| &d.roles).filter_map(|role| role.contents);
    let listed: Vec<_> = of_roles.chain(of_pins).collect();
    let cards = deployments
        .into_iter()
        .map(|deployment| deployment_card(deployment, &context))
        .collect_view();
    context
        .contents
        .retain(|(old, new), _| !listed.contains(&Sides { old: Some(*old), new: Some(*new) }));
    let groups = alike(nodes, &context.known, &context.brought);
    let all = RwSignal::new(false);
    let hidden = groups.len().saturating_sub(MAX_OPEN_CARDS);
    let late: Vec<_> = groups.iter().skip(MAX_OPEN_CARDS).cloned().collect();
    let (late, late_names) = (StoredValue::new(late), StoredValue::new(context.clone()));
    let rest = move || match all.get() {
        true => late
            .get_value()
            .into_iter()
            .map(|group| node_card(group, &late_names.get_value()))
            .collect_view()
            .into_any(),
        false if hidden == 0 => ().into_any(),
        false => view! {
            <button class="button wide needs-scripts" type="button" on:click=move |_| all.set(true)>
                "Show " {hidden} " more"
            </button>
            <p class="no-scripts muted">"JavaScript is required to show " {hidden} " more."</p>
        }
        .into_any(),
    };
    let tools = context
        .marks
        .map(|marks| view! { <div class="changes-tools">{viewed::expand_all_button(marks)}</div> });
    view! {
        {tools}
        {policy.map(|sides| policy_card(&sides, &context))}
        {cards}
        {
            groups.into_iter()
                .take(MAX_OPEN_CARDS)
                .map(|group| node_card(group, &context))
                .collect_view()
        }
        {move || rest()}
        <p class="muted">
            {unchanged}
            {either(unchanged, " other document is unchanged.", " other documents are unchanged.")}
        </p>
    }
    .into_any()
}

/// The number of lines of a completely expanded difference.
fn lines(difference: &Difference) -> usize {
    let policy = difference.policy.as_ref().map_or(0, |sides| sides.old.changes(&sides.new).len());
    let deployments = difference.deployments.iter().map(lines_of_deployment);
    deployments.chain(difference.nodes.iter().map(lines_of_node)).sum::<usize>() + policy
}

fn lines_of_deployment(deployment: &DeploymentDifference) -> usize {
    let roles: usize = deployment.roles.iter().map(|role| 1 + role.data.len()).sum();
    let own =
        [deployment.renamed.is_some(), deployment.parent.is_some(), deployment.phantom.is_some()];
    let own = own.into_iter().filter(|is| *is).count();
    (roles + deployment.barclamps.len() + deployment.inactive_jigs.len() + own).max(1)
}

fn lines_of_node(node: &NodeDifference) -> usize {
    let own = usize::from(node.renamed.is_some())
        + usize::from(node.phantom.is_some())
        + connection_lines(node).len()
        + node.hints.len();
    let of_noderole = |noderole: &NoderoleDifference| {
        let own = [both_contents(noderole).is_some(), noderole.rank.is_some()];
        let edges =
            noderole.edges.len().min(MAX_EDGES) + usize::from(noderole.edges.len() > MAX_EDGES);
        1 + own.into_iter().filter(|is| *is).count() + edges + noderole.data.len()
    };
    (node.noderoles.iter().map(of_noderole).sum::<usize>() + own).max(1)
}

/// The two contents of a noderole that exists before and after.
fn both_contents(noderole: &NoderoleDifference) -> Option<Sides<Option<Hash>>> {
    noderole.contents.filter(|_| noderole.mark == Mark::Changed)
}

/// The documents of each card.
pub(super) fn cards(review: &ReviewView) -> Vec<Vec<Anchor>> {
    let policy = review.difference.policy.iter().map(|_| vec![Anchor::Policy(None)]);
    let deployments = review
        .difference
        .deployments
        .iter()
        .map(|deployment| vec![Anchor::Deployment(deployment.id)]);
    let known = DisplayNames { deployments: BTreeMap::new(), noderoles: review.noderoles.clone() };
    let nodes = alike(review.difference.nodes.clone(), &known, &review.required_by);
    policy.chain(deployments).chain(nodes.iter().map(Group::documents)).collect()
}

/// Nodes with equal changes.
#[derive(Clone)]
struct Group {
    first: NodeDifference,
    others: Vec<(NodeId, String)>,
    /// The connections of the other nodes, for nodes that are new.
    connections: BTreeMap<NodeId, String>,
}

impl Group {
    fn documents(&self) -> Vec<Anchor> {
        let others = self.others.iter().map(|(id, _)| *id);
        std::iter::once(self.first.id).chain(others).map(Anchor::Node).collect()
    }
}

fn alike(
    nodes: Vec<NodeDifference>,
    known: &DisplayNames,
    brought: &BTreeMap<NoderoleId, String>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut place: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        // If serialization fails, the node gets its own card.
        let key = card_key(&node, known, brought).unwrap_or_else(|_| node.id.to_string());
        match place.get(&key) {
            Some(group) => {
                let group = &mut groups[*group];
                group.others.push((node.id, known.node(&node.fqdn).into_owned()));
                let first = node.connection.as_ref().and_then(|sides| sides.new.as_ref());
                group.connections.extend(first.map(|connection| (node.id, connection.line())));
            }
            None => {
                place.insert(key, groups.len());
                groups.push(Group {
                    first: node,
                    others: Vec::new(),
                    connections: BTreeMap::new(),
                });
            }
        }
    }
    groups
}

/// A dependency relative to the node. Dependencies on the same node are equal for all nodes of a
/// group.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum Dependency<'a> {
    Here(&'a NoderoleKey),
    There(&'a NoderoleId),
}

impl<'a> Dependency<'a> {
    fn of(edge: &'a EdgeDifference, node: NodeId, known: &'a DisplayNames) -> Self {
        let local = known.noderoles.get(&edge.parent).filter(|place| place.node == node);
        local.map_or(Self::There(&edge.parent), |place| Self::Here(&place.noderole))
    }
}

/// A key of everything that is displayed about a node, except its name. Nodes with equal keys share
/// a card.
fn card_key(
    node: &NodeDifference,
    known: &DisplayNames,
    brought: &BTreeMap<NoderoleId, String>,
) -> Result<String, serde_json::Error> {
    let NodeDifference {
        id: on,
        fqdn: _,
        mark,
        renamed,
        phantom,
        moved,
        connection,
        hints,
        noderoles,
        unchanged: _,
    } = node;
    // The connection of a new node is listed separately for each node of the card.
    let connection = connection.as_ref().filter(|sides| sides.old.is_some());
    let alone = renamed.as_ref().map(|_| on);
    let noderoles: Vec<_> = noderoles
        .iter()
        .map(|noderole| {
            // The previous number of requested runs is not displayed.
            let NoderoleDifference {
                id,
                noderole,
                deployment,
                mark,
                content: _,
                contents,
                bound,
                rerun,
                reruns: _,
                rank,
                rewired: _,
                edges,
                data,
            } = noderole;
            let edges: BTreeSet<_> = edges
                .iter()
                .map(|edge| (Dependency::of(edge, *on, known), edge.old, edge.new))
                .collect();
            (noderole, deployment, mark, contents, bound, rerun, rank, edges, data, brought.get(id))
        })
        .collect();
    serde_json::to_string(&(mark, alone, phantom, moved, connection, hints, noderoles))
}

fn deployment_card(deployment: DeploymentDifference, context: &Names) -> AnyView {
    let is_new = (deployment.mark != Mark::Changed).then(|| mark_pill(deployment.mark));
    let rows = lines_of_deployment(&deployment);
    let id = deployment.id;
    let own = deployment_rows(&deployment, context);
    let nothing = own.is_none()
        && deployment.roles.is_empty()
        && deployment.barclamps.is_empty()
        && deployment.inactive_jigs.is_empty();
    let card = vec![Anchor::Deployment(id)];
    let mark = viewed::mark(context.marks, &card);
    let name = deployment.name.to_string();
    let table = view! {
        <div class="table-scroll">
            <table class="table changes">
                <thead class="visually-hidden">
                    <tr>
                        <th scope="col">"Change"</th> <th scope="col">"Object"</th>
                        <th scope="col">"Values"</th> <th scope="col">"Comments"</th>
                    </tr>
                </thead>
                <tbody>
                    {own}
                    {
                        deployment.barclamps.into_iter()
                            .map(|barclamp| barclamp_row(id, barclamp, context))
                            .collect_view()
                    }
                    {
                        deployment.roles.into_iter()
                            .map(|role| role_rows(id, role, context))
                            .collect_view()
                    }
                    {nothing.then(|| view! {
                        <tr>
                            <td></td> <td class="muted">"No roles of its own."</td> <td></td>
                            <td></td>
                        </tr>
                    })}
                </tbody>
            </table>
        </div>
    };
    view! {
        <section class="card">
            <header>
                <h2>{name.clone()}</h2>
                <span class="muted">"deployment"</span>
                {is_new}
                <span class="grow"></span>
                {mark}
                {context.talk(Anchor::Deployment(id), &format!("deployment {name}"))}
            </header>
            {viewed::fold(context.marks, card, rows, context.is_expanded, table.into_any())}
        </section>
    }
    .into_any()
}

/// The rows for a deployment itself. `None`: no difference.
fn deployment_rows(deployment: &DeploymentDifference, context: &Names) -> Option<AnyView> {
    let mut rows = Vec::new();
    if let Some(renamed) = &deployment.renamed {
        rows.push(own_row("name", Some(renamed.old.to_string()), Some(renamed.new.to_string())));
    }
    if let Some(parent) = deployment.parent {
        let above = |id: Option<DeploymentId>| id.map(|id| context.deployment(Some(id)));
        rows.push(own_row("parent", above(parent.old), above(parent.new)));
    }
    if let Some(phantom) = deployment.phantom {
        rows.push(own_row(
            "phantom node",
            Some(phantom.old.to_string()),
            Some(phantom.new.to_string()),
        ));
    }
    rows.extend(deployment.inactive_jigs.iter().map(|switched| {
        let (old, new) = match switched.mark {
            Mark::Removed => ("off", "on"),
            Mark::Added | Mark::Changed => ("on", "off"),
        };
        own_row(&format!("jig {}", switched.jig), Some(old.into()), Some(new.into()))
    }));
    (!rows.is_empty()).then(|| rows.into_any())
}

/// The rows for a node itself. `None`: no difference.
fn node_rows(node: &NodeDifference) -> Option<AnyView> {
    let mut rows = Vec::new();
    if let Some(renamed) = &node.renamed {
        rows.push(own_row("name", Some(renamed.old.to_string()), Some(renamed.new.to_string())));
    }
    if let Some(phantom) = node.phantom {
        let word = |is: bool| Some(if is { "a deployment" } else { "a machine" }.to_owned());
        rows.push(own_row("represents", word(phantom.old), word(phantom.new)));
    }
    rows.extend(
        connection_lines(node).into_iter().map(|(name, old, new)| own_row(&name, old, new)),
    );
    let hint =
        |change: &Change| Change { path: format!("hints {}", change.path), ..change.clone() };
    rows.extend(node.hints.iter().map(|change| value_row(hint(change), ().into_any())));
    (!rows.is_empty()).then(|| rows.into_any())
}

/// The differences of a node's connection: one line for an added or removed connection, or one line
/// for each changed field.
fn connection_lines(node: &NodeDifference) -> Vec<(String, Option<String>, Option<String>)> {
    match &node.connection {
        None => Vec::new(),
        Some(Sides { old: Some(old), new: Some(new) }) => {
            let changes = Connection::changes(Some(old), Some(new)).into_iter();
            changes
                .map(|FieldChange { name, old, new }| (format!("connection, {name}"), old, new))
                .collect()
        }
        Some(Sides { old, new }) => {
            let line = |side: &Option<Connection>| side.as_ref().map(Connection::line);
            vec![("connection".to_owned(), line(old), line(new))]
        }
    }
}

fn own_row(name: &str, old: Option<String>, new: Option<String>) -> AnyView {
    let mark = match (&old, &new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Changed,
    };
    row(mark, view! { <b>{name.to_owned()}</b> }, sides_view(old, new), ().into_any())
}

fn barclamp_row(id: DeploymentId, barclamp: BarclampDifference, context: &Names) -> AnyView {
    let talk =
        context.talk(Anchor::Barclamp(id, barclamp.barclamp.clone()), barclamp.barclamp.as_str());
    let about =
        view! { <b>{barclamp.barclamp.to_string()}</b> <span class="muted">" barclamp"</span> };
    let Some(pin) = context.pin(id, &barclamp.barclamp) else {
        return row(barclamp.mark, about, sides_view(barclamp.old, barclamp.new), talk);
    };
    // If a pin replaces the inherited one, the barclamp changes its version and is not new.
    let mark = match (&pin.old, &pin.new) {
        (Some(_), Some(_)) => Mark::Changed,
        _ => barclamp.mark,
    };
    let roles = pin.roles.iter().map(|role| pinned_role_rows(role, context)).collect_view();
    let values = sides_view(
        pin.old.as_ref().map(ToString::to_string),
        pin.new.as_ref().map(ToString::to_string),
    );
    (row(mark, about, values, talk), roles).into_any()
}

/// A role that differs in the new version and is not used here.
fn pinned_role_rows(role: &PinnedRole, context: &Names) -> AnyView {
    let Sides { old, new } = role.contents;
    let mark = match (old, new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Changed,
    };
    let about = view! {
        "role " <b>{role.role.to_string()}</b>
        <span class="muted">" in that version, not used here"</span>
    };
    (inner_row(mark, about, contents_view(role.contents)), context.content_rows(role.contents))
        .into_any()
}

fn role_rows(id: DeploymentId, role: RoleDifference, context: &Names) -> AnyView {
    let content = role.contents.map(contents_view);
    let definition = role.contents.map(|sides| context.content_rows(sides));
    let about = view! { <b>{role.role.to_string()}</b> <span class="muted">" role"</span> };
    let name = role.role.clone();
    let value = |change: Change| {
        let subject = format!("{name}, {}", change.path);
        let talk =
            context.talk(Anchor::Role(id, name.clone(), Some(change.path.clone())), &subject);
        let is_same = |value: &&RoleValueChange| {
            (value.deployment, &value.role, &value.path) == (id, &name, &change.path)
        };
        let effective = context.role_values.iter().find(is_same).map(effective_row);
        view! { {value_row(change, talk)} {effective} }.into_any()
    };
    view! {
        {
            row(
                role.mark,
                about,
                content,
                context.talk(Anchor::Role(id, name.clone(), None), name.as_str())
            )
        }
        {definition}
        {role.data.into_iter().map(value).collect_view()}
    }
    .into_any()
}

/// The effective value of noderoles for a changed value of their deployment role, and the number of
/// those that override it.
fn effective_row(value: &RoleValueChange) -> AnyView {
    let [before, after] = value.sides();
    let sides = sides_view(Some(before), Some(after));
    let about = view! { <span class="muted">"effective value"</span> };
    let reach = view! { {sides} " " <span class="muted">{value.reach()}</span> };
    inner_row(Mark::Changed, about, reach)
}

fn node_card(group: Group, context: &Names) -> AnyView {
    let card = group.documents();
    let mark = viewed::mark(context.marks, &card);
    let Group { first, others, connections } = group;
    let moved = first.moved.map(|Sides { old, new }| {
        let text = match (old, new) {
            (Some(_), Some(_)) => {
                format!("moves from {} to {}", context.deployment(old), context.deployment(new))
            }
            (Some(_), None) => format!("leaves {}", context.deployment(old)),
            (None, _) => format!("joins {}", context.deployment(new)),
        };
        view! { <span class="pill" data-state="warn">{icon(Icon::Bind)} {text}</span> }
    });
    let also = (!others.is_empty()).then(|| {
        let n = others.len();
        view! {
            <details>
                <summary class="muted">"and " {n} " more with the same changes"</summary>
                {match connections.is_empty() {
                    true => view! {
                        <p>
                            {
                                others.iter()
                                    .map(|(_, name)| name.as_str()).collect::<Vec<_>>()
                                    .join(", ")
                            }
                        </p>
                    }.into_any(),
                    false => {
                        let reached = |(id, name): &(NodeId, String)| {
                            view! {
                                <li>
                                    {name.clone()} ": "
                                    {connections.get(id).cloned().unwrap_or_default()}
                                </li>
                            }
                        };
                        view! {
                            <ul class="plain">{others.iter().map(reached).collect_view()}</ul>
                        }.into_any()
                    }
                }}
                {viewed::end()}
            </details>
        }
    });
    let unchanged = (first.unchanged > 0)
        .then(|| view! { <span class="muted">{first.unchanged} " unchanged"</span> });
    let rows = first
        .noderoles
        .iter()
        .take(LINES)
        .map(|noderole| noderole_rows(first.id, noderole, context))
        .collect_view();
    let left = first.noderoles.len().saturating_sub(LINES);
    let left = (left > 0).then(|| {
        view! {
            <tr>
                <td></td>
                <td class="muted">
                    "and " {left}
                    " more on this node. Open the Graph tab or the JSON difference to see them."
                </td>
                <td></td> <td></td>
            </tr>
        }
    });
    let table = view! {
        <div class="table-scroll">
            <table class="table changes">
                <thead class="visually-hidden">
                    <tr>
                        <th scope="col">"Change"</th> <th scope="col">"Object"</th>
                        <th scope="col">"Values"</th> <th scope="col">"Comments"</th>
                    </tr>
                </thead>
                <tbody>{node_rows(&first)} {rows} {left}</tbody>
            </table>
        </div>
    };
    view! {
        <section class="card">
            <header>
                <h2>{context.node(&first.fqdn)}</h2>
                {tally(&first.noderoles)}
                {moved}
                {also}
                <span class="grow"></span>
                {unchanged}
                {mark}
                {
                    context.talk(
                        Anchor::Node(first.id),
                        &format!("node {}", called(&first.fqdn, &context.known.deployments))
                    )
                }
            </header>
            {
                viewed::fold(
                    context.marks,
                    card,
                    lines_of_node(&first),
                    context.is_expanded,
                    table.into_any()
                )
            }
        </section>
    }
    .into_any()
}

/// `5 added`, `2 changed`, `1 run again`.
fn tally(noderoles: &[NoderoleDifference]) -> AnyView {
    let of = |mark: Mark| noderoles.iter().filter(|n| n.mark == mark).count();
    let again = noderoles.iter().filter(|n| n.rerun).count();
    let all = [
        ("proposed", Icon::Proposed, of(Mark::Added), "added"),
        ("todo", Icon::Rerun, again, "run again"),
        ("warn", Icon::Data, of(Mark::Changed) - again.min(of(Mark::Changed)), "changed"),
        ("error", Icon::Delete, of(Mark::Removed), "removed"),
    ];
    let some = all.into_iter().filter(|(_, _, n, _)| *n > 0);
    some.map(|(color, shape, n, word)| {
        view! {
            <span class="pill" data-state=color>{icon(shape)} {n} " " {word}</span>
        }
    })
    .collect_view()
    .into_any()
}

fn noderole_rows(node: NodeId, noderole: &NoderoleDifference, context: &Names) -> AnyView {
    let mut notes = Vec::new();
    notes.extend(context.brought.get(&noderole.id).cloned());
    notes.extend(noderole.rerun.then(|| "runs again".to_owned()));
    let instance =
        (noderole.noderole.instance > 0).then(|| format!(" #{}", noderole.noderole.instance));
    let about = view! {
        <b>{noderole.noderole.role.to_string()} {instance}</b>
        " "
        <span class="muted">{notes.join(", ")}</span>
    };
    let from = noderole
        .bound
        .map(|bound| format!(", previously in {}", context.deployment(Some(bound.old))));
    let content = noderole.contents.filter(|_| noderole.mark != Mark::Changed).map(contents_view);
    let place = view! {
        <span class="muted">"in " {context.deployment(Some(noderole.deployment))} {from}</span> " "
        {content}
    };
    let key = noderole.noderole.clone();
    let value = |change: Change| {
        let subject = format!("{key}, {}", change.path);
        let talk =
            context.talk(Anchor::Noderole(node, key.clone(), Some(change.path.clone())), &subject);
        value_row(change, talk)
    };
    let talk = context.talk(Anchor::Noderole(node, key.clone(), None), &key.to_string());
    view! {
        {row(noderole.mark, about, place, talk)}
        {waits(node, noderole, context)}
        {context.comment_links.filter(|_| noderole.mark != Mark::Removed).map(|links| {
            inner_row(
                noderole.mark,
                noderole::section(links.review, node, noderole.noderole.clone()),
                ()
            )
        })}
        {noderole.data.iter().cloned().map(value).collect_view()}
    }
    .into_any()
}

/// The differences of a noderole other than its data: content, order and dependencies. For an added
/// or removed noderole, the dependencies are one line.
fn waits(node: NodeId, noderole: &NoderoleDifference, context: &Names) -> AnyView {
    let more = noderole.edges.len().saturating_sub(MAX_EDGES);
    let more = (more > 0).then(|| format!("{more} more in the JSON difference"));
    let edges = noderole.edges.iter().take(MAX_EDGES);
    if noderole.mark != Mark::Changed {
        let word = if noderole.mark == Mark::Added { "waits for " } else { "waited for " };
        let all: Vec<String> = edges.map(|edge| awaited(edge, node, context)).chain(more).collect();
        let line = view! { <span class="muted">{word}</span> {all.join(", ")} };
        return (!all.is_empty()).then(|| inner_row(noderole.mark, line, ())).into_any();
    }
    let mut rows = Vec::new();
    if let Some(sides) = both_contents(noderole) {
        rows.push(inner_row(Mark::Changed, "role content", contents_view(sides)));
        rows.push(context.content_rows(sides));
    }
    if let Some(Sides { old, new }) = noderole.rank {
        rows.push(inner_row(Mark::Changed, "rank", sides_view(Some(old), Some(new))));
    }
    rows.extend(edges.map(|edge| {
        let (mark, kinds) = match (edge.old, edge.new) {
            (None, _) => (Mark::Added, None),
            (Some(_), None) => (Mark::Removed, None),
            (Some(old), Some(new)) => (
                Mark::Changed,
                Some(sides_view(Some(edge_kind_text(old)), Some(edge_kind_text(new)))),
            ),
        };
        let word = if mark == Mark::Removed { "no longer waits for " } else { "waits for " };
        inner_row(
            mark,
            view! { <span class="muted">{word}</span> {awaited(edge, node, context)} },
            kinds,
        )
    }));
    rows.extend(more.map(|more| {
        inner_row(Mark::Changed, view! { <span class="muted">"and " {more}</span> }, ())
    }));
    rows.into_any()
}

/// `db on n2.example.com`, `runtime on the same node`, with the kind of the edge unless it is the
/// default.
fn awaited(edge: &EdgeDifference, node: NodeId, context: &Names) -> String {
    let parent = match context.known.noderoles.get(&edge.parent) {
        Some(place) if place.node == node => format!("{} on the same node", place.noderole),
        Some(place) => format!("{} on {}", place.noderole, context.node(&place.fqdn)),
        None => format!("noderole {}", edge.parent),
    };
    match (edge.old, edge.new) {
        (Some(kind), None) | (None, Some(kind)) if kind != EdgeKind::Hard => {
            format!("{parent} ({})", edge_kind_text(kind))
        }
        _ => parent,
    }
}

fn edge_kind_text(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Hard => "hard",
        EdgeKind::OrderOnly => "order only",
        EdgeKind::Soft => "soft",
    }
}

fn contents_view(sides: Sides<Option<Hash>>) -> AnyView {
    let short = |side: Option<Hash>| side.map(|hash| hash.short());
    sides_view(short(sides.old), short(sides.new))
}

fn sides_view<T: ToString>(old: Option<T>, new: Option<T>) -> AnyView {
    view! {
        {old.map(|old| view! {
            <del><span class="visually-hidden">"before: "</span> {old.to_string()}</del> " "
        })}
        {new.map(|new| view! {
            <ins><span class="visually-hidden">"after: "</span> {new.to_string()}</ins>
        })}
    }
    .into_any()
}

/// A row for a changed value of a role's definition.
fn definition_row(change: Change) -> AnyView {
    value_row(Change { path: format!("definition {}", change.path), ..change }, ().into_any())
}

/// The policy is not a document, but is displayed like one.
fn policy_card(Sides { old, new }: &Sides<Policy>, context: &Names) -> AnyView {
    let changes = old.changes(new);
    let count = changes.len();
    let rows = changes.into_iter().map(|change| {
        let (of, less) = match change.part {
            PolicySetting::Cooling => ("", "shorter than before"),
            PolicySetting::Signed(_) | PolicySetting::SecondFactor => ("", "no longer required"),
            PolicySetting::AllChanges | PolicySetting::Risk(_) => {
                ("approvals for ", "fewer than before")
            }
        };
        let weaker = change.is_weaker().then(|| {
            view! { " " <span class="pill" data-state="warn">{icon(Icon::Warn)} {less}</span> }
        });
        let about = view! { {of} <b>{change.about().into_owned()}</b> {weaker} };
        let talk = context.talk(
            Anchor::Policy(Some(change.pointer())),
            &format!("the policy, {of}{}", change.about()),
        );
        row(Mark::Changed, about, sides_view(Some(change.old), Some(change.new)), talk)
    });
    let table = view! {
        <div class="table-scroll">
            <table class="table changes">
                <thead class="visually-hidden">
                    <tr>
                        <th scope="col">"Change"</th> <th scope="col">"Object"</th>
                        <th scope="col">"Values"</th> <th scope="col">"Comments"</th>
                    </tr>
                </thead>
                <tbody>{rows.collect_view()}</tbody>
            </table>
        </div>
    };
    let card = vec![Anchor::Policy(None)];
    view! {
        <section class="card" aria-labelledby="policy-change">
            <header>
                <h2 id="policy-change">"Approval policy"</h2>
                <span class="muted">"applies to every deployment"</span>
                <span class="grow"></span>
                {viewed::mark(context.marks, &card)}
                {context.talk(Anchor::Policy(None), "the policy")}
            </header>
            {viewed::fold(context.marks, card, count, context.is_expanded, table.into_any())}
        </section>
    }
    .into_any()
}

/// A row for a detail of the row above.
fn inner_row(
    mark: Mark,
    label: impl IntoView + 'static,
    values: impl IntoView + 'static,
) -> AnyView {
    row_with_class("value", mark, label.into_any(), values.into_any(), ().into_any())
}

fn row(
    mark: Mark,
    label: impl IntoView + 'static,
    values: impl IntoView + 'static,
    talk: AnyView,
) -> AnyView {
    row_with_class("", mark, label.into_any(), values.into_any(), talk)
}

fn row_with_class(
    class: &'static str,
    mark: Mark,
    label: AnyView,
    values: AnyView,
    talk: AnyView,
) -> AnyView {
    let (word, sign) = match mark {
        Mark::Added => ("added", "+"),
        Mark::Removed => ("removed", "−"),
        Mark::Changed => ("changed", "~"),
    };
    view! {
        <tr class=class data-mark=word>
            <td class="sign">
                <span aria-hidden="true">{sign}</span> <span class="visually-hidden">{word}</span>
            </td>
            <td>{label}</td>
            <td>{values}</td>
            <td class="thread-cell">{talk}</td>
        </tr>
    }
    .into_any()
}

fn value_row(change: Change, talk: AnyView) -> AnyView {
    let (word, sign) = match change.kind {
        ChangeKind::Added => ("added", "+"),
        ChangeKind::Removed => ("removed", "−"),
        ChangeKind::Changed => ("changed", "~"),
    };
    let path = if change.path.is_empty() { "/".to_owned() } else { change.path };
    let text = |value: Value| value.to_string();
    view! {
        <tr class="value" data-mark=word>
            <td class="sign">
                <span aria-hidden="true">{sign}</span> <span class="visually-hidden">{word}</span>
            </td>
            <td><code>{path}</code></td>
            <td>
                {change.old.map(|old| view! {
                    <del><span class="visually-hidden">"before: "</span> {text(old)}</del> " "
                })}
                {change.new.map(|new| view! {
                    <ins><span class="visually-hidden">"after: "</span> {text(new)}</ins> " "
                })}
                {change.secret.then(|| view! { <span class="muted">"secret, " {word}</span> })}
            </td>
            <td class="thread-cell">{talk}</td>
        </tr>
    }
    .into_any()
}

fn mark_pill(mark: Mark) -> AnyView {
    let (color, word) = match mark {
        Mark::Added => ("proposed", "new"),
        Mark::Removed => ("error", "removed"),
        Mark::Changed => ("warn", "changed"),
    };
    view! { <span class="pill" data-state=color>{word}</span> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::cluster::NoderoleKey;
    use engine::ids::{Fqdn, NodeId, RoleName};
    use uuid::Uuid;

    fn node(n: u128, role: &str) -> NodeDifference {
        let (id, key) =
            (NodeId(Uuid::from_u128(n)), NoderoleKey::first(RoleName::parse(role).unwrap()));
        NodeDifference {
            id,
            fqdn: Fqdn::parse(&format!("web-{n}.example.com")).unwrap(),
            mark: Mark::Changed,
            renamed: None,
            phantom: None,
            moved: None,
            connection: None,
            hints: Vec::new(),
            noderoles: vec![NoderoleDifference {
                id: key.id(id),
                noderole: key,
                deployment: DeploymentId(Uuid::from_u128(9)),
                mark: Mark::Added,
                content: false,
                contents: None,
                bound: None,
                rerun: false,
                reruns: None,
                rank: None,
                rewired: false,
                edges: Vec::new(),
                data: Vec::new(),
            }],
            unchanged: n as usize,
        }
    }

    #[test]
    fn equal_node_changes_share_card_per_reason() {
        let (known, mut brought) = (DisplayNames::default(), BTreeMap::new());
        let nodes = vec![node(1, "app"), node(2, "db"), node(3, "app")];
        let groups = alike(nodes.clone(), &known, &brought);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].others, [(nodes[2].id, "web-3.example.com".to_owned())]);
        assert_eq!(groups[0].documents(), [Anchor::Node(nodes[0].id), Anchor::Node(nodes[2].id)]);
        brought.insert(nodes[2].noderoles[0].id, "required by front".into());
        assert_eq!(alike(nodes, &known, &brought).len(), 3);
    }

    /// The difference of a node whose noderole gets these dependencies.
    fn rewired(mut node: NodeDifference, parents: &[(u128, &str)]) -> NodeDifference {
        let edge = |(n, role): &(u128, &str)| EdgeDifference {
            parent: named_noderole(*n, role).0,
            old: None,
            new: Some(EdgeKind::Hard),
        };
        node.noderoles[0].mark = Mark::Changed;
        node.noderoles[0].rewired = true;
        node.noderoles[0].edges = parents.iter().map(edge).collect();
        node.noderoles[0].edges.sort_by_key(|edge| edge.parent);
        node
    }

    fn named_noderole(n: u128, role: &str) -> (NoderoleId, NamedNoderole) {
        let (node, noderole) =
            (NodeId(Uuid::from_u128(n)), NoderoleKey::first(RoleName::parse(role).unwrap()));
        let fqdn = Fqdn::parse(&format!("web-{n}.example.com")).unwrap();
        (noderole.id(node), NamedNoderole { noderole, node, fqdn })
    }

    #[test]
    fn equal_dependencies_share_card() {
        let all = [
            named_noderole(1, "db"),
            named_noderole(2, "db"),
            named_noderole(3, "db"),
            named_noderole(8, "db"),
            named_noderole(9, "db"),
            named_noderole(1, "dns"),
        ];
        let known = DisplayNames {
            noderoles: all.into_iter().chain([named_noderole(2, "dns")]).collect(),
            ..DisplayNames::default()
        };
        let groups =
            |nodes: [NodeDifference; 2]| alike(nodes.to_vec(), &known, &BTreeMap::new()).len();
        let (one, two) = (node(1, "app"), node(2, "app"));
        assert_eq!(
            groups([rewired(one.clone(), &[(8, "db")]), rewired(two.clone(), &[(8, "db")])]),
            1
        );
        assert_eq!(
            groups([rewired(one.clone(), &[(8, "db")]), rewired(two.clone(), &[(9, "db")])]),
            2
        );
        // Each depends on its own node's noderoles, regardless of the order of the ids.
        let own = |node, n| rewired(node, &[(n, "db"), (n, "dns")]);
        assert_eq!(groups([own(one.clone(), 1), own(two.clone(), 2)]), 1);
        assert_eq!(
            groups([own(one, 1), rewired(two, &[(1, "db"), (1, "dns")])]),
            2,
            "a direct dependency and a rewired one are in different groups"
        );
    }

    #[test]
    fn grouping_many_different_nodes_is_fast() {
        let nodes: Vec<NodeDifference> =
            (1..20_000).map(|n| rewired(node(n, "app"), &[(n + 50_000, "db")])).collect();
        let began = std::time::Instant::now();
        assert_eq!(alike(nodes, &DisplayNames::default(), &BTreeMap::new()).len(), 19_999);
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn summary_counts_documents_if_incomplete() {
        let nothing = NodeDifference { noderoles: Vec::new(), ..node(1, "app") };
        let both = Difference {
            nodes: vec![nothing, node(2, "db"), node(3, "db")],
            ..Difference::default()
        };
        assert_eq!(Changed::of(&both, 0).to_string(), "1 node and 2 noderoles");
        assert_eq!(Changed::of(&both, 40).to_string(), "43 documents");
        assert_eq!(Changed::of(&Difference::default(), 0).to_string(), "nothing");
    }
}
