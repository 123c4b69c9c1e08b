-- Results of attempts per node, within limits; the surroundings of each run; and the run of each
-- output.

ALTER TABLE run
  ADD COLUMN result_bytes int NOT NULL DEFAULT 0 CHECK (result_bytes >= 0),
  ADD COLUMN surroundings jsonb;
UPDATE run SET result_bytes = octet_length(result::text) WHERE result IS NOT NULL AND result <> '{}';
COMMENT ON COLUMN run.result IS
  'The result of the attempt, independent of its outcome. NULL with result_bytes > 0: no '
  'longer stored (engine::data::kept).';
COMMENT ON COLUMN run.result_bytes IS 'The size of the result. 0: there is none.';
COMMENT ON COLUMN run.surroundings IS 'The other input of the run, with secrets as references.';
CREATE INDEX run_results ON run (node_id, id DESC) INCLUDE (step_id, result_bytes)
  WHERE result IS NOT NULL AND result_bytes > 0;

ALTER TABLE step ADD COLUMN wall_run bigint;
UPDATE step s SET wall_run = (SELECT max(r.id) FROM run r WHERE r.step_id = s.id AND r.outcome = 'succeeded') WHERE wall IS NOT NULL;
COMMENT ON COLUMN step.wall_run IS 'The run that returned the output (column wall).';

-- To find the edit that set a value: edits that set data of a noderole, or of a role in a
-- deployment.
CREATE INDEX edit_sets ON edit (
  (body ->> 'edit'), coalesce(body ->> 'node', body ->> 'deployment'), coalesce(body ->> 'noderole', body ->> 'role'), proposal_id DESC, seq DESC)
  WHERE body ->> 'edit' IN ('set_noderole_data', 'set_role_data') AND NOT undone;
