//! Finds roles that can never be bound because they require each other in a cycle.
//!
//! A need can be met by any of several roles that provide a name, so a plain cycle search is not
//! enough. A role that needs `dns` is no cycle if it and another role provide `dns`. The algorithm
//! is the one for Horn clauses. A role is satisfiable if all its needs are met. A need is met if
//! any of its roles is satisfiable. Each remaining role has a need that only remaining roles could
//! meet, and following these ends in a cycle. Linear in roles and needs.

/// A need of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// This role, by index.
    Role(usize),
    /// Any role of this group, by index.
    AnyOf(usize),
}

/// The needs of each role, and the groups that needs may name.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) of_role: Vec<Vec<Target>>,
    pub(super) groups: Vec<Vec<usize>>,
}

/// A role on a cycle, and the index of its need that leads to the next role.
pub(super) type Hop = (usize, usize);

/// Disjoint cycles, each starting with its lowest role; empty if all roles are satisfiable. Not all
/// cycles are returned: after a fix, further cycles of the same roles can appear.
pub(super) fn cycles(needs: &Needs) -> Vec<Vec<Hop>> {
    let possible = satisfiable_roles(needs);
    let is_met = |target: Target| match target {
        Target::Role(role) => possible[role],
        Target::AnyOf(group) => needs.groups[group].iter().any(|role| possible[*role]),
    };
    let first_unmet = |role: usize| {
        let targets = &needs.of_role[role];
        let at = targets.iter().position(|target| !is_met(*target))?;
        let next = match targets[at] {
            Target::Role(next) => next,
            Target::AnyOf(group) => *needs.groups[group].first()?,
        };
        Some((at, next))
    };
    let mut seen = possible.clone();
    let mut cycles = Vec::new();
    for start in 0..needs.of_role.len() {
        let mut path: Vec<Hop> = Vec::new();
        let mut role = start;
        while !seen[role] {
            seen[role] = true;
            let Some((at, next)) = first_unmet(role) else {
                break;
            };
            path.push((role, at));
            role = next;
        }
        if let Some(begin) = path.iter().position(|(on_path, _)| *on_path == role) {
            cycles.push(rotate_to_lowest(path.split_off(begin)));
        }
    }
    cycles
}

fn rotate_to_lowest(mut cycle: Vec<Hop>) -> Vec<Hop> {
    let lowest = (0..cycle.len()).min_by_key(|i| cycle[*i].0).unwrap_or(0);
    cycle.rotate_left(lowest);
    cycle
}

fn satisfiable_roles(needs: &Needs) -> Vec<bool> {
    let count = needs.of_role.len();
    let mut waiting_for_role = vec![Vec::new(); count];
    let mut waiting_for_group = vec![Vec::new(); needs.groups.len()];
    let mut groups_of = vec![Vec::new(); count];
    for (role, targets) in needs.of_role.iter().enumerate() {
        for target in targets {
            match target {
                Target::Role(other) => waiting_for_role[*other].push(role),
                Target::AnyOf(group) => waiting_for_group[*group].push(role),
            }
        }
    }
    for (group, members) in needs.groups.iter().enumerate() {
        for role in members {
            groups_of[*role].push(group);
        }
    }
    let mut open: Vec<usize> = needs.of_role.iter().map(Vec::len).collect();
    let mut possible = vec![false; count];
    let mut ready: Vec<usize> = (0..count).filter(|role| open[*role] == 0).collect();
    while let Some(role) = ready.pop() {
        possible[role] = true;
        let mut met = std::mem::take(&mut waiting_for_role[role]);
        for group in &groups_of[role] {
            met.append(&mut waiting_for_group[*group]);
        }
        for waiter in met {
            open[waiter] -= 1;
            if open[waiter] == 0 {
                ready.push(waiter);
            }
        }
    }
    possible
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const ROLES: usize = 8;
    const GROUPS: usize = 3;

    fn roles(of_role: Vec<Vec<Target>>, groups: Vec<Vec<usize>>) -> Needs {
        Needs { of_role, groups }
    }

    #[test]
    fn cycle_starts_at_lowest_role_and_excludes_dependents() {
        use Target::Role;
        let needs = roles(
            vec![vec![Role(2)], vec![Role(3)], vec![Role(3)], vec![Role(4)], vec![Role(2)], vec![]],
            vec![],
        );
        assert_eq!(cycles(&needs), vec![vec![(2, 0), (3, 0), (4, 0)]]);
        assert_eq!(cycles(&roles(vec![vec![Role(0)]], vec![])), vec![vec![(0, 0)]]);
    }

    #[test]
    fn one_satisfiable_provider_is_enough() {
        use Target::{AnyOf, Role};
        // Role 0 needs a name that roles 0 and 1 provide.
        assert!(cycles(&roles(vec![vec![AnyOf(0)], vec![]], vec![vec![0, 1]])).is_empty());
        // Now role 1 waits for role 0 as well.
        let needs = roles(vec![vec![AnyOf(0)], vec![Role(0)]], vec![vec![0, 1]]);
        assert_eq!(cycles(&needs), vec![vec![(0, 0)]]);
    }

    #[test]
    fn long_chain_does_not_exhaust_stack() {
        let count = 200_000;
        let chain = |last: Vec<Target>| {
            let mut of_role: Vec<_> = (1..count).map(|next| vec![Target::Role(next)]).collect();
            of_role.push(last);
            roles(of_role, vec![])
        };
        assert!(cycles(&chain(vec![])).is_empty());
        assert_eq!(cycles(&chain(vec![Target::Role(0)]))[0].len(), count);
    }

    /// Needs for roles and for non-empty groups.
    fn any_needs() -> impl Strategy<Value = Needs> {
        let target = (0..ROLES + GROUPS).prop_map(|n| match n.checked_sub(ROLES) {
            None => Target::Role(n),
            Some(group) => Target::AnyOf(group),
        });
        let of_role = prop::collection::vec(prop::collection::vec(target, 0..3), ROLES);
        let groups = prop::collection::vec(prop::collection::vec(0..ROLES, 1..3), GROUPS);
        (of_role, groups).prop_map(|(of_role, groups)| roles(of_role, groups))
    }

    fn providers(needs: &Needs, target: Target) -> Vec<usize> {
        match target {
            Target::Role(role) => vec![role],
            Target::AnyOf(group) => needs.groups[group].clone(),
        }
    }

    /// Binds in each round all roles whose needs are met.
    fn bound_in_rounds(needs: &Needs) -> Vec<bool> {
        let mut bound = vec![false; ROLES];
        for _ in 0..ROLES {
            let met = |of: &Target| providers(needs, *of).iter().any(|role| bound[*role]);
            bound = needs.of_role.iter().map(|targets| targets.iter().all(met)).collect();
        }
        bound
    }

    proptest! {
        #[test]
        fn bindable_roles_have_no_cycle(needs in any_needs()) {
            let found = cycles(&needs);
            prop_assert_eq!(found.is_empty(), bound_in_rounds(&needs).iter().all(|bound| *bound));
        }

        #[test]
        fn cycles_are_disjoint_and_consist_of_unmet_needs(needs in any_needs()) {
            let bound = bound_in_rounds(&needs);
            let mut seen = BTreeSet::new();
            for cycle in cycles(&needs) {
                for (i, (role, at)) in cycle.iter().enumerate() {
                    let next = cycle[(i + 1) % cycle.len()].0;
                    prop_assert!(seen.insert(*role), "role {} is in two cycles", role);
                    prop_assert!(!bound[*role]);
                    prop_assert!(providers(&needs, needs.of_role[*role][*at]).contains(&next));
                }
                prop_assert_eq!(cycle.iter().map(|hop| hop.0).min(), Some(cycle[0].0));
            }
        }
    }
}
