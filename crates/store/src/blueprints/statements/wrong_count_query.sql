WITH parent AS (
  SELECT e.child,
    count(*) FILTER (WHERE e.kind <> 'order_only') AS of_join,
    count(*) FILTER (WHERE e.kind <> 'order_only'
      AND (p.state = 'active' OR (p.state = 'error' AND c.join_after = 'end'))) AS satisfied_parents,
    count(*) FILTER (WHERE e.kind = 'order_only' AND p.skipped IS NULL
      AND p.state IN ('blocked', 'todo', 'transition')) AS ahead
  FROM edge e JOIN step p ON p.id = e.parent JOIN step c ON c.id = e.child GROUP BY e.child),
counted AS (
  SELECT s.id, s.action, s.state, s.pending, n.disposition, coalesce(ahead, 0) + CASE s.join_kind
      WHEN 'all' THEN coalesce(of_join - satisfied_parents, 0)
      WHEN 'any' THEN CASE WHEN of_join > 0 AND satisfied_parents = 0 THEN 1 ELSE 0 END
      ELSE greatest(0, s.join_n - coalesce(satisfied_parents, 0)) END AS counts,
    s.satisfied, CASE s.join_kind WHEN 'all' THEN 0 ELSE coalesce(satisfied_parents, 0) END AS satisfying
  FROM step s JOIN noderole n ON n.id = s.noderole_id LEFT JOIN parent ON parent.child = s.id)
SELECT id, jsonb_build_object('state', state, 'disposition', disposition, 'pending', array[pending, counts],
  'satisfied', array[satisfied, satisfying]) FROM counted
WHERE (CASE action WHEN 'run' THEN (state = 'gone') = (disposition = 'in_service')
    ELSE state <> 'gone' AND disposition = 'in_service' END) OR (state <> 'gone' AND (pending, satisfied) <> (counts, satisfying))
