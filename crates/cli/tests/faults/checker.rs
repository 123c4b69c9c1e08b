//! The checker counts violations of the guarantees in the collected evidence.
//!
//! Runs on a node are judged by the node's own journal, not by the database. Results in the
//! database are judged by its rows and by a trigger that recorded each change. Times are hundredths
//! of a second on the monotonic clock of the machine that hosts everything. The checker does no
//! I/O, so tests can feed it fabricated evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A line of a node's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A run started.
    Start {
        run: i64,
        role: String,
        at: u64,
        /// Whether the run is exclusive.
        exclusive: bool,
        /// Earlier runs with a live process, and whether they are exclusive.
        concurrent: Vec<(i64, bool)>,
    },
    /// The run ended on its own and succeeded.
    End { run: i64, role: String, at: u64 },
}

/// A run in the database.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Run {
    pub id: i64,
    pub step: String,
    pub generation: i64,
    pub outcome: Option<String>,
    /// Whether the run is destructive.
    pub destructive: bool,
    /// Whether the chain of its target is valid: a review with enough approvals by people other
    /// than its authors.
    pub approved: bool,
}

/// The final state of a step.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Step {
    pub id: String,
    pub node: String,
    pub role: String,
    pub state: String,
    pub generation: i64,
    pub applied: i64,
    /// The attempt whose result is the step's output.
    pub wall_of: Option<i64>,
    /// Why the step is not ACTIVE.
    pub reason: Option<String>,
}

/// An observation of the database trigger.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Observation {
    /// `applied`: the end of a run applied its result. `late`: another statement did. `backwards`:
    /// a number decreased.
    pub kind: String,
    pub detail: String,
}

/// A dependency between two steps.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Edge {
    pub node: String,
    pub child: String,
    pub parent_node: String,
    pub parent: String,
}

/// The collected evidence.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// By node.
    pub journals: BTreeMap<String, Vec<Line>>,
    pub runs: Vec<Run>,
    pub steps: Vec<Step>,
    pub edges: Vec<Edge>,
    /// Claim time of each run.
    pub claimed: BTreeMap<i64, u64>,
    /// Retries requested by a person: the step, and its last run before the request.
    pub requested: Vec<(String, i64)>,
    pub seen: Vec<Observation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Unapproved,
    TwoAtOnce,
    Order,
    DestroyedTwice,
    Late,
    Stuck,
    Backwards,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Unapproved,
        Self::TwoAtOnce,
        Self::Order,
        Self::DestroyedTwice,
        Self::Late,
        Self::Stuck,
        Self::Backwards,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unapproved => "run without an approved blueprint",
            Self::TwoAtOnce => "two exclusive runs on a node",
            Self::Order => "order of edges",
            Self::DestroyedTwice => "destructive step started twice",
            Self::Late => "late result applied",
            Self::Stuck => "stuck without a reason",
            Self::Backwards => "moving backwards",
        })
    }
}

/// Violations by kind, each with a description.
#[derive(Debug, Clone, Default)]
pub struct Violations(pub BTreeMap<Kind, Vec<String>>);

impl Violations {
    pub fn count(&self, kind: Kind) -> usize {
        self.0.get(&kind).map_or(0, Vec::len)
    }

    pub fn total(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn add(&mut self, kind: Kind, detail: String) {
        self.0.entry(kind).or_default().push(detail);
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            writeln!(f, "{kind:<34} {}", self.count(kind))?;
            for detail in self.0.get(&kind).into_iter().flatten() {
                writeln!(f, "    {detail}")?;
            }
        }
        Ok(())
    }
}

/// Counts violations.
pub fn judge(evidence: &Evidence) -> Violations {
    let mut found = Violations::default();
    let runs: BTreeMap<i64, &Run> = evidence.runs.iter().map(|run| (run.id, run)).collect();
    for run in evidence.runs.iter().filter(|run| !run.approved) {
        found.add(Kind::Unapproved, format!("run {} of generation {}", run.id, run.generation));
    }
    for (node, lines) in &evidence.journals {
        unknown(&mut found, node, lines, &runs);
        at_once(&mut found, node, lines);
        order(&mut found, node, lines, &evidence.edges);
        order_between(&mut found, node, lines, evidence);
        destroyed_once(&mut found, node, lines, &runs, &evidence.requested);
        backwards(&mut found, node, lines, &runs);
    }
    for step in &evidence.steps {
        settled(&mut found, step, &runs);
    }
    for seen in &evidence.seen {
        match seen.kind.as_str() {
            "late" => found.add(Kind::Late, seen.detail.clone()),
            "backwards" => found.add(Kind::Backwards, seen.detail.clone()),
            _ => {}
        }
    }
    found
}

/// Every run on a node must be approved.
fn unknown(found: &mut Violations, node: &str, lines: &[Line], runs: &BTreeMap<i64, &Run>) {
    for line in lines {
        if let Line::Start { run, role, .. } = line
            && !runs.contains_key(run)
        {
            found.add(
                Kind::Unapproved,
                format!("{role} ran on {node} as run {run}, which nobody knows"),
            );
        }
    }
}

/// No exclusive run may start while another exclusive run has a process, or before one that started
/// earlier has ended.
fn at_once(found: &mut Violations, node: &str, lines: &[Line]) {
    let mut begun: Vec<(i64, bool)> = Vec::new();
    for line in lines {
        match line {
            Line::Start { run, role, exclusive, concurrent, .. } => {
                for (other, _) in
                    concurrent.iter().filter(|(other, its)| *exclusive && *its && other != run)
                {
                    found.add(
                        Kind::TwoAtOnce,
                        format!("{role} began on {node} as run {run} while run {other} was there"),
                    );
                }
                begun.push((*run, *exclusive));
            }
            Line::End { run, role, .. } => {
                let Some(at) = begun.iter().position(|(other, _)| other == run) else {
                    found.add(
                        Kind::TwoAtOnce,
                        format!("{role} ended on {node} as run {run}, which never began"),
                    );
                    continue;
                };
                let (_, exclusive) = begun[at];
                for (other, _) in begun[at + 1..].iter().filter(|(_, its)| exclusive && *its) {
                    let detail =
                        format!("{role} ended on {node} as run {run} after run {other} had begun");
                    found.add(Kind::TwoAtOnce, detail);
                }
            }
        }
    }
    let starts = begun.iter().map(|(run, _)| run);
    let mut once = BTreeSet::new();
    for run in starts {
        if !once.insert(run) {
            found.add(Kind::TwoAtOnce, format!("run {run} began twice on {node}"));
        }
    }
}

/// When a child starts, the last event of each parent on its node must be a success.
fn order(found: &mut Violations, node: &str, lines: &[Line], edges: &[Edge]) {
    let mut ended: BTreeMap<&str, bool> = BTreeMap::new();
    for line in lines {
        match line {
            Line::Start { run, role, .. } => {
                let parents = edges
                    .iter()
                    .filter(|e| e.node == node && e.parent_node == node && e.child == *role);
                for Edge { parent, .. } in
                    parents.filter(|edge| ended.get(edge.parent.as_str()) != Some(&true))
                {
                    found.add(
                        Kind::Order,
                        format!("{role} began on {node} as run {run} before {parent} was done"),
                    );
                }
                ended.insert(role, false);
            }
            Line::End { role, .. } => {
                ended.insert(role, true);
            }
        }
    }
}

/// When a child was claimed that ran later, the last event of each parent on another node must be a
/// success. The start does not count: a parent may be re-run between claim and start, and the
/// child's node can't know that.
fn order_between(found: &mut Violations, node: &str, lines: &[Line], evidence: &Evidence) {
    for line in lines {
        let Line::Start { run, role, at, .. } = line else { continue };
        let at = evidence.claimed.get(run).copied().unwrap_or(*at);
        let edges = evidence
            .edges
            .iter()
            .filter(|e| e.node == node && e.parent_node != node && e.child == *role);
        for Edge { parent_node, parent, .. } in edges {
            let its = evidence.journals.get(parent_node).map(Vec::as_slice).unwrap_or_default();
            if !was_done(its, parent, at) {
                let detail = format!(
                    "{role} ran on {node} as run {run} before {parent} was done on {parent_node}"
                );
                found.add(Kind::Order, detail);
            }
        }
    }
}

/// Whether the last event of a role up to that moment is a success. An event in the same hundredth
/// may have come after it.
fn was_done(lines: &[Line], role_name: &str, by: u64) -> bool {
    let mut heard = lines.iter().filter_map(|line| match line {
        Line::Start { role, at, .. } if role == role_name && *at < by => Some(false),
        Line::End { role, at, .. } if role == role_name && *at <= by => Some(true),
        _ => None,
    });
    heard.next_back() == Some(true)
}

/// A destructive step starts once per generation, and once more for each retry that a person
/// requests.
fn destroyed_once(
    found: &mut Violations,
    node: &str,
    lines: &[Line],
    runs: &BTreeMap<i64, &Run>,
    requested: &[(String, i64)],
) {
    let mut last: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for line in lines {
        let Line::Start { run, role, .. } = line else { continue };
        let Some(run) = runs.get(run).filter(|run| run.destructive) else { continue };
        let Some(before) = last.insert((&run.step, run.generation), run.id) else { continue };
        if !requested
            .iter()
            .any(|(step, after)| *step == run.step && before <= *after && *after < run.id)
        {
            let detail = format!(
                "{role} began on {node} as run {} after run {before}, without a request",
                run.id
            );
            found.add(Kind::DestroyedTwice, detail);
        }
    }
}

/// On its node, attempts and generations of a step only increase.
fn backwards(found: &mut Violations, node: &str, lines: &[Line], runs: &BTreeMap<i64, &Run>) {
    let mut last: BTreeMap<&str, &Run> = BTreeMap::new();
    for line in lines {
        let Line::Start { run, role, .. } = line else { continue };
        let Some(run) = runs.get(run) else { continue };
        if let Some(before) = last.insert(&run.step, run)
            && (before.id >= run.id || before.generation > run.generation)
        {
            let of = |run: &Run| format!("run {} of generation {}", run.id, run.generation);
            found.add(
                Kind::Backwards,
                format!("{role} on {node}: {} after {}", of(run), of(before)),
            );
        }
    }
}

/// A step has the output of its last successful attempt, or a reason why it is not ACTIVE.
fn settled(found: &mut Violations, step: &Step, runs: &BTreeMap<i64, &Run>) {
    let called = format!("{} on {}", step.role, step.node);
    if step.state != "active" {
        if step.reason.as_deref().is_none_or(str::is_empty) {
            found.add(Kind::Stuck, format!("{called} is {}", step.state));
        }
        return;
    }
    if step.applied > step.generation {
        found.add(
            Kind::Backwards,
            format!("{called} has applied {}, and is at {}", step.applied, step.generation),
        );
    }
    let of_step = runs
        .values()
        .filter(|run| run.step == step.id && run.outcome.as_deref() == Some("succeeded"));
    let last = of_step.map(|run| run.id).max();
    if step.wall_of != last {
        found.add(
            Kind::Late,
            format!(
                "{called} has the result of run {:?}, and run {last:?} was the last",
                step.wall_of
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start whose time is derived from its number.
    fn start(run: i64, role: &str, concurrent: &[(i64, bool)]) -> Line {
        let at = run.unsigned_abs() * 10;
        Line::Start {
            run,
            role: role.to_owned(),
            at,
            exclusive: role != "aside",
            concurrent: concurrent.to_vec(),
        }
    }

    fn end(run: i64, role: &str) -> Line {
        Line::End { run, role: role.to_owned(), at: run.unsigned_abs() * 10 + 5 }
    }

    /// `top` on this node depends on `base` on the first node.
    fn edge(node: &str) -> Edge {
        let [node, child, parent_node, parent] = [node, "top", "n1", "base"].map(str::to_owned);
        Edge { node, child, parent_node, parent }
    }

    /// Evidence of two successful steps on one node, the second after the first.
    fn good() -> Evidence {
        let run = |id, step: &str, outcome: &str| Run {
            id,
            step: step.to_owned(),
            generation: id / 10,
            outcome: Some(outcome.to_owned()),
            destructive: false,
            approved: true,
        };
        let step = |role: &str, run| Step {
            id: role.to_owned(),
            node: "n1".to_owned(),
            role: role.to_owned(),
            state: "active".to_owned(),
            generation: 2,
            applied: 2,
            wall_of: Some(run),
            reason: None,
        };
        let lines = vec![
            start(10, "base", &[]),
            start(20, "base", &[]),
            end(20, "base"),
            start(21, "top", &[]),
            end(21, "top"),
        ];
        Evidence {
            journals: BTreeMap::from([("n1".to_owned(), lines)]),
            runs: vec![
                run(10, "base", "lost"),
                run(20, "base", "succeeded"),
                run(21, "top", "succeeded"),
            ],
            steps: vec![step("base", 20), step("top", 21)],
            edges: vec![edge("n1")],
            claimed: BTreeMap::from([(10, 99), (20, 199), (21, 209)]),
            requested: Vec::new(),
            seen: vec![Observation { kind: "applied".to_owned(), detail: "base 20".to_owned() }],
        }
    }

    /// Counts violations after changing the valid evidence.
    fn counted(change: impl FnOnce(&mut Evidence)) -> BTreeMap<Kind, usize> {
        let mut evidence = good();
        change(&mut evidence);
        judge(&evidence).0.into_iter().map(|(kind, detail)| (kind, detail.len())).collect()
    }

    fn lines(evidence: &mut Evidence) -> &mut Vec<Line> {
        evidence.journals.get_mut("n1").unwrap()
    }

    fn only(kind: Kind) -> BTreeMap<Kind, usize> {
        BTreeMap::from([(kind, 1)])
    }

    #[test]
    fn valid_evidence_has_no_violation() {
        assert_eq!(counted(|_| ()), BTreeMap::new());
        // A non-exclusive run may run next to another one.
        let concurrent = |evidence: &mut Evidence| {
            let run = Run { id: 22, step: "aside".to_owned(), ..evidence.runs[2].clone() };
            evidence.runs.push(run);
            lines(evidence).insert(3, start(22, "aside", &[(20, true)]));
            lines(evidence)[4] = start(21, "top", &[(22, false)]);
            lines(evidence).push(end(22, "aside"));
        };
        assert_eq!(counted(concurrent), BTreeMap::new());
        let waiting = |evidence: &mut Evidence| {
            evidence.steps[1].state = "error".to_owned();
            evidence.steps[1].reason = Some("no such disk".to_owned());
        };
        assert_eq!(counted(waiting), BTreeMap::new());
    }

    #[test]
    fn unapproved_run_is_counted() {
        assert_eq!(counted(|evidence| evidence.runs[0].approved = false), only(Kind::Unapproved));
        assert_eq!(
            counted(|evidence| lines(evidence).push(start(99, "base", &[]))),
            only(Kind::Unapproved)
        );
    }

    #[test]
    fn concurrent_exclusive_runs_are_counted() {
        let concurrent =
            |evidence: &mut Evidence| lines(evidence)[1] = start(20, "base", &[(10, true)]);
        assert_eq!(counted(concurrent), only(Kind::TwoAtOnce));
        let ended_later = |evidence: &mut Evidence| lines(evidence).insert(2, end(10, "base"));
        assert_eq!(counted(ended_later), only(Kind::TwoAtOnce));
        let never_begun = |evidence: &mut Evidence| lines(evidence).insert(0, end(9, "base"));
        assert_eq!(counted(never_begun), only(Kind::TwoAtOnce));
        let twice = counted(|evidence| lines(evidence).push(start(21, "top", &[])));
        assert_eq!((twice[&Kind::TwoAtOnce], twice[&Kind::Backwards]), (1, 1));
    }

    #[test]
    fn child_before_parent_is_counted() {
        let first = |evidence: &mut Evidence| drop(lines(evidence).remove(2));
        assert_eq!(counted(first), only(Kind::Order), "the parent started and did not succeed");
        let alone = |evidence: &mut Evidence| {
            *lines(evidence) = vec![start(21, "top", &[]), end(21, "top")]
        };
        assert_eq!(counted(alone), only(Kind::Order));
    }

    /// Moves the second step to another node.
    fn apart(evidence: &mut Evidence) {
        let journal = lines(evidence).split_off(3);
        evidence.journals.insert("n2".to_owned(), journal);
        evidence.edges = vec![edge("n2")];
    }

    #[test]
    fn child_before_remote_parent_is_counted() {
        assert_eq!(counted(apart), BTreeMap::new());
        let claimed = |at| {
            counted(|evidence| {
                apart(evidence);
                evidence.claimed.insert(21, at);
            })
        };
        assert_eq!(
            claimed(205),
            BTreeMap::new(),
            "the child may start in the hundredth of a second in which its parent ended"
        );
        assert_eq!(claimed(204), only(Kind::Order));
        assert_eq!(claimed(99), only(Kind::Order), "the parent had not started");
        let again = |at| {
            counted(|evidence| {
                apart(evidence);
                let run = Run { id: 22, ..evidence.runs[1].clone() };
                evidence.runs.push(Run { outcome: Some("lost".to_owned()), ..run });
                lines(evidence).push(start(22, "base", &[]));
                evidence.claimed.insert(21, at);
            })
        };
        assert_eq!(
            again(209),
            BTreeMap::new(),
            "the parent started again after the child was claimed"
        );
        assert_eq!(again(221), only(Kind::Order));
        let never = |evidence: &mut Evidence| {
            apart(evidence);
            evidence.journals.remove("n1");
        };
        assert_eq!(counted(never), only(Kind::Order));
    }

    #[test]
    fn unrequested_second_destructive_start_is_counted() {
        // In one generation: run 20 after run 19, which was lost.
        let twice = |evidence: &mut Evidence| {
            evidence.runs[0] = Run { id: 19, generation: 2, ..evidence.runs[0].clone() };
            lines(evidence)[0] = start(19, "base", &[]);
            evidence.runs.iter_mut().for_each(|run| run.destructive = run.step == "base");
        };
        assert_eq!(counted(twice), only(Kind::DestroyedTwice));
        let requested = |step: &str, after| {
            counted(|evidence| {
                twice(evidence);
                evidence.requested.push((step.to_owned(), after));
            })
        };
        assert_eq!(requested("base", 19), BTreeMap::new());
        assert_eq!(
            requested("base", 18),
            only(Kind::DestroyedTwice),
            "the request came before the first start"
        );
        assert_eq!(
            requested("base", 20),
            only(Kind::DestroyedTwice),
            "the request came after the second start"
        );
        assert_eq!(
            requested("top", 19),
            only(Kind::DestroyedTwice),
            "the request was for another step"
        );
        let of_another_generation = |evidence: &mut Evidence| {
            twice(evidence);
            evidence.runs[0].generation = 1;
        };
        assert_eq!(counted(of_another_generation), BTreeMap::new());
    }

    #[test]
    fn applied_late_result_is_counted() {
        assert_eq!(counted(|evidence| evidence.steps[0].wall_of = Some(10)), only(Kind::Late));
        assert_eq!(
            counted(|evidence| evidence.runs[1].outcome = Some("late".to_owned())),
            only(Kind::Late)
        );
        let seen = Observation { kind: "late".to_owned(), detail: "base 10".to_owned() };
        assert_eq!(counted(|evidence| evidence.seen.push(seen)), only(Kind::Late));
    }

    #[test]
    fn step_stuck_without_reason_is_counted() {
        for (state, reason) in [("todo", None), ("blocked", None), ("error", Some(String::new()))] {
            let stuck = |evidence: &mut Evidence| {
                evidence.steps[1].state = state.to_owned();
                evidence.steps[1].reason = reason;
            };
            assert_eq!(counted(stuck), only(Kind::Stuck), "{state}");
        }
    }

    #[test]
    fn decreasing_number_is_counted() {
        assert_eq!(counted(|evidence| evidence.runs[0].generation = 3), only(Kind::Backwards));
        assert_eq!(counted(|evidence| evidence.steps[0].applied = 3), only(Kind::Backwards));
        let seen =
            Observation { kind: "backwards".to_owned(), detail: "head from 5 to 4".to_owned() };
        assert_eq!(counted(|evidence| evidence.seen.push(seen)), only(Kind::Backwards));
    }

    #[test]
    fn each_kind_is_reported_with_its_count() {
        let mut evidence = good();
        evidence.runs[0].approved = false;
        let text = judge(&evidence).to_string();
        assert!(
            text.contains("run without an approved blueprint  1\n    run 10 of generation 1\n"),
            "{text}"
        );
        assert!(text.contains("moving backwards                   0\n"), "{text}");
    }
}
