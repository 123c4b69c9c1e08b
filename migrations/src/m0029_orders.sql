-- Lists in each order that they can be asked for. The last key tells rows apart that are alike in the others; an index serves its order
-- and the reverse of it.

CREATE INDEX node_by_state ON node ((CASE WHEN NOT alive THEN 0 WHEN NOT available THEN 1 ELSE 2 END), fqdn)
  WHERE NOT phantom AND removed_in IS NULL;
CREATE INDEX node_by_deployment ON node (deployment_id, fqdn) WHERE NOT phantom AND removed_in IS NULL;

CREATE INDEX run_by_state ON run (coalesce(outcome, state), id);
-- What has not ended took no time yet.
CREATE INDEX run_by_took ON run (coalesce((EXTRACT(epoch FROM ended_at - started_at) * 1000000)::bigint, -1), id);

CREATE INDEX submission_by_title ON submission (title, id);
