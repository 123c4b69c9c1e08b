UPDATE step s SET concurrency_group_id = l.id, rank = d.rank, jig = d.jig,
  exclusive = d.exclusive, destructive = d.destructive, immediate = d.immediate, needs = d.needs,
  place = d.place, content_hash = d.content_hash, freezes_node = d.freezes_node,
  retries = d.retries, backoff_s = d.backoff_s, timeout_s = d.timeout_s,
  join_kind = d.join_kind, join_n = d.join_n, join_after = d.join_after, priority = d.priority,
  generation = CASE WHEN d.again THEN $23 ELSE s.generation END
FROM {STEP_COLUMNS}
WHERE s.id = d.id
