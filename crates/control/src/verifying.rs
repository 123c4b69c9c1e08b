//! Verifying: whether the database's rows are what the documents say, and whether its targets were approved.

use api::Problem;
use engine::blueprint::{changes, project};
use engine::cluster::{Blueprint, RootDoc};
use engine::ids::TargetNo;
use store::intent::{self, Discrepancy};

use crate::Control;
use crate::present::load_whole;
use crate::problems::from_store;

/// What verifying found.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// The target that was looked at.
    pub target: TargetNo,
    /// How many steps the documents ask for.
    pub steps: usize,
    /// Rows that aren't what they say, and approvals and audit entries that are missing; at most 100 of each.
    pub discrepancies: Vec<Discrepancy>,
}

impl Control {
    /// Makes the projection of the head anew from its documents, as stored, and compares it with the rows, all in one moment. For
    /// whoever has the database, not for people who are signed in: it reads everything.
    pub async fn verify(&self) -> Result<Verified, Problem> {
        let mut transaction = self.begin().await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *transaction)
            .await
            .map_err(|e| from_store(e.into()))?;
        sqlx::query("SET LOCAL statement_timeout = 0")
            .execute(&mut *transaction)
            .await
            .map_err(|e| from_store(e.into()))?;
        let moment = self.kept.moment(&mut transaction).await?;
        let nothing = Blueprint::default();
        // Read again: what is kept in memory is what this process believes.
        let blueprint = load_whole(&mut transaction, moment.root).await.map_err(from_store)?;
        let all = changes(&RootDoc::default(), &blueprint.root());
        let projection = project(&nothing, &blueprint, &all, &moment.catalog)
            .map_err(|error| Problem::conflict("catalog", error.to_string()))?;
        let mut discrepancies = intent::discrepancies(&mut transaction, &blueprint, &projection)
            .await
            .map_err(from_store)?;
        discrepancies.extend(intent::unproven(&mut transaction).await.map_err(from_store)?);
        Ok(Verified { target: moment.head.number, steps: projection.steps.len(), discrepancies })
    }
}
