SELECT d.deployments, d.on_hold, d.proposed, n.nodes, n.dead, n.maintenance, r.queued, r.running, r.oldest,
coalesce(extract(epoch FROM now() - r.oldest), 0)::float8 AS oldest_age, w.workers, w.capacity, o.open_reviews FROM
(SELECT count(*) AS deployments, count(*) FILTER (WHERE on_hold_by IS NOT NULL) AS on_hold,
        (SELECT count(DISTINCT deployment_id) FROM proposal WHERE state = 'open' AND kind = 'personal') AS proposed
 FROM deployment WHERE removed_in IS NULL) d,
(SELECT count(*) AS nodes, count(*) FILTER (WHERE NOT alive) AS dead, count(*) FILTER (WHERE NOT available) AS maintenance
 FROM node WHERE NOT phantom AND removed_in IS NULL) n,
(SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'running') AS running,
        min(queued_at) FILTER (WHERE state = 'queued') AS oldest FROM run WHERE ended_at IS NULL) r,
(SELECT count(*) AS workers, coalesce(sum(capacity) FILTER (WHERE drain_since IS NULL), 0)::bigint AS capacity FROM worker
 WHERE phase = 'confirmed' AND lease_until > now()) w,
(SELECT count(*) AS open_reviews FROM (SELECT 1 FROM proposal p JOIN review s ON s.proposal_id = p.id AND s.version = p.version
 WHERE p.state = 'open' LIMIT 1000) s) o
