-- What waits, in the order in which it does; priorities by hand; who asked for a re-run.

-- Why not yet: what waits longest in a state comes first. Lane and node are in it, so that those of one deployment or of one node are
-- found without looking at the rows of all others.
CREATE INDEX step_waiting ON step (state, since, id) INCLUDE (lane_id, node_id)
  WHERE state IN ('blocked', 'todo', 'transition', 'error');

-- What a crash between two batches left TODO although it needs no run: looked for every few seconds, and almost never there.
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
  ADD COLUMN failures int NOT NULL DEFAULT 0 CHECK (failures >= 0);
COMMENT ON COLUMN run.failures IS 'Failures of its step before it that were retried: it is attempt failures + 1.';
