-- Pending steps in their order, manual priorities, and who requested a re-run.

-- For pending steps, the longest in a state first. The columns lane_id and node_id let queries for
-- one deployment or node skip all other rows.
CREATE INDEX step_waiting ON step (state, since, id) INCLUDE (lane_id, node_id)
  WHERE state IN ('blocked', 'todo', 'transition', 'error');

-- Steps that need no run but stayed TODO after a crash between two batches. The query runs every
-- few seconds and almost never finds one.
CREATE INDEX step_rests ON step (rank, id)
  WHERE state = 'todo' AND (instant OR skipped IS NOT NULL
    OR (applied_generation = generation AND (destructive OR cause IS NULL)));

ALTER TABLE deployment
  ADD COLUMN priority int NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100);
COMMENT ON COLUMN deployment.priority IS 'Progress, set by an operator: added to the priority of each of its steps when runs are claimed.';

ALTER TABLE step ADD COLUMN cause_by text CHECK (length(cause_by) <= 200);
COMMENT ON COLUMN step.cause_by IS 'Who asked for the re-run that cause names; NULL: nobody did, or a commit, whose target names its review.';

ALTER TABLE run
  ADD COLUMN cause_by text,
  ADD COLUMN failures int NOT NULL DEFAULT 0 CHECK (failures >= 0),
  ADD COLUMN superseded boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN run.superseded IS 'A commit changed its step and asked to end it: the step goes on with what is meant now.';
COMMENT ON COLUMN run.failures IS 'Failures of its step before it that were retried: it is attempt failures + 1.';
