SELECT s.id, jsonb_build_object('noderole', s.noderole_id, 'node', s.node_id, 'action', s.action,
  'deployment', l.deployment_id, 'concurrency_group', l.name, 'max_running', l.max_running,
  'mode', l.mode, 'rank', s.rank, 'jig', s.jig, 'exclusive', s.exclusive,
  'destructive', s.destructive, 'immediate', s.immediate, 'needs', s.needs, 'place', s.place,
  'content', encode(s.content_hash, 'hex'), 'freezes_node', s.freezes_node, 'retries', s.retries,
  'backoff', s.backoff_s, 'timeout', s.timeout_s,
  'join', jsonb_build_array(s.join_kind, s.join_n, s.join_after), 'priority', s.priority,
  'parents', coalesce(
    (SELECT jsonb_object_agg(e.parent, e.kind) FROM edge e WHERE e.child = s.id), '{}'))
FROM step s JOIN concurrency_group l ON l.id = s.concurrency_group_id
WHERE s.state <> 'gone' AND s.action = 'run'
