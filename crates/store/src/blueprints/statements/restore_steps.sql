UPDATE step s SET concurrency_group_id = l.id, rank = d.rank, jig = d.jig,
  exclusive = d.exclusive, destructive = d.destructive, immediate = d.immediate, needs = d.needs,
  place = d.place, content_hash = d.content_hash, freezes_node = d.freezes_node,
  retries = d.retries, backoff_s = d.backoff_s, timeout_s = d.timeout_s,
  join_kind = d.join_kind, join_n = d.join_n, join_after = d.join_after, priority = d.priority,
  generation = $23, applied_generation = 0, pending = 1, not_before = '-infinity', since = now(),
  node_up = n.phantom OR n.alive, state = CASE WHEN EXISTS (
    SELECT FROM run r WHERE r.step_id = s.id AND r.ended_at IS NULL)
    THEN 'transition' ELSE 'blocked' END
FROM {STEP_COLUMNS}
WHERE s.id = d.id
