SELECT r.id, r.step_id, s.action, s.noderole_id, nr.role, nr.instance, nr.role_hash, nr.deployment_id, nr.system_data,
  r.generation, r.blueprint_number, t.root AS target_root, m.number AS reviewed, m.root AS reviewed_root,
  g.root AS generation_root, b.root AS before_root, b.reviewed AS before_reviewed, b.input AS before_input, r.epoch,
  h.epoch AS epoch_now, r.content_hash, r.exclusive, r.node_id, n.fqdn, n.phantom,
  node_connection(n.transport, n.address, n.connection) AS connection,
  d.name AS home, n.facts, n.hints, h.number AS head, ht.root AS head_root,
  s.node_id AS step_node, s.state AS step_state, s.jig, s.destructive, s.exclusive AS step_exclusive, s.immediate, s.needs,
  s.run_location, s.rank, s.input_version, s.timeout_s, s.generation AS step_generation, s.applied_generation, l.name AS concurrency_group,
  l.deployment_id AS group_deployment, r.concurrency_group_id = s.concurrency_group_id AS same_group, nr.data, n.deployment_id AS node_deployment, h.enabled,
  on_hold(nr.deployment_id) AS on_hold, n.phantom OR n.available AS available,
  node_fits(s.needs, n.phantom, n.removed_in, n.available, n.alive, n.joined) AS fits, j.active AS jig_active,
  coalesce((SELECT jsonb_agg(jsonb_build_object('parent', p.noderole_id, 'role', pr.role, 'instance', pr.instance,
      'node', p.node_id, 'fqdn', pn.fqdn, 'kind', e.kind, 'state', p.state, 'immediate', p.immediate,
      'skipped', p.skipped IS NOT NULL))
    FROM edge e JOIN step p ON p.id = e.parent JOIN noderole pr ON pr.id = p.noderole_id JOIN node pn ON pn.id = p.node_id
    WHERE e.child = s.id), '[]') AS parents
FROM run r JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
JOIN node n ON n.id = r.node_id JOIN deployment d ON d.id = n.deployment_id JOIN blueprint t ON t.number = r.blueprint_number
JOIN blueprint g ON g.number = r.generation JOIN concurrency_group l ON l.id = r.concurrency_group_id JOIN jig j ON j.name = s.jig
CROSS JOIN head h JOIN blueprint ht ON ht.number = h.number
CROSS JOIN LATERAL (SELECT number, root FROM blueprint WHERE number <= r.blueprint_number AND kind <> 'switch'
                    ORDER BY number DESC LIMIT 1) m
LEFT JOIN LATERAL (SELECT p.root, p.number AS reviewed, (
    SELECT i.input FROM step o JOIN run i ON i.step_id = o.id
    WHERE o.noderole_id = s.noderole_id AND o.action = 'run' AND i.generation < r.generation
      AND i.input IS NOT NULL ORDER BY i.id DESC LIMIT 1) AS input
  FROM blueprint p WHERE p.number < r.generation AND p.kind <> 'switch' AND s.action <> 'run'
  ORDER BY p.number DESC LIMIT 1) b ON true
WHERE r.id = ANY($1)
