//! `gantry verify`: compares the database's rows with the documents, and checks that every target
//! was approved.

use api::Problem;
use engine::blueprint::{changes, project};
use engine::cluster::{Blueprint, RootDoc};
use engine::ids::BlueprintNumber;
use store::blueprints::Discrepancy;

use crate::current::load_full_blueprint;
use crate::problems::from_store;
use crate::{Control, text};

/// The result of a verification.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// The verified target.
    pub target: BlueprintNumber,
    /// The number of steps in the documents.
    pub steps: usize,
    /// Rows that differ from the documents, and missing approvals and audit entries; at most 100 of
    /// each.
    pub discrepancies: Vec<Discrepancy>,
}

impl Control {
    /// Projects the stored documents of the head again and compares the result with the rows, in
    /// one snapshot. It reads everything, so it is for the operator of the database, not for
    /// signed-in people.
    pub async fn verify(&self) -> Result<Verified, Problem> {
        let mut transaction = self.snapshot().await?;
        sqlx::query("SET LOCAL statement_timeout = 0")
            .execute(&mut *transaction)
            .await
            .map_err(|e| from_store(e.into()))?;
        let state = self.cache.cluster_state(&mut transaction).await?;
        let empty = Blueprint::default();
        // Load the documents again, because the cache may be wrong too.
        let blueprint =
            load_full_blueprint(&mut transaction, state.root).await.map_err(from_store)?;
        let all = changes(&RootDoc::default(), &blueprint.root());
        let projection = project(&empty, &blueprint, &all, &state.catalog)
            .map_err(|error| Problem::conflict("catalog", text::sentence(&error.to_string())))?;
        let mut discrepancies =
            store::blueprints::discrepancies(&mut transaction, &blueprint, &projection)
                .await
                .map_err(from_store)?;
        discrepancies
            .extend(store::blueprints::unproven_rows(&mut transaction).await.map_err(from_store)?);
        Ok(Verified { target: state.head.number, steps: projection.steps.len(), discrepancies })
    }
}
