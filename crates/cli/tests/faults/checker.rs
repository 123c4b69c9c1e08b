//! The checker: what must never have happened, counted out of what was seen.
//!
//! What runs on a node is judged by what the node wrote down itself, never by what the database believes of it; what the database
//! applied is judged by its own rows and by a trigger that saw each of their changes. Nothing here asks anything: whoever feeds it
//! fabricated evidence sees fabricated violations counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a node's journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A run began.
    Start {
        run: i64,
        role: String,
        /// It has the node for itself.
        exclusive: bool,
        /// Earlier runs of which a process was still there, and whether they had the node for themselves.
        there: Vec<(i64, bool)>,
    },
    /// It came to its end by itself, and well.
    End { run: i64, role: String },
}

/// A run as the database has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Run {
    pub id: i64,
    pub step: String,
    pub generation: i64,
    pub outcome: Option<String>,
    /// Its target's chain holds: a submission with enough approvals of others than its authors.
    pub approved: bool,
}

/// A step as it is in the end.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Step {
    pub id: String,
    pub node: String,
    pub role: String,
    pub state: String,
    pub generation: i64,
    pub applied: i64,
    /// Which attempt's result its wall has.
    pub wall_of: Option<i64>,
    /// Why it is not ACTIVE.
    pub reason: Option<String>,
}

/// What the database's own trigger saw while it happened.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Seen {
    /// `applied`: a result was applied by its run's end. `late`: by something else. `backwards`: a number fell.
    pub kind: String,
    pub what: String,
}

/// Everything that was seen.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// By node.
    pub journals: BTreeMap<String, Vec<Line>>,
    pub runs: Vec<Run>,
    pub steps: Vec<Step>,
    /// Node, child's role, parent's role.
    pub edges: Vec<(String, String, String)>,
    pub seen: Vec<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Unapproved,
    TwoAtOnce,
    Order,
    Late,
    Stuck,
    Backwards,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Unapproved, Self::TwoAtOnce, Self::Order, Self::Late, Self::Stuck, Self::Backwards];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unapproved => "run without approved target",
            Self::TwoAtOnce => "two exclusive runs on a node",
            Self::Order => "order of edges",
            Self::Late => "late result applied",
            Self::Stuck => "stuck without reason",
            Self::Backwards => "moving backwards",
        })
    }
}

/// What was violated, each with a line for people.
#[derive(Debug, Clone, Default)]
pub struct Violations(pub BTreeMap<Kind, Vec<String>>);

impl Violations {
    pub fn count(&self, kind: Kind) -> usize {
        self.0.get(&kind).map_or(0, Vec::len)
    }

    pub fn total(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn add(&mut self, kind: Kind, what: String) {
        self.0.entry(kind).or_default().push(what);
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            writeln!(f, "{kind:<34} {}", self.count(kind))?;
            for what in self.0.get(&kind).into_iter().flatten() {
                writeln!(f, "    {what}")?;
            }
        }
        Ok(())
    }
}

/// Counts.
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
        backwards(&mut found, node, lines, &runs);
    }
    for step in &evidence.steps {
        settled(&mut found, step, &runs);
    }
    for seen in &evidence.seen {
        match seen.kind.as_str() {
            "late" => found.add(Kind::Late, seen.what.clone()),
            "backwards" => found.add(Kind::Backwards, seen.what.clone()),
            _ => {}
        }
    }
    found
}

/// Whatever ran on a node is a run that somebody approved.
fn unknown(found: &mut Violations, node: &str, lines: &[Line], runs: &BTreeMap<i64, &Run>) {
    for line in lines {
        if let Line::Start { run, role, .. } = line
            && !runs.contains_key(run)
        {
            found.add(Kind::Unapproved, format!("{role} ran on {node} as run {run}, which nobody knows"));
        }
    }
}

/// No exclusive run begins while something of another one is there, or before another one that began earlier has ended.
fn at_once(found: &mut Violations, node: &str, lines: &[Line]) {
    let mut begun: Vec<(i64, bool)> = Vec::new();
    for line in lines {
        match line {
            Line::Start { run, role, exclusive, there } => {
                for (other, _) in there.iter().filter(|(other, its)| *exclusive && *its && other != run) {
                    found.add(
                        Kind::TwoAtOnce,
                        format!("{role} began on {node} as run {run} while run {other} was there"),
                    );
                }
                begun.push((*run, *exclusive));
            }
            Line::End { run, role } => {
                let Some(at) = begun.iter().position(|(other, _)| other == run) else {
                    found.add(Kind::TwoAtOnce, format!("{role} ended on {node} as run {run}, which never began"));
                    continue;
                };
                let (_, exclusive) = begun[at];
                for (other, _) in begun[at + 1..].iter().filter(|(_, its)| exclusive && *its) {
                    let what = format!("{role} ended on {node} as run {run} after run {other} had begun");
                    found.add(Kind::TwoAtOnce, what);
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

/// When a child begins, the last that was heard of each parent on its node is a good end.
fn order(found: &mut Violations, node: &str, lines: &[Line], edges: &[(String, String, String)]) {
    let mut ended: BTreeMap<&str, bool> = BTreeMap::new();
    for line in lines {
        match line {
            Line::Start { run, role, .. } => {
                let parents = edges.iter().filter(|(at, child, _)| at == node && child == role);
                for (_, _, parent) in parents.filter(|(_, _, parent)| ended.get(parent.as_str()) != Some(&true)) {
                    found.add(Kind::Order, format!("{role} began on {node} as run {run} before {parent} was done"));
                }
                ended.insert(role, false);
            }
            Line::End { role, .. } => {
                ended.insert(role, true);
            }
        }
    }
}

/// Of each step, attempts and generations only rise on its node.
fn backwards(found: &mut Violations, node: &str, lines: &[Line], runs: &BTreeMap<i64, &Run>) {
    let mut last: BTreeMap<&str, &Run> = BTreeMap::new();
    for line in lines {
        let Line::Start { run, role, .. } = line else { continue };
        let Some(run) = runs.get(run) else { continue };
        if let Some(before) = last.insert(&run.step, run)
            && (before.id >= run.id || before.generation > run.generation)
        {
            let of = |run: &Run| format!("run {} of generation {}", run.id, run.generation);
            found.add(Kind::Backwards, format!("{role} on {node}: {} after {}", of(run), of(before)));
        }
    }
}

/// A step is done by the last attempt that succeeded, or there is a reason why it is not.
fn settled(found: &mut Violations, step: &Step, runs: &BTreeMap<i64, &Run>) {
    let called = format!("{} on {}", step.role, step.node);
    if step.state != "active" {
        if step.reason.as_deref().is_none_or(str::is_empty) {
            found.add(Kind::Stuck, format!("{called} is {}", step.state));
        }
        return;
    }
    if step.applied > step.generation {
        found.add(Kind::Backwards, format!("{called} has applied {}, and is at {}", step.applied, step.generation));
    }
    let of_step = runs.values().filter(|run| run.step == step.id && run.outcome.as_deref() == Some("succeeded"));
    let last = of_step.map(|run| run.id).max();
    if step.wall_of != last {
        found.add(
            Kind::Late,
            format!("{called} has the result of run {:?}, and run {last:?} was the last", step.wall_of),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(run: i64, role: &str, there: &[(i64, bool)]) -> Line {
        Line::Start { run, role: role.to_owned(), exclusive: role != "aside", there: there.to_vec() }
    }

    fn end(run: i64, role: &str) -> Line {
        Line::End { run, role: role.to_owned() }
    }

    /// Two steps on a node, the second after the first, and all went well.
    fn good() -> Evidence {
        let run = |id, step: &str, outcome: &str| Run {
            id,
            step: step.to_owned(),
            generation: id / 10,
            outcome: Some(outcome.to_owned()),
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
            runs: vec![run(10, "base", "lost"), run(20, "base", "succeeded"), run(21, "top", "succeeded")],
            steps: vec![step("base", 20), step("top", 21)],
            edges: vec![("n1".to_owned(), "top".to_owned(), "base".to_owned())],
            seen: vec![Seen { kind: "applied".to_owned(), what: "base 20".to_owned() }],
        }
    }

    /// What is counted when the good evidence is changed so.
    fn counted(change: impl FnOnce(&mut Evidence)) -> BTreeMap<Kind, usize> {
        let mut evidence = good();
        change(&mut evidence);
        judge(&evidence).0.into_iter().map(|(kind, what)| (kind, what.len())).collect()
    }

    fn lines(evidence: &mut Evidence) -> &mut Vec<Line> {
        evidence.journals.get_mut("n1").unwrap()
    }

    fn only(kind: Kind) -> BTreeMap<Kind, usize> {
        BTreeMap::from([(kind, 1)])
    }

    #[test]
    fn what_is_as_it_should_be_is_no_violation() {
        assert_eq!(counted(|_| ()), BTreeMap::new());
        // A run that does not want the node for itself may be there beside another.
        let beside = |evidence: &mut Evidence| {
            let run = Run { id: 22, step: "aside".to_owned(), ..evidence.runs[2].clone() };
            evidence.runs.push(run);
            lines(evidence).insert(3, start(22, "aside", &[(20, true)]));
            lines(evidence)[4] = start(21, "top", &[(22, false)]);
            lines(evidence).push(end(22, "aside"));
        };
        assert_eq!(counted(beside), BTreeMap::new());
        let waiting = |evidence: &mut Evidence| {
            evidence.steps[1].state = "error".to_owned();
            evidence.steps[1].reason = Some("no such disk".to_owned());
        };
        assert_eq!(counted(waiting), BTreeMap::new());
    }

    #[test]
    fn a_run_that_nobody_approved_is_counted() {
        assert_eq!(counted(|evidence| evidence.runs[0].approved = false), only(Kind::Unapproved));
        assert_eq!(counted(|evidence| lines(evidence).push(start(99, "base", &[]))), only(Kind::Unapproved));
    }

    #[test]
    fn two_exclusive_runs_at_once_are_counted() {
        let there = |evidence: &mut Evidence| lines(evidence)[1] = start(20, "base", &[(10, true)]);
        assert_eq!(counted(there), only(Kind::TwoAtOnce));
        let ended_later = |evidence: &mut Evidence| lines(evidence).insert(2, end(10, "base"));
        assert_eq!(counted(ended_later), only(Kind::TwoAtOnce));
        let never_begun = |evidence: &mut Evidence| lines(evidence).insert(0, end(9, "base"));
        assert_eq!(counted(never_begun), only(Kind::TwoAtOnce));
        let twice = counted(|evidence| lines(evidence).push(start(21, "top", &[])));
        assert_eq!((twice[&Kind::TwoAtOnce], twice[&Kind::Backwards]), (1, 1));
    }

    #[test]
    fn a_child_before_its_parent_is_counted() {
        let first = |evidence: &mut Evidence| drop(lines(evidence).remove(2));
        assert_eq!(counted(first), only(Kind::Order), "its parent has begun, and did not end well");
        let alone = |evidence: &mut Evidence| *lines(evidence) = vec![start(21, "top", &[]), end(21, "top")];
        assert_eq!(counted(alone), only(Kind::Order));
    }

    #[test]
    fn a_late_result_that_was_applied_is_counted() {
        assert_eq!(counted(|evidence| evidence.steps[0].wall_of = Some(10)), only(Kind::Late));
        assert_eq!(counted(|evidence| evidence.runs[1].outcome = Some("late".to_owned())), only(Kind::Late));
        let seen = Seen { kind: "late".to_owned(), what: "base 10".to_owned() };
        assert_eq!(counted(|evidence| evidence.seen.push(seen)), only(Kind::Late));
    }

    #[test]
    fn what_waits_for_nothing_is_counted() {
        for (state, reason) in [("todo", None), ("blocked", None), ("error", Some(String::new()))] {
            let stuck = |evidence: &mut Evidence| {
                evidence.steps[1].state = state.to_owned();
                evidence.steps[1].reason = reason;
            };
            assert_eq!(counted(stuck), only(Kind::Stuck), "{state}");
        }
    }

    #[test]
    fn what_goes_back_is_counted() {
        assert_eq!(counted(|evidence| evidence.runs[0].generation = 3), only(Kind::Backwards));
        assert_eq!(counted(|evidence| evidence.steps[0].applied = 3), only(Kind::Backwards));
        let seen = Seen { kind: "backwards".to_owned(), what: "head from 5 to 4".to_owned() };
        assert_eq!(counted(|evidence| evidence.seen.push(seen)), only(Kind::Backwards));
    }

    #[test]
    fn each_kind_is_told_with_its_number() {
        let mut evidence = good();
        evidence.runs[0].approved = false;
        let text = judge(&evidence).to_string();
        assert!(text.contains("run without approved target        1\n    run 10 of generation 1\n"), "{text}");
        assert!(text.contains("moving backwards                   0\n"), "{text}");
    }
}
