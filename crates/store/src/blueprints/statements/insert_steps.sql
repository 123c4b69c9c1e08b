INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank, jig, exclusive,
  destructive, immediate, needs, place, content_hash, freezes_node, retries, backoff_s, timeout_s,
  join_kind, join_n, join_after, priority, generation, state, pending, node_up)
SELECT d.id, d.noderole_id, d.node_id, d.action, l.id, d.rank, d.jig, d.exclusive, d.destructive,
  d.immediate, d.needs, d.place, d.content_hash, d.freezes_node, d.retries, d.backoff_s,
  d.timeout_s, d.join_kind, d.join_n, d.join_after, d.priority, $23, 'blocked', 1,
  n.phantom OR n.alive
FROM {STEP_COLUMNS}
