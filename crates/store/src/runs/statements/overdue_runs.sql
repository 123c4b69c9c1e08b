SELECT r.id AS run, r.step_id AS step, r.epoch, r.state = 'running' AS leased, s.destructive,
  j.class AS jig, s.run_location = 'node' AND NOT n.phantom AS on_node, n.doc,
  node_connection(n.transport, n.address, n.connection) AS connection
FROM run r JOIN step s ON s.id = r.step_id JOIN jig j ON j.name = s.jig
JOIN node n ON n.id = r.node_id
WHERE r.ended_at IS NULL AND r.lease_until < now()
ORDER BY r.lease_until LIMIT $1
