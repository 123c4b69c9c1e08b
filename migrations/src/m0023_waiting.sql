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
COMMENT ON COLUMN deployment.priority IS
  'Progress, set by an operator. A claim adds it to the priority of each step in the deployment.';

ALTER TABLE step ADD COLUMN cause_by text CHECK (length(cause_by) <= 200);
COMMENT ON COLUMN step.cause_by IS
  'The person who requested the re-run that cause names. NULL: no person, or a commit, whose '
  'target names its review.';

ALTER TABLE run
  ADD COLUMN cause_by text,
  ADD COLUMN failures int NOT NULL DEFAULT 0 CHECK (failures >= 0),
  ADD COLUMN superseded boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN run.superseded IS
  'A commit changed the step and cancelled this run. The step continues with the new target.';
COMMENT ON COLUMN run.failures IS
  'The number of failed attempts of the step that were retried before. This run is attempt '
  'failures + 1.';
