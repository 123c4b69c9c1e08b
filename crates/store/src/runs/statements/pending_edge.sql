SELECT l.since, l.id FROM unnest($1::text[]) AS w (state) CROSS JOIN LATERAL (
  SELECT s.since, s.id FROM step s
  WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error')
    AND ($2::bigint[] IS NULL OR s.concurrency_group_id = ANY ($2))
    AND ($3::uuid IS NULL OR s.node_id = $3)
    AND ($4::bool IS NOT TRUE OR (s.since, s.id) {comparison} ($5::timestamptz, $6::uuid))
  ORDER BY s.since {order}, s.id {order} OFFSET $7 LIMIT 1) l
ORDER BY 1 {order}, 2 {order} LIMIT 1
