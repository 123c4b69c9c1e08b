-- Every rule that prevents these TODO steps from starting, with details. The column reason is
-- engine::anneal::Reason as JSON. $1: maximum number of open runs. $2: the steps.
SELECT a.step_id AS step, r.reason
FROM step_admission($1) a JOIN step s ON s.id = a.step_id JOIN node n ON n.id = s.node_id
JOIN concurrency_group g ON g.id = s.concurrency_group_id JOIN deployment d ON d.id = g.deployment_id
CROSS JOIN LATERAL (SELECT split_part(n.fqdn, '.', 1) AS node, d.name || '/' || g.name AS concurrency_group) name
CROSS JOIN LATERAL (
  SELECT jsonb_build_object('rule', 'no_run_needed') AS reason, 0 AS position WHERE a.needs_no_run
  UNION ALL
  SELECT jsonb_build_object('rule', 'unknown', 'object', 'disruption budget ' || b.id), b.id
  FROM unnest(s.disruption_budget_ids) AS b (id)
  WHERE a.unknown AND NOT EXISTS (SELECT FROM disruption_budget k WHERE k.id = b.id)
  UNION ALL
  SELECT jsonb_build_object('rule', 'jig', 'jig', s.jig), 0 WHERE a.jig
  UNION ALL
  SELECT jsonb_build_object('rule', 'no_worker_for_jig', 'jig', s.jig), 0 WHERE a.no_worker_for_jig
  UNION ALL
  SELECT jsonb_build_object('rule', u.rule, 'node', name.node), 0
  FROM unnest(a.node_reasons) AS u (rule)
  UNION ALL
  SELECT jsonb_build_object('rule', 'node_blocked', 'node', name.node, 'by', min(e.id::text)), 0
  FROM step e WHERE a.node_blocked AND e.node_id = s.node_id AND e.state = 'error' AND e.blocks_node
  HAVING count(*) > 0
  UNION ALL
  SELECT jsonb_build_object('rule', 'on_hold', 'deployment', h.name, 'by', p.name), h.position
  FROM (
    WITH RECURSIVE above (parent, name, on_hold_by, position) AS (
      SELECT d.parent, d.name, d.on_hold_by, 0 WHERE a.on_hold
      UNION ALL
      SELECT u.parent, u.name, u.on_hold_by, v.position + 1 FROM above v JOIN deployment u ON u.id = v.parent
    )
    SELECT * FROM above
  ) h JOIN person p ON p.id = h.on_hold_by
  UNION ALL
  SELECT jsonb_build_object('rule', 'paused'), 0 WHERE a.paused
  UNION ALL
  SELECT jsonb_build_object('rule', 'backoff', 'failures', s.failures,
    'until', (extract(epoch FROM s.not_before) * 1000000)::bigint,
    'seconds', ceil(extract(epoch FROM s.not_before - now()))::bigint), 0
  WHERE a.backoff
  UNION ALL
  SELECT jsonb_build_object('rule', 'disruption_budget', 'budget', b.name, 'down', u.down, 'max_down', b.max_down), b.id
  FROM disruption_budget_admission() u JOIN disruption_budget b ON b.id = u.id
  WHERE a.disruption_budget AND u.free <= 0 AND u.id = ANY (s.disruption_budget_ids)
    AND (u.id, s.node_id) NOT IN (SELECT m.disruption_budget_id, m.node_id FROM down_nodes() m)
    AND (u.id, s.id) NOT IN (SELECT w.disruption_budget_id, w.step_id FROM awaited_steps() w)
  UNION ALL
  SELECT jsonb_build_object('rule', CASE WHEN a.chunk THEN 'chunk' ELSE 'concurrency_group' END, 'group', name.concurrency_group,
      'running', count(*), 'by', (array_agg(o.step_id ORDER BY o.id))[:3])
    || CASE WHEN a.chunk THEN '{}' ELSE jsonb_build_object('max_running', g.max_running) END, 0
  FROM run o WHERE (a.chunk OR a.concurrency_group) AND o.concurrency_group_id = g.id AND o.ended_at IS NULL
  HAVING count(*) > 0
  UNION ALL
  SELECT jsonb_build_object('rule', 'exclusive', 'node', name.node, 'by', o.step_id), 0
  FROM run o WHERE a.exclusive AND o.node_id = s.node_id AND o.exclusive AND o.ended_at IS NULL
  UNION ALL
  SELECT jsonb_build_object('rule', 'other_action', 'by', o.step_id), 0
  FROM step i JOIN run o ON o.step_id = i.id AND o.ended_at IS NULL
  WHERE a.other_action AND i.noderole_id = s.noderole_id AND i.id <> s.id
  UNION ALL
  SELECT jsonb_build_object('rule', 'miscounted'), 0 WHERE a.reason = 'unknown' AND NOT a.unknown
  UNION ALL
  SELECT jsonb_build_object('rule', 'run_limit', 'running', e.running, 'draining', e.draining,
      'limit', $1::bigint, 'capacity', e.capacity), 0
  FROM run_admission($1) e WHERE a.no_worker OR a.run_limit
) r
WHERE a.step_id = ANY ($2) AND a.state = 'todo'
ORDER BY a.step_id, r.position
