//! The target history, and the comparison of any two blueprints.

pub(crate) mod commit;
pub(crate) mod genesis;
pub(crate) mod progress;
pub(crate) mod restore;
pub(crate) mod rollout;
pub(crate) mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Problem;
use api::blueprints::BlueprintsQuery;
use api::blueprints::{
    BlueprintKind, BlueprintPage, BlueprintSummary, Comparison, Point, Side as ComparedSide,
};
use api::catalog::HiddenCharacters;
use api::listing::{Cursor, Key, Limit, PAGE_SIZE};
use engine::Hash;
use engine::blueprint::difference;
use engine::blueprint::difference::{Mark, Sides};
use engine::blueprint::impact::{self, impact};
use engine::blueprint::text::Names;
use engine::blueprint::{compare, project};
use engine::cluster::Blueprint;
use engine::gate::Policy;
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, NoderoleId, ReviewId};
use engine::plan::Effects;
use sqlx::PgConnection;
use store::blueprints::BlueprintRow;

use crate::catalog::version_difference::{self, Side};
use crate::compute::ComputeLimit;
use crate::current::{CurrentState, load};
use crate::{Control, cursor};

use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{self, at};

impl Control {
    /// A page of the target history, of all deployments or of one.
    pub async fn targets(
        &self,
        actor: &Actor,
        query: &BlueprintsQuery,
    ) -> Result<BlueprintPage, Problem> {
        actor.require(Permission::Viewer)?;
        let after = match cursor::decode(query.sort, query.before.as_ref())?.as_deref() {
            Some([Key::Number(number)]) => Some(BlueprintNumber(*number)),
            _ => None,
        };
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let deployment = match text::filter_text(&query.deployment)? {
            Some(name) => Some(PastDeployment::named(&mut connection, &present, name).await?),
            None => None,
        };
        let (deployment, removed_in) =
            (deployment.map(|once| once.id), deployment.and_then(|once| once.removed_in));
        let size = Limit::rows(query.limit, PAGE_SIZE);
        let rows = store::blueprints::targets(
            &mut connection,
            deployment,
            query.sort.descending,
            after,
            size as u64 + 1,
        )
        .await
        .map_err(from_store)?;
        let more = rows.len() > size;
        let targets: Vec<_> =
            rows.into_iter().take(size).map(to_blueprint_summary).collect::<Result<_, _>>()?;
        let last = targets.last().filter(|_| more);
        let next = last.map(|target: &BlueprintSummary| {
            Cursor::after_row(query.sort, &[Key::from(target.number.0)])
        });
        Ok(BlueprintPage { blueprints: targets, next, head: present.head.number, removed_in })
    }

    /// Compares two blueprints, and computes the impact of going from the first to the second, for
    /// all deployments or for one.
    pub async fn compare(
        &self,
        actor: &Actor,
        from: Point,
        to: Point,
        deployment: Option<&str>,
    ) -> Result<Comparison, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let by = self.compute_for(actor);
        let (from, old) = side(self, &by, &present, from).await?;
        let (to, new) = side(self, &by, &present, to).await?;
        let mut connection = self.connection().await?;
        let policy = policies(&mut connection, &from, &to).await?;
        let only = match deployment {
            Some(name) => Some(
                NamedDeployments::of(&mut connection, &present, name, (&from, &old), (&to, &new))
                    .await?,
            ),
            None => None,
        };
        drop(connection);
        let catalog = Arc::clone(&present.catalog);
        let mut found =
            by.work(move || compared(&present, (from, &old), (to, &new), only)).await??;
        found.difference.policy = policy;
        found.contents =
            version_difference::changes(self, &by, &found.difference, &found.pins, &catalog)
                .await?;
        found.hidden_characters = self
            .cache
            .hidden_character_scans
            .begun(self, &by, &found.difference, &found.pins, &catalog)
            .await?;
        Ok(found)
    }

    /// The difference that a review contains, as it was submitted.
    pub async fn review_difference(
        &self,
        actor: &Actor,
        id: ReviewId,
    ) -> Result<Comparison, Problem> {
        let review = self.review(actor, id).await?;
        let present = self.current_state().await?;
        let moved =
            review.difference.deployments.iter().filter(|deployment| {
                deployment.mark == Mark::Changed && deployment.parent.is_some()
            });
        let notes: Vec<String> = moved
            .map(|moved| (&moved.name, present.with_descendants(moved.id)))
            .filter(|(_, below)| !below.is_empty())
            .map(|(name, below)| format!("Deployment {name} moves{below}."))
            .collect();
        let names = Names { deployments: review.deployments, noderoles: review.noderoles };
        Ok(Comparison {
            from: ComparedSide { blueprint: Some(review.parent), review: None, root: None },
            to: ComparedSide { blueprint: review.blueprint, review: Some(id), root: None },
            deployment: None,
            note: (!notes.is_empty()).then(|| notes.join(" ")),
            difference: review.difference,
            more: 0,
            next: None,
            names,
            pins: review.pins,
            role_values: review.role_values,
            more_role_values: review.more_role_values,
            contents: review.contents,
            hidden_characters: review.hidden_characters,
            impact: review.impact,
        })
    }
}

/// An existing or a removed deployment. Views of the past find a deployment by its last name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PastDeployment {
    pub id: DeploymentId,
    /// The target that removed the deployment.
    pub removed_in: Option<BlueprintNumber>,
}

impl PastDeployment {
    /// Finds a deployment by name: an existing one first, then the one that was removed last.
    pub async fn named(
        on: &mut PgConnection,
        present: &CurrentState,
        name: &str,
    ) -> Result<Self, Problem> {
        let unknown = match present.named(name) {
            Ok(id) => return Ok(Self { id, removed_in: None }),
            Err(unknown) => unknown,
        };
        // An invalid name never belonged to a deployment.
        let Ok(name) = DeploymentName::parse(name) else { return Err(unknown) };
        let removed =
            store::deployments::removed_deployment(on, name.as_str()).await.map_err(from_store)?;
        removed.map(|(id, target)| Self { id, removed_in: Some(target) }).ok_or(unknown)
    }

    /// A sentence that says which target removed the deployment; empty if it exists.
    pub fn removal(self) -> String {
        self.removed_in.map(|target| format!(" Blueprint {target} removed it.")).unwrap_or_default()
    }
}

/// The deployment that `name` means in a blueprint: `once` if the blueprint has it, otherwise the
/// deployment that had this name there.
pub(crate) fn deployment_at(
    blueprint: &Blueprint,
    name: &str,
    once: Option<PastDeployment>,
) -> Option<DeploymentId> {
    let same = once.map(|once| once.id).filter(|id| blueprint.deployments.contains_key(id));
    let called =
        || blueprint.deployments.iter().find(|(_, stored)| stored.doc.name.as_str() == name);
    same.or_else(|| called().map(|(id, _)| *id))
}

/// The deployments that one name means in the two blueprints of a comparison. A name is free after
/// its deployment is removed, so these can be two deployments.
#[derive(Debug, Clone, Copy)]
enum NamedDeployments {
    /// The same deployment, in one blueprint or in both.
    One(DeploymentId),
    Different {
        old: DeploymentId,
        new: DeploymentId,
    },
}

impl NamedDeployments {
    async fn of(
        on: &mut PgConnection,
        present: &CurrentState,
        name: &str,
        (from, old): (&ComparedSide, &Blueprint),
        (to, new): (&ComparedSide, &Blueprint),
    ) -> Result<Self, Problem> {
        let once = PastDeployment::named(on, present, name).await;
        let known = once.as_ref().ok().copied();
        match (deployment_at(old, name, known), deployment_at(new, name, known)) {
            (Some(old), Some(new)) if old != new => Ok(Self::Different { old, new }),
            (Some(id), _) | (None, Some(id)) => Ok(Self::One(id)),
            (None, None) => {
                let (from, to, removal) = (called(from), called(to), once?.removal());
                Err(Problem::not_found(format!(
                    "Neither {from} nor {to} has the deployment {name}.{removal}"
                )))
            }
        }
    }

    fn ids(self) -> BTreeSet<DeploymentId> {
        match self {
            Self::One(id) => BTreeSet::from([id]),
            Self::Different { old, new } => BTreeSet::from([old, new]),
        }
    }

    /// The deployment whose name the comparison shows.
    fn shown(self) -> DeploymentId {
        match self {
            Self::One(id) | Self::Different { new: id, .. } => id,
        }
    }

    /// A note for the reader if the two sides have different deployments, or if only one side has
    /// the deployment.
    fn note(
        self,
        name: &DeploymentName,
        (from, old): (&ComparedSide, &Blueprint),
        (to, new): (&ComparedSide, &Blueprint),
    ) -> Option<String> {
        let (from, to) = (called(from), called(to));
        let id = match self {
            Self::One(id) => id,
            Self::Different { old: id, .. } => {
                let old_name = old.deployments.get(&id).map_or(name, |stored| &stored.doc.name);
                return Some(format!(
                    "Deployment {old_name} at {from} is not the same deployment as {name} at {to}."
                ));
            }
        };
        let (has, lacks) =
            match (old.deployments.contains_key(&id), new.deployments.contains_key(&id)) {
                (true, false) => (from, to),
                (false, true) => (to, from),
                _ => return None,
            };
        Some(format!("Only {has} has deployment {name}. It does not exist in {lacks}."))
    }
}

fn called(side: &ComparedSide) -> String {
    match (side.blueprint, &side.root) {
        (Some(target), _) => format!("blueprint {target}"),
        (None, root) => format!(
            "blueprint {}",
            root.as_deref().and_then(|root| root.get(..8)).unwrap_or_default()
        ),
    }
}

/// The difference between two blueprints, for all deployments or for one.
fn compared(
    present: &CurrentState,
    (from, old): (ComparedSide, &Blueprint),
    (to, new): (ComparedSide, &Blueprint),
    only: Option<NamedDeployments>,
) -> Result<Comparison, Problem> {
    let changes = compare(old, new);
    let refused = |error: &dyn std::fmt::Display| {
        Problem::conflict("comparison", text::sentence(&error.to_string()))
    };
    let difference = difference(old, new, &changes).map_err(|e| refused(&e))?;
    let mut projection = project(old, new, &changes, &present.catalog).map_err(|e| refused(&e))?;
    let (difference, more) = match only {
        Some(meant) => difference.for_deployments(&meant.ids()),
        None => (difference, 0),
    };
    if let Some(ids) = only.map(NamedDeployments::ids) {
        projection.steps.retain(|step| ids.contains(&step.deployment));
        projection.removals.retain(|step| ids.contains(&step.deployment));
        let noderoles =
            difference.nodes.iter().flat_map(|node| &node.noderoles).map(|noderole| noderole.id);
        let noderoles: BTreeSet<NoderoleId> = noderoles.collect();
        projection.removed.retain(|id| noderoles.contains(id));
    }
    let effects = Effects::default();
    let planned = impact::Planned {
        old,
        new,
        difference: &difference,
        projection: &projection,
        effects: &effects,
        catalog: &present.catalog,
    };
    let impact = impact(&planned, None);
    let names = Names::of(&difference, old, new);
    let name_of = |id| {
        new.deployments
            .get(&id)
            .or_else(|| old.deployments.get(&id))
            .map(|stored| stored.doc.name.clone())
    };
    let deployment = only.map(NamedDeployments::shown).and_then(name_of);
    let note = only
        .zip(deployment.as_ref())
        .and_then(|(meant, name)| meant.note(name, (&from, old), (&to, new)));
    let pins =
        version_difference::pins(&difference, Side::whole(old), Side::whole(new), &present.catalog);
    Ok(Comparison {
        from,
        to,
        deployment,
        note,
        names,
        impact,
        difference,
        more,
        next: None,
        pins,
        role_values: Vec::new(),
        more_role_values: 0,
        contents: Vec::new(),
        hidden_characters: HiddenCharacters::default(),
    })
}

/// The policies of two targets, if they differ. A side that is given by its root hash can belong to
/// many targets, so there is nothing to compare.
async fn policies(
    on: &mut PgConnection,
    from: &ComparedSide,
    to: &ComparedSide,
) -> Result<Option<Sides<Policy>>, Problem> {
    let (Some(from), Some(to)) = (from.blueprint, to.blueprint) else { return Ok(None) };
    let old = store::blueprints::policy_at(on, from).await.map_err(from_store)?;
    let new = store::blueprints::policy_at(on, to).await.map_err(from_store)?;
    Ok(Sides::differing(old.as_ref(), new.as_ref()))
}

/// Loads the requested blueprint. Documents that it shares with the present are reused.
pub(crate) async fn side(
    control: &Control,
    by: &ComputeLimit,
    present: &CurrentState,
    point: Point,
) -> Result<(ComparedSide, Blueprint), Problem> {
    let mut connection = control.connection().await?;
    let (target, root) = match point {
        Point::Number(number) => {
            let root = store::blueprints::blueprint_root(&mut connection, number)
                .await
                .map_err(from_store)?;
            let newest = present.head.number;
            let missing = || {
                Problem::not_found(format!(
                    "Blueprint {number} does not exist. Use a number from 1 to {newest}."
                ))
            };
            (Some(number), root.ok_or_else(missing)?)
        }
        Point::Root(root) => {
            if !store::blueprints::is_root(&mut connection, root).await.map_err(from_store)? {
                return Err(Problem::not_found(format!(
                    "No blueprint has the root hash {}. See the list of blueprints.",
                    root.short()
                )));
            }
            (None, root)
        }
    };
    drop(connection);
    let blueprint = load(control, by, root, &present.blueprint).await?;
    Ok((ComparedSide { blueprint: target, review: None, root: Some(root.to_string()) }, blueprint))
}

pub(crate) fn to_blueprint_summary(row: BlueprintRow) -> Result<BlueprintSummary, Problem> {
    let corrupt = || {
        tracing::error!(blueprint = row.number, "cannot read the row of a blueprint");
        Problem::internal()
    };
    let kind = match row.kind.as_str() {
        "genesis" => BlueprintKind::Genesis,
        "change" => BlueprintKind::Change,
        "switch" => BlueprintKind::Switch,
        _ => return Err(corrupt()),
    };
    let title = match kind {
        BlueprintKind::Genesis => "Genesis".to_owned(),
        BlueprintKind::Change => row.title.clone().unwrap_or_default(),
        BlueprintKind::Switch => {
            let word = if row.enabled { "Execution on" } else { "Execution off" };
            row.reason
                .as_ref()
                .map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"))
        }
    };
    Ok(BlueprintSummary {
        number: BlueprintNumber(row.number),
        kind,
        root: Hash::from_bytes(&row.root).ok_or_else(corrupt)?.to_string(),
        enabled: row.enabled,
        at: at(row.at),
        by: row.by.clone(),
        review: row.review.map(ReviewId),
        title,
        deployment: row.deployment.clone(),
        deployment_id: row.deployment_id.map(DeploymentId),
        authors: row.authors.clone(),
        approved_by: row.approved_by.clone(),
    })
}
