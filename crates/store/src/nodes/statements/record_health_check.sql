WITH counted AS (UPDATE node SET contradicting_checks = $2, last_seen_at = CASE WHEN $3 THEN now() ELSE last_seen_at END,
       -- The boot id of a dead node is the one from before its death.
       boot_id = CASE WHEN alive THEN coalesce(boot_id, $9) ELSE boot_id END WHERE id = $1),
     last AS (SELECT reached, address, detail, attempts FROM health_check WHERE node_id = $1 ORDER BY at DESC LIMIT 1),
     old AS (DELETE FROM health_check l WHERE node_id = $1 AND at <= (
       SELECT at FROM health_check WHERE node_id = $1 ORDER BY at DESC OFFSET $4 LIMIT 1)
       -- Keeps the last successful check of each address, because pages show it.
       AND NOT (l.reached AND l.connection_no = (SELECT connection_no FROM node WHERE id = $1) AND NOT EXISTS (
         SELECT FROM health_check later WHERE later.node_id = $1 AND later.reached AND later.connection_no = l.connection_no
           AND later.address = l.address AND later.at > l.at))),
     inserted AS (
       INSERT INTO health_check (node_id, reached, address, detail, duration_ms, by, attempts)
       VALUES ($1, $3, left($5, 300), left($6, 2000), $7, $8, $10) RETURNING reached, address, detail, attempts)
SELECT NOT EXISTS (SELECT FROM last JOIN inserted USING (reached, address, detail, attempts))
