//! Commits arbitrary blueprints with all guards active, for graphs that no catalog can produce.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::blueprint::impact::{Planned, risks};
use engine::blueprint::{change_hash, changes, difference, project};
use engine::catalog::Catalog;
use engine::cluster::document::parse;
use engine::cluster::{Blueprint, RootDoc};
use engine::gate::VerdictKind;
use engine::ids::{BlueprintNumber, DeploymentId};
use engine::plan::Effects;
use engine::plan::base::written;
use serde_json::json;
use store::blueprints::NewBlueprint;
use store::reviews::NewReview;

use crate::installation::Installation;

pub struct Line {
    pub catalog: Catalog,
    pub blueprint: Blueprint,
}

impl Line {
    /// The current catalog and target.
    pub async fn of(installation: &Installation) -> Self {
        let mut on = installation.database.app().acquire().await.unwrap();
        let mut catalog = Catalog::default();
        for object in store::catalog::catalog_objects(&mut on, &[]).await.unwrap() {
            catalog.add(&object).unwrap();
        }
        let root = store::blueprints::head(&mut on).await.unwrap().root.unwrap();
        let body = store::catalog::bodies(&mut on, &[root]).await.unwrap().remove(&root).unwrap();
        let doc: RootDoc = parse("root", root, &body).unwrap();
        let hashes: Vec<Hash> =
            doc.deployments.values().chain(doc.nodes.values()).copied().collect();
        let bodies = store::catalog::bodies(&mut on, &hashes).await.unwrap();
        let mut blueprint = Blueprint::default();
        doc.deployments
            .values()
            .for_each(|hash| blueprint.load_deployment(*hash, &bodies[hash]).unwrap());
        doc.nodes.values().for_each(|hash| blueprint.load_node(*hash, &bodies[hash]).unwrap());
        Self { catalog, blueprint }
    }

    pub fn role(&self, name: &str) -> Hash {
        self.catalog.roles().find(|(_, role)| role.name.as_str() == name).unwrap().0
    }

    /// Commits a blueprint through a proposal on this deployment. `None` if it changes nothing.
    pub async fn commit(
        &mut self,
        installation: &Installation,
        on: DeploymentId,
        new: Blueprint,
    ) -> Option<BlueprintNumber> {
        let changes = changes(&self.blueprint.root(), &new.root());
        if changes.is_empty() {
            return None;
        }
        let written = written(&self.blueprint, &new, &changes);
        let projection = project(&self.blueprint, &new, &changes, &self.catalog).unwrap();
        let root = new.root_object().unwrap();
        let mut transaction = installation.database.owner().begin().await.unwrap();
        let head = store::blueprints::head(&mut transaction).await.unwrap();
        store::catalog::ensure_objects(&mut transaction, std::slice::from_ref(&root))
            .await
            .unwrap();
        let (proposal, _) =
            store::proposals::ensure_proposal(&mut transaction, on, installation.ada.person)
                .await
                .unwrap();
        let version = store::proposals::increment_version(&mut transaction, proposal, 0)
            .await
            .unwrap()
            .unwrap();
        let rows = store::deployments::deployment_rows(&mut transaction).await.unwrap();
        let difference = difference(&self.blueprint, &new, &changes).unwrap();
        let planned = Planned {
            old: &self.blueprint,
            new: &new,
            difference: &difference,
            projection: &projection,
            effects: &Effects::default(),
            catalog: &self.catalog,
        };
        let risks = risks(&planned);
        let review = NewReview {
            proposal,
            version,
            title: "any".into(),
            change: change_hash(&changes).unwrap(),
            effects: root.hash,
            policy: head.policy,
            new_policy: None,
            approvals: 1,
            epoch: head.epoch,
            root: root.hash,
            summary: json!({}),
            risks,
            by: installation.ada.person,
            base: rows.iter().map(|row| (row.id, row.head_no)).collect::<BTreeMap<_, _>>(),
            authors: BTreeSet::from([installation.ada.person]),
            documents: changes.clone(),
        };
        let review = store::reviews::insert_review(&mut transaction, &review).await.unwrap();
        transaction.commit().await.unwrap();
        let mut transaction = installation.database.owner().begin().await.unwrap();
        let head = store::blueprints::lock_for_commit(&mut transaction).await.unwrap();
        store::reviews::insert_verdict(
            &mut transaction,
            review,
            installation.bo.person,
            VerdictKind::Approve,
            "",
        )
        .await
        .unwrap();
        let target = NewBlueprint {
            head,
            review: Some(review),
            policy: None,
            by: Some(installation.ada.person),
            old: &self.blueprint,
            new: &new,
            root: root.hash,
            changes: &changes,
            written: &written,
            projection: &projection,
        };
        let number = store::blueprints::commit_change(&mut transaction, &target).await.unwrap();
        store::blueprints::close_committed_proposal(&mut transaction, review).await.unwrap();
        transaction.commit().await.unwrap();
        self.blueprint = new;
        Some(number)
    }

    /// Stores documents that a new blueprint refers to.
    pub async fn put(&self, installation: &Installation, objects: &[engine::canonical::Object]) {
        let mut on = installation.database.app().acquire().await.unwrap();
        store::catalog::ensure_objects(&mut on, objects).await.unwrap();
    }
}
