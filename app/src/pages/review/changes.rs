//! What differs, by deployment and by node. Nodes that change in the same way are shown once; what does not change is counted.

use std::collections::BTreeMap;

use api::console::{Discussion, ReviewView};
use engine::blueprint::Anchor;
use engine::blueprint::difference::{
    BarclampDifference, DeploymentDifference, Difference, Mark, NodeDifference, NoderoleDifference, RoleDifference,
};
use engine::data::{Change, ChangeKind};
use engine::ids::{DeploymentId, DeploymentName, NodeId, NoderoleId, SubmissionId};
use leptos::prelude::*;
use serde_json::Value;

use super::opened::{self, Marks};
use crate::parts::{Empty, Feed, Icon, icon};
use crate::places;

/// Cards before the rest waits for a click.
const SHOWN: usize = 40;
/// Noderoles in one card; more are counted.
const LINES: usize = 200;
/// Lines of a change that is shown unfolded: it can be taken in at a glance.
const GLANCE: usize = 30;

/// Single changes in a difference: roles, barclamps and noderoles.
pub(in crate::pages) fn count(difference: &Difference) -> usize {
    let deployments = difference.deployments.iter().map(|d| (d.roles.len() + d.barclamps.len()).max(1));
    let nodes = difference.nodes.iter().map(|n| n.noderoles.len().max(1));
    deployments.chain(nodes).sum()
}

/// Names that a difference needs.
#[derive(Clone)]
struct Names {
    deployments: BTreeMap<DeploymentId, DeploymentName>,
    brought: BTreeMap<NoderoleId, String>,
    talks: Option<Talks>,
    marks: Option<Marks>,
    /// Whether cards are unfolded from the start.
    unfolded: bool,
}

impl Names {
    fn talk(&self, anchor: Anchor, what: &str) -> AnyView {
        self.talks.map(|talks| talks.link(anchor, what)).into_any()
    }

    fn deployment(&self, id: Option<DeploymentId>) -> String {
        let name = id.and_then(|id| self.deployments.get(&id).map(ToString::to_string));
        name.unwrap_or_else(|| "nowhere".into())
    }
}

/// Threads by the change that they hang on: how many, and how many of these are open.
type Threads = BTreeMap<Anchor, (usize, usize)>;

/// The way from each change to what is said of it.
#[derive(Clone, Copy)]
pub(super) struct Talks {
    submission: SubmissionId,
    threads: Memo<Threads>,
}

impl Talks {
    pub(super) fn of(submission: SubmissionId, discussion: Feed<Discussion>) -> Self {
        let threads = Memo::new(move |_| {
            let mut threads = Threads::new();
            for thread in &discussion.value().read().threads {
                let entry = threads.entry(thread.anchor.clone()).or_default();
                entry.0 += 1;
                entry.1 += usize::from(thread.resolved.is_none());
            }
            threads
        });
        Self { submission, threads }
    }

    /// A link to the discussion of one change; it says how many threads there are.
    fn link(self, anchor: Anchor, what: &str) -> AnyView {
        let address = format!(
            "{}?tab=discussion&about={}",
            places::review(self.submission),
            places::encoded(&anchor.to_string())
        );
        let counts = Memo::new(move |_| self.threads.read().get(&anchor).copied().unwrap_or_default());
        let (has_some, has_open) = (move || counts.get().0 > 0, move || counts.get().1 > 0);
        let label = format!("Comment on {what}");
        let said = move || {
            let (all, open) = counts.get();
            (all > 0).then(
                || view! { <span class="num">{all}</span> <span class="unseen">" threads, " {open} " open"</span> },
            )
        };
        view! {
            <a class="talk" class:open=has_open class:some=has_some href=address title=label>
                {icon(Icon::Talk)}
                <span class="unseen">{label.clone()}</span>
                {said}
            </a>
        }
        .into_any()
    }
}

/// A change in words: `app on n1, /app/port`.
pub(super) fn words(review: &ReviewView, anchor: &Anchor) -> String {
    let deployment = |id: &DeploymentId| review.deployments.get(id).map_or_else(|| id.to_string(), ToString::to_string);
    let node = |id: &NodeId| {
        let found = review.difference.nodes.iter().find(|node| node.id == *id);
        found.map_or_else(|| id.to_string(), |node| node.fqdn.short().to_owned())
    };
    let what = match anchor {
        Anchor::Whole => "the whole change".to_owned(),
        Anchor::Deployment(id) => format!("deployment {}", deployment(id)),
        Anchor::Barclamp(id, barclamp) => format!("{barclamp} in {}", deployment(id)),
        Anchor::Role(id, role, _) => format!("{role} in {}", deployment(id)),
        Anchor::Node(id) => format!("node {}", node(id)),
        Anchor::Noderole(id, key, _) => format!("{key} on {}", node(id)),
    };
    match anchor.value() {
        Some(path) if !path.is_empty() => format!("{what}, {path}"),
        _ => what,
    }
}

#[component]
pub(super) fn Changes(
    /// Of which names come.
    review: RwSignal<ReviewView>,
    /// What differs: the review's own, or what is new since an earlier look.
    difference: Difference,
    /// The way to comments; None where there is nothing to hang them on.
    talks: Option<Talks>,
    /// What this person has opened; without it every card is simply there.
    #[prop(optional)]
    marks: Option<Marks>,
) -> impl IntoView {
    // A submission never changes: what differs is drawn once, whatever happens around it.
    let review = review.get_untracked();
    let unfolded = lines(&difference) <= GLANCE;
    drawn(difference, Names { deployments: review.deployments, brought: review.brought, talks, marks, unfolded })
}

/// The same for any two blueprints.
pub(in crate::pages) fn differs(
    difference: Difference,
    deployments: BTreeMap<DeploymentId, DeploymentName>,
) -> impl IntoView {
    let unfolded = lines(&difference) <= GLANCE;
    drawn(difference, Names { deployments, brought: BTreeMap::new(), talks: None, marks: None, unfolded })
}

fn drawn(difference: Difference, names: Names) -> AnyView {
    let Difference { deployments, nodes, unchanged } = difference;
    if deployments.is_empty() && nodes.is_empty() {
        return view! {
            <div class="card">
                <Empty icon=Icon::Review title="Nothing differs"><p>"One comes to the same as the other."</p></Empty>
            </div>
        }
        .into_any();
    }
    let groups = alike(nodes, &names);
    let all = RwSignal::new(false);
    let hidden = groups.len().saturating_sub(SHOWN);
    let late: Vec<_> = groups.iter().skip(SHOWN).cloned().collect();
    let (late, late_names) = (StoredValue::new(late), StoredValue::new(names.clone()));
    let rest = move || {
        match all.get() {
        true => late.get_value().into_iter().map(|group| node_card(group, &late_names.get_value())).collect_view().into_any(),
        false if hidden == 0 => ().into_any(),
        false => view! { <button class="button wide" type="button" on:click=move |_| all.set(true)>"Show " {hidden} " more"</button> }.into_any(),
    }
    };
    let tools = names.marks.map(|marks| view! { <div class="changes-tools">{opened::open_all(marks)}</div> });
    view! {
        {tools}
        {deployments.into_iter().map(|deployment| deployment_card(deployment, &names)).collect_view()}
        {groups.into_iter().take(SHOWN).map(|group| node_card(group, &names)).collect_view()}
        {rest}
        <p class="muted">{unchanged} " other documents stay as they are."</p>
    }
    .into_any()
}

/// Lines that a difference has when it is unfolded.
fn lines(difference: &Difference) -> usize {
    let deployments = difference.deployments.iter().map(lines_of_deployment);
    deployments.chain(difference.nodes.iter().map(lines_of_node)).sum()
}

fn lines_of_deployment(deployment: &DeploymentDifference) -> usize {
    let roles: usize = deployment.roles.iter().map(|role| 1 + role.data.len()).sum();
    let own = [deployment.renamed.is_some(), deployment.parent.is_some(), deployment.phantom.is_some()];
    let own = own.into_iter().filter(|is| *is).count();
    (roles + deployment.barclamps.len() + deployment.inactive_jigs.len() + own).max(1)
}

fn lines_of_node(node: &NodeDifference) -> usize {
    let own = usize::from(node.renamed.is_some()) + usize::from(node.phantom.is_some());
    (node.noderoles.iter().map(|noderole| 1 + noderole.data.len()).sum::<usize>() + own).max(1)
}

/// The documents of each card.
pub(super) fn cards(review: &ReviewView) -> Vec<Vec<Anchor>> {
    let names = Names {
        deployments: BTreeMap::new(),
        brought: review.brought.clone(),
        talks: None,
        marks: None,
        unfolded: false,
    };
    let deployments = review.difference.deployments.iter().map(|deployment| vec![Anchor::Deployment(deployment.id)]);
    let nodes = alike(review.difference.nodes.clone(), &names);
    deployments.chain(nodes.iter().map(Group::documents)).collect()
}

/// Nodes that change in the same way.
#[derive(Clone)]
struct Group {
    first: NodeDifference,
    others: Vec<(NodeId, String)>,
}

impl Group {
    fn documents(&self) -> Vec<Anchor> {
        let others = self.others.iter().map(|(id, _)| *id);
        std::iter::once(self.first.id).chain(others).map(Anchor::Node).collect()
    }
}

fn alike(nodes: Vec<NodeDifference>, names: &Names) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for node in nodes {
        match groups.iter_mut().find(|group| same(&group.first, &node, names)) {
            Some(group) => group.others.push((node.id, node.fqdn.to_string())),
            None => groups.push(Group { first: node, others: Vec::new() }),
        }
    }
    groups
}

fn same(a: &NodeDifference, b: &NodeDifference, names: &Names) -> bool {
    let same_noderole = |(a, b): (&NoderoleDifference, &NoderoleDifference)| {
        let plain = |n: &NoderoleDifference| {
            (n.noderole.clone(), n.deployment, n.mark, n.contents, n.rerun, n.rewired, n.rank, n.bound)
        };
        plain(a) == plain(b) && a.data == b.data && names.brought.get(&a.id) == names.brought.get(&b.id)
    };
    a.mark == b.mark
        && a.moved == b.moved
        && (a.renamed.is_none() && b.renamed.is_none() && a.phantom == b.phantom)
        && a.noderoles.len() == b.noderoles.len()
        && a.noderoles.iter().zip(&b.noderoles).all(same_noderole)
}

fn deployment_card(deployment: DeploymentDifference, names: &Names) -> AnyView {
    let is_new = (deployment.mark != Mark::Changed).then(|| mark_pill(deployment.mark));
    let rows = lines_of_deployment(&deployment);
    let id = deployment.id;
    let own = deployment_rows(&deployment, names);
    let nothing = own.is_none()
        && deployment.roles.is_empty()
        && deployment.barclamps.is_empty()
        && deployment.inactive_jigs.is_empty();
    let card = vec![Anchor::Deployment(id)];
    let mark = opened::mark(names.marks, &card);
    let name = deployment.name.to_string();
    let table = view! {
        <div class="table-scroll">
            <table class="table changes">
                <thead class="unseen"><tr><th scope="col">"How"</th><th scope="col">"What"</th><th scope="col">"Values"</th><th scope="col">"Comments"</th></tr></thead>
                <tbody>
                    {own}
                    {deployment.barclamps.into_iter().map(|barclamp| barclamp_row(id, barclamp, names)).collect_view()}
                    {deployment.roles.into_iter().map(|role| role_rows(id, role, names)).collect_view()}
                    {nothing.then(|| view! { <tr><td></td><td class="muted">"No roles of its own."</td><td></td><td></td></tr> })}
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
                {names.talk(Anchor::Deployment(id), &format!("deployment {name}"))}
            </header>
            {opened::fold(names.marks, card, rows, names.unfolded, table.into_any())}
        </section>
    }
    .into_any()
}

/// What differs of a deployment itself; None: nothing.
fn deployment_rows(deployment: &DeploymentDifference, names: &Names) -> Option<AnyView> {
    let mut rows = Vec::new();
    if let Some(renamed) = &deployment.renamed {
        rows.push(own_row("name", Some(renamed.old.to_string()), Some(renamed.new.to_string())));
    }
    if let Some(parent) = deployment.parent {
        let above = |id: Option<DeploymentId>| id.map(|id| names.deployment(Some(id)));
        rows.push(own_row("below", above(parent.old), above(parent.new)));
    }
    if let Some(phantom) = deployment.phantom {
        rows.push(own_row("node that stands for it", Some(phantom.old.to_string()), Some(phantom.new.to_string())));
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

/// What differs of a node itself; None: nothing.
fn node_rows(node: &NodeDifference) -> Option<AnyView> {
    let mut rows = Vec::new();
    if let Some(renamed) = &node.renamed {
        rows.push(own_row("name", Some(renamed.old.to_string()), Some(renamed.new.to_string())));
    }
    if let Some(phantom) = node.phantom {
        let word = |is: bool| Some(if is { "a deployment" } else { "a machine" }.to_owned());
        rows.push(own_row("stands for", word(phantom.old), word(phantom.new)));
    }
    (!rows.is_empty()).then(|| rows.into_any())
}

fn own_row(what: &str, old: Option<String>, new: Option<String>) -> AnyView {
    let mark = match (&old, &new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Changed,
    };
    let values = view! {
        {old.map(|old| view! { <del><span class="unseen">"before: "</span>{old}</del> " " })}
        {new.map(|new| view! { <ins><span class="unseen">"after: "</span>{new}</ins> })}
    };
    row(mark, view! { <b>{what.to_owned()}</b> }, values, ().into_any())
}

fn barclamp_row(id: DeploymentId, barclamp: BarclampDifference, names: &Names) -> AnyView {
    let values = view! {
        {barclamp.old.map(|old| view! { <del>{old}</del> " " })}
        {barclamp.new.map(|new| view! { <ins>{new}</ins> })}
    };
    let talk = names.talk(Anchor::Barclamp(id, barclamp.barclamp.clone()), barclamp.barclamp.as_str());
    row(
        barclamp.mark,
        view! { <b>{barclamp.barclamp.to_string()}</b> <span class="muted">" barclamp"</span> },
        values,
        talk,
    )
}

fn role_rows(id: DeploymentId, role: RoleDifference, names: &Names) -> AnyView {
    let content =
        (role.content && role.mark == Mark::Changed).then_some("another content: definition, scripts or schemas");
    let about = view! { <b>{role.role.to_string()}</b> <span class="muted">" role"</span> };
    let name = role.role.clone();
    let value = |change: Change| {
        let what = format!("{name}, {}", change.path);
        let talk = names.talk(Anchor::Role(id, name.clone(), Some(change.path.clone())), &what);
        value_row(change, talk)
    };
    view! {
        {row(role.mark, about, content, names.talk(Anchor::Role(id, name.clone(), None), name.as_str()))}
        {role.data.into_iter().map(value).collect_view()}
    }
    .into_any()
}

fn node_card(group: Group, names: &Names) -> AnyView {
    let card = group.documents();
    let mark = opened::mark(names.marks, &card);
    let Group { first, others } = group;
    let moved = first.moved.map(|(from, to)| {
        let said = match from {
            Some(_) => format!("moves from {} to {}", names.deployment(from), names.deployment(to)),
            None => format!("joins {}", names.deployment(to)),
        };
        view! { <span class="pill" data-state="warn">{icon(Icon::Bind)} {said}</span> }
    });
    let also = (!others.is_empty()).then(|| {
        let n = others.len();
        view! {
            <details>
                <summary class="muted">"and " {n} " more in the same way"</summary>
                <p>{others.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ")}</p>
            </details>
        }
    });
    let unchanged =
        (first.unchanged > 0).then(|| view! { <span class="muted">{first.unchanged} " unchanged on it"</span> });
    let rows =
        first.noderoles.iter().take(LINES).map(|noderole| noderole_rows(first.id, noderole, names)).collect_view();
    let left = first.noderoles.len().saturating_sub(LINES);
    let left = (left > 0).then(|| view! { <tr><td></td><td class="muted">"and " {left} " more on this node: the Graph tab and the difference as JSON have them"</td><td></td><td></td></tr> });
    let table = view! {
        <div class="table-scroll">
            <table class="table changes">
                <thead class="unseen"><tr><th scope="col">"How"</th><th scope="col">"What"</th><th scope="col">"Values"</th><th scope="col">"Comments"</th></tr></thead>
                <tbody>{node_rows(&first)} {rows} {left}</tbody>
            </table>
        </div>
    };
    view! {
        <section class="card">
            <header>
                <h2>{first.fqdn.to_string()}</h2>
                {tally(&first.noderoles)}
                {moved}
                {also}
                <span class="grow"></span>
                {unchanged}
                {mark}
                {names.talk(Anchor::Node(first.id), &format!("node {}", first.fqdn.short()))}
            </header>
            {opened::fold(names.marks, card, lines_of_node(&first), names.unfolded, table.into_any())}
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
        ("todo", Icon::Again, again, "run again"),
        ("warn", Icon::Data, of(Mark::Changed) - again.min(of(Mark::Changed)), "changed"),
        ("error", Icon::Bin, of(Mark::Removed), "removed"),
    ];
    let some = all.into_iter().filter(|(_, _, n, _)| *n > 0);
    some.map(
        |(colour, shape, n, word)| view! { <span class="pill" data-state=colour>{icon(shape)} {n} " " {word}</span> },
    )
    .collect_view()
    .into_any()
}

fn noderole_rows(node: NodeId, noderole: &NoderoleDifference, names: &Names) -> AnyView {
    let mut notes = Vec::new();
    notes.extend(names.brought.get(&noderole.id).cloned());
    notes.extend(noderole.rerun.then(|| "runs again".to_owned()));
    notes.extend(noderole.content.then(|| "another content of the role".to_owned()));
    notes.extend(noderole.rewired.then(|| "waits for other noderoles than before".to_owned()));
    let instance = (noderole.noderole.instance > 0).then(|| format!(" #{}", noderole.noderole.instance));
    let about = view! {
        <b>{noderole.noderole.role.to_string()} {instance}</b>
        " "
        <span class="muted">{notes.join(", ")}</span>
    };
    let from = noderole.bound.map(|bound| format!(", before in {}", names.deployment(Some(bound.old))));
    let place = view! { <span class="muted">"in " {names.deployment(Some(noderole.deployment))} {from}</span> };
    let key = noderole.noderole.clone();
    let value = |change: Change| {
        let what = format!("{key}, {}", change.path);
        let talk = names.talk(Anchor::Noderole(node, key.clone(), Some(change.path.clone())), &what);
        value_row(change, talk)
    };
    let talk = names.talk(Anchor::Noderole(node, key.clone(), None), &key.to_string());
    view! {
        {row(noderole.mark, about, place, talk)}
        {noderole.data.iter().cloned().map(value).collect_view()}
    }
    .into_any()
}

fn row(mark: Mark, what: impl IntoView + 'static, values: impl IntoView + 'static, talk: AnyView) -> AnyView {
    let (word, sign, said) = match mark {
        Mark::Added => ("added", "+", "added"),
        Mark::Removed => ("removed", "−", "removed"),
        Mark::Changed => ("changed", "~", "changed"),
    };
    view! {
        <tr data-mark=word>
            <td class="sign"><span aria-hidden="true">{sign}</span><span class="unseen">{said}</span></td>
            <td>{what}</td>
            <td>{values}</td>
            <td class="talks">{talk}</td>
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
            <td class="sign"><span aria-hidden="true">{sign}</span><span class="unseen">{word}</span></td>
            <td><code>{path}</code></td>
            <td>
                {change.old.map(|old| view! { <del><span class="unseen">"before: "</span>{text(old)}</del> " " })}
                {change.new.map(|new| view! { <ins><span class="unseen">"after: "</span>{text(new)}</ins> " " })}
                {change.secret.then(|| view! { <span class="muted">"secret, " {word}</span> })}
            </td>
            <td class="talks">{talk}</td>
        </tr>
    }
    .into_any()
}

fn mark_pill(mark: Mark) -> AnyView {
    let (colour, word) = match mark {
        Mark::Added => ("proposed", "new"),
        Mark::Removed => ("error", "goes"),
        Mark::Changed => ("warn", "changes"),
    };
    view! { <span class="pill" data-state=colour>{word}</span> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::cluster::NoderoleKey;
    use engine::ids::{Fqdn, NodeId, RoleName};
    use uuid::Uuid;

    fn node(n: u128, role: &str) -> NodeDifference {
        let (id, key) = (NodeId(Uuid::from_u128(n)), NoderoleKey::first(RoleName::parse(role).unwrap()));
        NodeDifference {
            id,
            fqdn: Fqdn::parse(&format!("web-{n}.example.com")).unwrap(),
            mark: Mark::Changed,
            renamed: None,
            phantom: None,
            moved: None,
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
    fn nodes_that_change_alike_are_one_card_unless_their_reasons_differ() {
        let mut names =
            Names { deployments: BTreeMap::new(), brought: BTreeMap::new(), talks: None, marks: None, unfolded: true };
        let nodes = vec![node(1, "app"), node(2, "db"), node(3, "app")];
        let groups = alike(nodes.clone(), &names);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].others, [(nodes[2].id, "web-3.example.com".to_owned())]);
        assert_eq!(groups[0].documents(), [Anchor::Node(nodes[0].id), Anchor::Node(nodes[2].id)]);
        names.brought.insert(nodes[2].noderoles[0].id, "brought by front".into());
        assert_eq!(alike(nodes, &names).len(), 3);
    }

    #[test]
    fn a_deployment_without_roles_is_still_a_change() {
        let nothing = NodeDifference { noderoles: Vec::new(), ..node(1, "app") };
        assert_eq!(count(&Difference { nodes: vec![nothing, node(2, "db")], ..Difference::default() }), 2);
    }
}
