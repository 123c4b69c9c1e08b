//! The summary of a change in lines, for the top of a review.
//!
//! Severe effects come first: irreversible changes, removals, disabled jigs, the approval policy,
//! and moved nodes. These lines are never cut. Instead, each kind has a few lines that name the
//! first items and count the rest. All other lines may be cut, because the list of changes below is
//! complete. Changes that another commit has made since the edit are left out. A node that moves
//! down with its first binding is not severe, because every new node does.

use std::collections::{BTreeMap, BTreeSet};

use engine::blueprint::impact::{self, Counted, Impact, Loss, Touched};
use engine::blueprint::secret_uses::SecretChange;
use engine::catalog::OnInput;
use engine::cluster::NodeDoc;
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, RoleName};
use engine::plan::effects::{EffectCause, NodeMove};
use engine::plan::{Effects, NumberedEdit};

use crate::current::CurrentState;
use crate::proposals::change::Planned;
use crate::proposals::edit_text::Names;
use crate::text::{self, some_of};

/// Maximum number of reasons for re-runs in a summary.
const MAX_REASONS: usize = 5;
/// Maximum number of lines in a summary.
const MAX_LINES: usize = 40;
/// Maximum number of lines per severe kind. One further line counts the rest.
const MAX_GROUPS: usize = 4;

/// The lines of a change.
#[derive(Debug, Default)]
pub(crate) struct SummaryLines {
    /// Severe lines. Their number is bounded for every change.
    severe: Vec<String>,
    rest: Vec<String>,
    /// The lines of `rest` about re-runs. The summary has one line for all of them, and the
    /// requested changes one for each reason.
    reruns: Vec<String>,
}

impl SummaryLines {
    /// How many of the first lines are severe.
    pub fn severe_count(&self) -> usize {
        self.severe.len()
    }

    /// A short form for lists: the first line, and the number of further requested changes.
    pub fn short(&self, requested: &Self) -> String {
        let Some(first) = self.severe.first().or_else(|| self.rest.first()) else {
            return String::new();
        };
        let is_rerun = self.reruns.contains(first);
        let is_other =
            |line: &&String| *line != first && !(is_rerun && requested.reruns.contains(line));
        match requested.severe.iter().chain(&requested.rest).filter(is_other).count() {
            0 => first.clone(),
            1 => format!("{first} And 1 more change."),
            more => format!("{first} And {more} more changes."),
        }
    }

    /// The severe lines, and the others up to the limit.
    pub fn bounded(self) -> Vec<String> {
        let Self { severe: mut lines, mut rest, .. } = self;
        let limit = MAX_LINES.saturating_sub(lines.len());
        let more = rest.len().saturating_sub(limit);
        rest.truncate(limit);
        lines.extend(rest);
        if more > 0 {
            lines.push(format!("And {more} more. The list of changes shows all of them."));
        }
        lines
    }
}

/// The preview of further edits, as lines.
pub(crate) fn lines_of(
    present: &CurrentState,
    edits: &[NumberedEdit],
    planned: &Planned,
) -> Vec<String> {
    let names = Names::of(present, edits.iter().map(|e| &e.edit));
    all(&names, &planned.effects, &impact::impact(&planned.from(present), None)).bounded()
}

/// The requested changes and their impact.
pub(crate) fn all(names: &Names<'_>, effects: &Effects, impact: &Impact) -> SummaryLines {
    let named = |touched: &Touched| touched.to_string();
    let destructive: Vec<String> = impact.irreversible.first.iter().map(named).collect();
    let mut severe = Vec::new();
    if !destructive.is_empty() {
        let named = text::first_of(&destructive, impact.irreversible.count);
        severe.push(format!("Can’t be undone: {named}."));
    }
    severe.extend(severe_changes(names, effects));
    severe.extend(secrets(impact));
    let mut rest = additions(names, effects);
    let reruns: Vec<String> =
        impact.restarts.first.iter().map(|restart| named(&restart.touched)).collect();
    let reruns: Vec<String> = (!reruns.is_empty())
        .then(|| format!("Runs again: {}.", text::first_of(&reruns, impact.restarts.count)))
        .into_iter()
        .collect();
    rest.extend(reruns.iter().cloned());
    let downstream: usize = impact
        .downstream
        .iter()
        .filter(|group| group.on_input == OnInput::Rerun)
        .map(|group| group.noderoles.count)
        .sum();
    if downstream > 0 {
        rest.push(format!(
            "Also runs again if the input changes: {}.",
            text::count(downstream, "noderole")
        ));
    }
    rest.extend(waiting_lines(effects));
    let retained: Vec<String> = impact.retained.first.iter().map(named).collect();
    if !retained.is_empty() {
        let named = text::first_of(&retained, impact.retained.count);
        rest.push(format!(
            "Does not run again now, but uses the new content or data in its next run: {named}."
        ));
    }
    rest.extend(lacks(impact));
    rest.extend(on_removed_nodes(impact));
    if impact.lost.count == 0 && !has_removals(effects) {
        rest.push("Nothing is removed.".into());
    }
    SummaryLines { severe, rest, reruns }
}

/// The requested changes without impact, because these depend on the current step states.
pub(crate) fn requested_changes(names: &Names<'_>, effects: &Effects) -> SummaryLines {
    let reasons: BTreeSet<&String> = effects.reruns.iter().map(|rerun| &rerun.reason).collect();
    let reasons = reasons.into_iter().filter(|reason| !reason.is_empty());
    let mut rest = additions(names, effects);
    let reruns: Vec<String> = reasons
        .take(MAX_REASONS)
        .map(|reason| format!("Runs steps again: {}", text::sentence(reason)))
        .collect();
    rest.extend(reruns.iter().cloned());
    rest.extend(waiting_lines(effects));
    SummaryLines { severe: severe_changes(names, effects), rest, reruns }
}

/// The severe lines among the requested changes, the most severe first.
fn severe_changes(names: &Names<'_>, effects: &Effects) -> Vec<String> {
    let mut lines = removals(names, effects);
    let off: Vec<String> =
        effects.jigs.iter().filter(|switch| !switch.active).map(|s| s.jig.to_string()).collect();
    match off.as_slice() {
        [] => {}
        [jig] => lines
            .push(format!("Turns jig {jig} off: no step that needs it starts in any deployment.")),
        jigs => lines.push(format!(
            "Turns jigs {} off: no step that needs one of them starts in any deployment.",
            some_of(jigs)
        )),
    }
    let changed = effects.connections.iter().filter(|set| {
        let is_unchanged =
            |doc: &NodeDoc| set.connection.apply(doc.connection.as_ref()).ok() == doc.connection;
        names.changes_node(set.node, is_unchanged)
    });
    let changed: Vec<String> = changed.map(|set| names.node(set.node)).collect();
    if !changed.is_empty() {
        let possessive = if changed.len() == 1 { "its" } else { "their" };
        let nodes = some_nodes(&changed);
        lines.push(format!(
            "Changes the connection of {nodes}: {possessive} steps run on the machine of the new \
             connection."
        ));
    }
    lines.extend(effects.policy.as_ref().map(|set| names.policy(&set.policy)));
    lines.extend(effects.moved_deployments.iter().map(|moved| {
        let [deployment, from, to] =
            [moved.deployment, moved.from, moved.to].map(|id| names.deployment(id));
        let below = names.with_descendants(moved.deployment);
        format!("Deployment {deployment} moves from {from} to {to}{below}.")
    }));
    lines.extend(moves(
        names,
        effects.moved.iter().filter(|moved| matches!(moved.cause, EffectCause::Requested { .. })),
    ));
    lines
}

/// Names for one line, grouped by the property they share.
type Grouped<K> = BTreeMap<K, Vec<String>>;

/// The first nodes by name, and the number of others.
fn some_nodes(nodes: &[String]) -> String {
    some_of(&text::in_order(nodes.iter().cloned()))
}

/// One line for each of the first groups, and one for the rest.
fn group_lines<K: Ord>(
    groups: Grouped<K>,
    line: impl Fn(&K, &[String]) -> String,
    rest: impl Fn(&[K], &[String]) -> String,
) -> Vec<String> {
    let all = groups.len();
    // A line for a single remaining group would save nothing.
    let listed = if all > MAX_GROUPS + 1 { MAX_GROUPS } else { all };
    let mut groups = groups.into_iter();
    let mut lines: Vec<String> =
        groups.by_ref().take(listed).map(|(key, named)| line(&key, &named)).collect();
    let (keys, named): (Vec<K>, Vec<Vec<String>>) = groups.unzip();
    if !keys.is_empty() {
        let named: BTreeSet<String> = named.into_iter().flatten().collect();
        lines.push(rest(&keys, &named.into_iter().collect::<Vec<_>>()));
    }
    lines
}

/// Removals, the most severe first.
fn removals(names: &Names<'_>, effects: &Effects) -> Vec<String> {
    let mut expunged: Grouped<&str> = BTreeMap::new();
    for gone in &effects.expunged {
        expunged.entry(gone.reason.as_str()).or_default().push(gone.fqdn.short().to_owned());
    }
    let on = |nodes: &[String]| if nodes.len() == 1 { "it" } else { "them" };
    let mut lines = group_lines(
        expunged,
        |reason, nodes| {
            let reason = text::sentence(reason);
            format!(
                "Expunges {}: everything on {} counts as removed immediately. Reason: {reason}",
                some_nodes(nodes),
                on(nodes)
            )
        },
        |_, nodes| {
            format!(
                "Expunges {} for other reasons: everything on {} counts as removed immediately.",
                some_nodes(nodes),
                on(nodes)
            )
        },
    );
    let removed: Vec<String> =
        effects.removed_deployments.iter().map(|gone| gone.name.to_string()).collect();
    match removed.as_slice() {
        [] => {}
        [one] => lines.push(format!("Removes deployment {one}.")),
        several => lines.push(format!("Removes deployments {}.", some_of(several))),
    }
    let mut roles: Grouped<DeploymentId> = BTreeMap::new();
    for gone in &effects.removed_roles {
        roles.entry(gone.deployment).or_default().push(gone.role.to_string());
    }
    let deployments =
        |ids: &[DeploymentId]| ids.iter().map(|id| names.deployment(*id)).collect::<Vec<_>>();
    lines.extend(group_lines(
        roles,
        |deployment, roles| {
            let (word, possessive) =
                if roles.len() == 1 { ("role", "its") } else { ("roles", "their") };
            format!(
                "Removes {word} {} and {possessive} data from {}.",
                some_of(roles),
                names.deployment(*deployment)
            )
        },
        |ids, roles| {
            format!(
                "Removes roles {} and their data from {}.",
                some_of(roles),
                some_of(&deployments(ids))
            )
        },
    ));
    for gone in effects.unpinned.iter().filter(|gone| gone.to.is_none()) {
        lines.push(format!(
            "Stops using barclamp {} in {}.",
            gone.barclamp,
            names.deployment(gone.deployment)
        ));
    }
    let mut unbound: Grouped<&RoleName> = BTreeMap::new();
    for gone in &effects.unbound {
        unbound.entry(&gone.noderole.role).or_default().push(names.node(gone.node));
    }
    lines.extend(group_lines(
        unbound,
        |role, nodes| format!("Removes {role} from {}.", some_nodes(nodes)),
        |roles, nodes| {
            let roles: Vec<String> = roles.iter().map(ToString::to_string).collect();
            format!("Removes {} from {}.", some_of(&roles), some_nodes(nodes))
        },
    ));
    lines
}

fn moves<'e>(names: &Names<'_>, all: impl Iterator<Item = &'e NodeMove>) -> Vec<String> {
    let mut moves: Grouped<(DeploymentId, DeploymentId)> = BTreeMap::new();
    for moved in all {
        moves.entry((moved.from, moved.to)).or_default().push(names.node(moved.node));
    }
    group_lines(
        moves,
        |(from, to), nodes| {
            let verb = if nodes.len() == 1 { "moves" } else { "move" };
            format!(
                "{} {verb} from {} to {}.",
                some_nodes(nodes),
                names.deployment(*from),
                names.deployment(*to)
            )
        },
        |_, nodes| format!("{} move between other deployments.", some_nodes(nodes)),
    )
}

fn has_removals(effects: &Effects) -> bool {
    let gone = [
        effects.expunged.len(),
        effects.removed_deployments.len(),
        effects.removed_roles.len(),
        effects.unbound.len(),
    ];
    gone.iter().any(|n| *n > 0) || effects.unpinned.iter().any(|gone| gone.to.is_none())
}

/// Additions and changes.
fn additions(names: &Names<'_>, effects: &Effects) -> Vec<String> {
    let mut lines = Vec::new();
    for deployment in &effects.deployments {
        lines.push(format!(
            "Creates {} below {}.",
            deployment.name,
            names.deployment(deployment.parent)
        ));
    }
    for pin in &effects.barclamps {
        let (barclamp, version) = (&pin.barclamp, names.version(pin.version));
        lines.push(format!("Uses {barclamp} {version} in {}.", names.deployment(pin.deployment)));
    }
    for gone in &effects.unpinned {
        let Some(to) = gone.to else { continue };
        let (barclamp, to, from) = (&gone.barclamp, names.version(to), names.version(gone.from));
        let place = names.deployment(gone.deployment);
        lines.push(format!(
            "Uses {barclamp} {to} instead of {from} in {place}, as the parent deployment does."
        ));
    }
    let mut bindable: Grouped<DeploymentId> = BTreeMap::new();
    for new in effects.roles.iter().filter(|new| matches!(new.cause, EffectCause::Requested { .. }))
    {
        bindable.entry(new.deployment).or_default().push(new.role.to_string());
    }
    for (deployment, roles) in &bindable {
        lines.push(format!(
            "Makes {} available in {}.",
            some_of(roles),
            names.deployment(*deployment)
        ));
    }
    let mut requested: Grouped<&RoleName> = BTreeMap::new();
    let mut implicit: BTreeSet<&RoleName> = BTreeSet::new();
    for bound in &effects.bound {
        match &bound.cause {
            EffectCause::Requested { .. } => {
                requested.entry(&bound.noderole.role).or_default().push(names.node(bound.node))
            }
            EffectCause::Required { .. } => drop(implicit.insert(&bound.noderole.role)),
        }
    }
    for (role, nodes) in &requested {
        lines.push(format!("Adds {role} on {}.", some_nodes(nodes)));
    }
    if !implicit.is_empty() {
        let implicit_count = effects.bound.len() - requested.values().map(Vec::len).sum::<usize>();
        let roles: Vec<String> = implicit.iter().map(|r| r.to_string()).collect();
        lines.push(format!(
            "Also adds {}: {}.",
            text::count(implicit_count, "noderole"),
            some_of(&roles)
        ));
    }
    lines.extend(moves(
        names,
        effects.moved.iter().filter(|moved| matches!(moved.cause, EffectCause::Required { .. })),
    ));
    for set in effects.role_data.iter().filter(|set| names.changes_role_data(set)) {
        lines.push(format!(
            "Sets the data of {} in {}.",
            set.role,
            names.deployment(set.deployment)
        ));
    }
    let hints = effects
        .hints
        .iter()
        .filter(|set| names.changes_node(set.node, |doc| doc.hints == set.hints));
    let hints: Vec<String> = hints.map(|set| names.node(set.node)).collect();
    if !hints.is_empty() {
        lines.push(format!("Sets the hints of {}.", some_nodes(&hints)));
    }
    let mut own: Grouped<&RoleName> = BTreeMap::new();
    for set in &effects.noderole_data {
        let is_unchanged = |doc: &NodeDoc| {
            doc.noderoles.get(&set.noderole).is_some_and(|known| known.data == set.data)
        };
        if !names.changes_node(set.node, is_unchanged) {
            continue;
        }
        own.entry(&set.noderole.role).or_default().push(names.node(set.node));
    }
    for (role, nodes) in &own {
        lines.push(format!("Sets the data of {role} on {}.", some_nodes(nodes)));
    }
    lines
}

/// The secrets that the change begins to use. The review's list of secrets has the others, and
/// those no longer used.
fn secrets(impact: &Impact) -> Vec<String> {
    let used = impact.secrets.iter().filter(|secret| secret.is_new_to_runs());
    let used: Vec<&SecretChange> = used.collect();
    let listed = if used.len() > MAX_GROUPS + 1 { MAX_GROUPS } else { used.len() };
    let mut lines: Vec<String> =
        used.iter().take(listed).map(|secret| text::capitalize(&format!("{secret}."))).collect();
    if used.len() > listed {
        lines.push(format!(
            "Adds or replaces {} more uses of secrets. The list of effects shows all of them.",
            used.len() - listed
        ));
    }
    lines
}

/// Items of barclamp versions that the replacing versions lack.
fn lacks(impact: &Impact) -> Vec<String> {
    let mut removed: Grouped<(&BarclampName, &DeploymentName)> = BTreeMap::new();
    for loss in &impact.lost.first {
        if let Loss::Content { part, barclamp, deployment } = loss {
            removed.entry((barclamp, deployment)).or_default().push(part.clone());
        }
    }
    group_lines(
        removed,
        |(barclamp, deployment), lines| {
            format!("In {deployment}, {barclamp} no longer has: {}.", some_of(lines))
        },
        |_, lines| format!("Other barclamps no longer have: {}.", some_of(lines)),
    )
}

/// The actions that a removal runs on the nodes.
fn on_removed_nodes(consequences: &Impact) -> Vec<String> {
    let named = |list: &Counted<Touched>| {
        let first: Vec<String> = list.first.iter().map(ToString::to_string).collect();
        text::first_of(&first, list.count)
    };
    let mut lines = Vec::new();
    if !consequences.undone.is_empty() {
        let nodes: BTreeSet<&Fqdn> =
            consequences.undone.first.iter().map(|touched| &touched.fqdn).collect();
        let on = match consequences.undone.more() {
            0 => text::count(nodes.len(), "node"),
            _ => format!("more than {}", text::count(nodes.len(), "node")),
        };
        lines.push(format!(
            "Runs remove on {on} before these noderoles are gone: {}.",
            named(&consequences.undone)
        ));
    }
    if !consequences.left_in_place.is_empty() {
        lines.push(format!(
            "Nothing is run on the node for: {}. Their files and services stay on it.",
            named(&consequences.left_in_place)
        ));
    }
    lines
}

/// Noderoles whose parents change, and those that no longer wait for a jig.
fn waiting_lines(effects: &Effects) -> Vec<String> {
    let mut lines = Vec::new();
    if !effects.rewired.is_empty() {
        lines.push(format!(
            "{} for other parents than before.",
            text::waiting_noderoles(effects.rewired.len())
        ));
    }
    let on = effects.jigs.iter().filter(|switch| switch.active);
    lines.extend(on.map(|switch| {
        format!("Turns jig {} on: steps that wait for it can start in any deployment.", switch.jig)
    }));
    lines
}

#[cfg(test)]
mod tests {
    use crate::proposals::summary::*;

    fn lines(n: usize) -> Vec<String> {
        (1..=n).map(|n| format!("line {n}")).collect()
    }

    #[test]
    fn severe_lines_are_never_cut() {
        let text = SummaryLines { severe: lines(3), rest: lines(100), ..SummaryLines::default() }
            .bounded();
        assert_eq!(
            (text.len(), text[MAX_LINES].as_str()),
            (MAX_LINES + 1, "And 63 more. The list of changes shows all of them.")
        );
        assert_eq!(text[..3], lines(3));
        let text = SummaryLines { severe: lines(60), rest: lines(2), ..SummaryLines::default() };
        assert_eq!(text.severe_count(), 60);
        let text = text.bounded();
        assert_eq!(
            (&text[..60], text[60].as_str()),
            (&lines(60)[..], "And 2 more. The list of changes shows all of them.")
        );
        assert_eq!(
            SummaryLines { severe: lines(1), rest: lines(1), ..SummaryLines::default() }.bounded(),
            ["line 1", "line 1"]
        );
    }

    #[test]
    fn short_form_has_first_line_and_count() {
        let text = |severe: &[&str], rest: &[&str]| {
            let owned =
                |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
            SummaryLines { severe: owned(severe), rest: owned(rest), ..SummaryLines::default() }
        };
        let requested = text(&["Removes a."], &["Adds b.", "Adds c."]);
        let severe = text(
            &["Can’t be undone: x.", "Removes a."],
            &["Adds b.", "Adds c.", "Also runs again if the input changes: 3 noderoles."],
        );
        assert_eq!(
            severe.short(&requested),
            "Can’t be undone: x. And 3 more changes.",
            "the impact is not counted as a change"
        );
        assert_eq!(requested.short(&requested), "Removes a. And 2 more changes.");
        let two = text(&[], &["Adds b.", "Adds c."]);
        assert_eq!(two.short(&two), "Adds b. And 1 more change.");
        let one = text(&[], &["Adds b."]);
        assert_eq!(text(&[], &["Adds b.", "Nothing is removed."]).short(&one), "Adds b.");
        assert_eq!(text(&[], &[]).short(&text(&[], &[])), "");
        let long = SummaryLines { severe: Vec::new(), rest: lines(100), ..SummaryLines::default() };
        assert_eq!(
            long.short(&long),
            "line 1 And 99 more changes.",
            "the count includes lines that the review omits"
        );
    }

    #[test]
    fn named_reruns_count_as_one_change() {
        let of = |lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            SummaryLines { rest: lines.clone(), reruns: lines, ..SummaryLines::default() }
        };
        let shown = of(&["Runs again: a on n1, b on n1."]);
        let requested = of(&["Runs steps again: One.", "Runs steps again: Two."]);
        assert_eq!(shown.short(&requested), "Runs again: a on n1, b on n1.");
        let removal = SummaryLines { severe: lines(1), ..SummaryLines::default() };
        assert_eq!(removal.short(&requested), "line 1 And 2 more changes.");
    }

    #[test]
    fn each_kind_has_bounded_lines() {
        let groups = |n: usize| {
            (1..=n).map(|n| (n, vec![format!("a{n}"), "b".to_owned()])).collect::<Grouped<usize>>()
        };
        let line = |key: &usize, named: &[String]| format!("{key}: {}", named.len());
        let rest =
            |keys: &[usize], named: &[String]| format!("{} more: {}", keys.len(), named.len());
        assert_eq!(group_lines(groups(0), line, rest), Vec::<String>::new());
        assert_eq!(group_lines(groups(5), line, rest), ["1: 2", "2: 2", "3: 2", "4: 2", "5: 2"]);
        assert_eq!(
            group_lines(groups(40), line, rest),
            ["1: 2", "2: 2", "3: 2", "4: 2", "36 more: 37"],
            "each group is listed once"
        );
    }
}
