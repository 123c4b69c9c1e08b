-- An index for each sort order of a list, in both directions. The last key breaks ties.

CREATE INDEX node_by_state ON node ((CASE WHEN NOT alive THEN 0 WHEN NOT available THEN 1 ELSE 2 END), fqdn)
  WHERE NOT phantom AND removed_in IS NULL;
CREATE INDEX node_by_deployment ON node (deployment_id, fqdn) WHERE NOT phantom AND removed_in IS NULL;

CREATE INDEX run_by_state ON run (coalesce(outcome, state), id);
-- A run that has not ended has no duration yet.
CREATE INDEX run_by_took ON run (coalesce((EXTRACT(epoch FROM ended_at - started_at) * 1000000)::bigint, -1), id);

CREATE INDEX submission_by_title ON submission (title, id);
