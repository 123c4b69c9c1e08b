//! Replans reviews whose base changed. The commit that changed it replans them too, but its request
//! may time out or die before.

use std::sync::Arc;
use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use control::Control;

use crate::background_tasks::SWEEP_PERIOD;

/// An interrupted run leaves nothing half done, because each review is a transaction of its own.
pub(super) struct ReplanReviews(pub Arc<Control>);

impl Task for ReplanReviews {
    fn name(&self) -> &'static str {
        "replan-reviews"
    }

    fn purpose(&self) -> &'static str {
        "Replans open reviews whose base changed, if the commit did not replan them."
    }

    fn period(&self) -> Duration {
        SWEEP_PERIOD
    }

    async fn run(&mut self) -> TaskResult {
        match self.0.replan_stale().await {
            Err(problem) => Err(Failure::new("Cannot replan reviews", problem.detail)),
            Ok(planned) => {
                if planned > 0 {
                    tracing::info!(planned, "replanned reviews whose base changed");
                }
                let none = "All reviews are up to date.";
                Ok(Outcome::counted(planned as u64, "Replanned", "review", "reviews", none))
            }
        }
    }
}
