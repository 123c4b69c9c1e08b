last AS (
  SELECT DISTINCT ON (t.number, v.person_id) t.number, v.id, v.person_id, v.kind,
    v.kind = 'approve' AND approval_barred(v.person_id, v.review_id, v.at) AS barred
  FROM blueprint t JOIN verdict v ON v.review_id = t.review_id
  WHERE t.number = ANY($1) AND v.person_id IS NOT NULL
    AND EXISTS (SELECT FROM person p WHERE p.id = v.person_id AND p.kind = 'human')
    AND NOT EXISTS (
      SELECT FROM review_author a
      WHERE a.review_id = v.review_id AND a.person_id = v.person_id)
    AND NOT EXISTS (
      SELECT FROM review m LEFT JOIN edit e ON e.proposal_id = m.proposal_id
      WHERE m.id = v.review_id AND (m.created_by = v.person_id
        OR e.actor = v.person_id AND NOT e.undone OR v.person_id = ANY (e.touched_by)))
  ORDER BY t.number, v.person_id, v.id DESC)
