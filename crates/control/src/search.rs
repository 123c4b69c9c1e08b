//! Search by name, with a few hits of each kind.
//!
//! The permission for a list is also the permission to find its items. Deployments, nodes and roles
//! are searched in memory, where planning needs them anyway. Runs are found by number, reviews and
//! people by the queries of their lists.

use api::Problem;
use api::listing::Limit;
use api::search::{HITS, Hit, HitKind, MAX_QUERY_CHARS, SearchQuery, SearchResults};
use engine::catalog::version::newest;
use engine::cluster::{SkeletonDeployment, SkeletonNode};
use engine::ids::{DeploymentId, NodeId, PersonId, ReviewId, RunId};
use sqlx::PgConnection;
use store::Page;
use store::people::SERVICE;
use store::people::accounts::AccountListQuery;
use store::reviews::{Find, ReviewOutcome};

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::runs::list::to_run;
use crate::{Control, text};

/// How well a name matches; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    Prefix,
    Substring,
}

/// How a name matches the text, both in lower case. `None`: no match.
fn fit(name: &str, text: &str) -> Option<Fit> {
    if name == text {
        return Some(Fit::Exact);
    }
    if name.starts_with(text) {
        return Some(Fit::Prefix);
    }
    name.contains(text).then_some(Fit::Substring)
}

/// The best hits up to the limit, and whether there are more.
fn best_hits<T>(mut found: Vec<((Fit, String), T)>, limit: usize) -> (Vec<T>, bool) {
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = found.len() > limit;
    found.truncate(limit);
    (found.into_iter().map(|(_, thing)| thing).collect(), more)
}

impl Control {
    /// Searches each kind by name.
    pub async fn search(
        &self,
        actor: &Actor,
        query: &SearchQuery,
    ) -> Result<SearchResults, Problem> {
        actor.require(Permission::Viewer)?;
        let text = text::filter_text(&query.q)?.ok_or_else(|| {
            Problem::invalid("Invalid `q`: it must not be empty. Enter a search text.")
        })?;
        if text.chars().count() > MAX_QUERY_CHARS {
            return Err(Problem::invalid(format!(
                "Invalid `q`: it must have at most {MAX_QUERY_CHARS} characters."
            )));
        }
        let limit = Limit::rows(query.limit, HITS);
        let lowercase = text.to_lowercase();
        let number = lowercase.strip_prefix('#').unwrap_or(&lowercase).parse::<i64>().ok();
        let present = self.current_state().await?;
        let run = match number {
            Some(number) => {
                store::runs::run(&self.store, RunId(number)).await.map_err(from_store)?
            }
            None => None,
        };
        let mut connection = self.connection().await?;
        let parts = [
            deployments(&present, &lowercase, limit),
            nodes(&present, &lowercase, limit),
            roles(&present, &lowercase, limit),
            (run.map(|row| run_hit(&present, &row)).transpose()?.into_iter().collect(), false),
            reviews(&mut connection, text, number, limit).await?,
            match actor.may(Permission::Admin) {
                true => people(&mut connection, &lowercase, limit).await?,
                false => Default::default(),
            },
        ];
        let mut found = SearchResults::default();
        for (kind, (hits, more)) in HitKind::ALL.into_iter().zip(parts) {
            found.hits.extend(hits);
            found.more.extend(more.then_some(kind));
        }
        Ok(found)
    }
}

fn deployments(present: &CurrentState, text: &str, limit: usize) -> (Vec<Hit>, bool) {
    let hit = |(id, found): (&DeploymentId, &SkeletonDeployment)| {
        let name = found.name.as_str();
        let fit = fit(&name.to_lowercase(), text)?;
        Some(((fit, name.to_owned()), Hit::Deployment { id: *id, name: found.name.clone() }))
    };
    best_hits(present.skeleton.deployments.iter().filter_map(hit).collect(), limit)
}

fn nodes(present: &CurrentState, text: &str, limit: usize) -> (Vec<Hit>, bool) {
    // Phantom nodes are found as their deployments.
    let all = present.skeleton.nodes.iter().filter(|(_, node)| !node.phantom);
    let matches = all.filter_map(|(id, node)| {
        Some(((fit(node.fqdn.as_str(), text)?, node.fqdn.to_string()), (*id, node)))
    });
    let (nodes, more) = best_hits(matches.collect(), limit);
    let hit = |(id, node): (NodeId, &SkeletonNode)| {
        let deployment = present.skeleton.deployments.get(&node.deployment)?.name.clone();
        Some(Hit::Node { id, fqdn: node.fqdn.to_string(), deployment })
    };
    (nodes.into_iter().filter_map(hit).collect(), more)
}

/// Roles of the newest versions, including roles that no deployment has. The user may want to add
/// one.
fn roles(present: &CurrentState, text: &str, limit: usize) -> (Vec<Hit>, bool) {
    let newest = newest(&present.catalog);
    let all = newest
        .iter()
        .flat_map(|(name, (_, barclamp))| barclamp.roles.keys().map(move |role| (role, *name)));
    let matches = all.filter_map(|(role, barclamp)| {
        let fit = fit(&role.as_str().to_lowercase(), text)?;
        Some((
            (fit, format!("{role} {barclamp}")),
            Hit::Role { role: role.clone(), barclamp: barclamp.clone() },
        ))
    });
    best_hits(matches.collect(), limit)
}

fn run_hit(present: &CurrentState, row: &store::runs::RunRow) -> Result<Hit, Problem> {
    let run = to_run(present, row)?;
    Ok(Hit::Run { id: run.id, role: run.role, fqdn: run.fqdn, state: run.state })
}

async fn reviews(
    on: &mut PgConnection,
    text: &str,
    number: Option<i64>,
    limit: usize,
) -> Result<(Vec<Hit>, bool), Problem> {
    let text = Some(text);
    let find = Find { outcome: ReviewOutcome::Anything, author: None, deployment: None, text };
    let page = Page {
        sort: store::reviews::Hit::BY_ID,
        descending: true,
        after: None,
        limit: limit as u64,
    };
    let found = store::reviews::find_reviews(on, &find, &page).await.map_err(from_store)?;
    let mut ids: Vec<ReviewId> = number
        .map(ReviewId)
        .into_iter()
        .chain(found.hits.into_iter().map(|hit| ReviewId(hit.id)))
        .collect();
    ids.dedup();
    let lines = store::reviews::lines_of(on, &ids).await.map_err(from_store)?;
    let more = found.next.is_some() || lines.len() > limit;
    let hit = |line: store::reviews::LineRow| Hit::Review {
        id: line.id,
        title: line.title,
        deployment: line.deployment,
    };
    let mut hits: Vec<(bool, Hit)> =
        lines.into_iter().map(|line| (Some(line.id.0) != number, hit(line))).collect();
    hits.sort_by_key(|(is_other, _)| *is_other);
    Ok((hits.into_iter().map(|(_, hit)| hit).take(limit).collect(), more))
}

async fn people(
    on: &mut PgConnection,
    text: &str,
    limit: usize,
) -> Result<(Vec<Hit>, bool), Problem> {
    let find = AccountListQuery { text: text.to_owned(), ..AccountListQuery::default() };
    let mut rows =
        store::people::accounts::accounts(on, &find, limit as u64 + 1).await.map_err(from_store)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let hit = |row: store::people::accounts::AccountRow| Hit::Person {
        id: PersonId(row.id),
        name: row.name,
        service: row.kind == SERVICE,
    };
    Ok((rows.into_iter().map(hit).collect(), more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_match_precedes_prefix_and_substring() {
        let names = ["the-app", "apple", "app", "proxy"];
        let found =
            names.iter().filter_map(|name| Some(((fit(name, "app")?, (*name).to_owned()), *name)));
        assert_eq!(best_hits(found.collect(), 8), (vec!["app", "apple", "the-app"], false));
        let many = (0..20).map(|n| ((Fit::Substring, format!("{n:02}")), n));
        assert_eq!(best_hits(many.collect(), 8), ((0..8).collect(), true));
    }
}
