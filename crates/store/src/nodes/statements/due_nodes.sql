UPDATE node n SET health_checked_at = now()
FROM (SELECT id FROM node
      WHERE transport = 'ssh' AND removed_in IS NULL
        AND (health_checked_at IS NULL OR health_checked_at < now() - make_interval(secs => $1))
      ORDER BY health_checked_at NULLS FIRST LIMIT $2 FOR UPDATE SKIP LOCKED) due
WHERE n.id = due.id
RETURNING n.id, n.fqdn, n.doc, node_connection(n.transport, n.address, n.connection),
  n.alive AND n.joined = 'confirmed', coalesce(n.boot_id, ''), n.connection_no, n.report_no
