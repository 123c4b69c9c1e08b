WITH change AS (
  SELECT t.number, s.id, s.created_by, greatest(s.approvals_needed, approvals_required(p.hash, s.risk),
    CASE WHEN s.new_policy_hash IS NOT NULL THEN approvals_required(s.new_policy_hash, s.risk) END) AS required
  FROM blueprint t JOIN review s ON s.id = t.review_id JOIN policy p ON p.number = s.policy_number),
last AS (
  SELECT DISTINCT ON (v.review_id, v.person_id) v.id, v.review_id, v.person_id, v.kind,
    audit_image('verdict', to_jsonb(v)) AS image
  FROM verdict v ORDER BY v.review_id, v.person_id, v.id DESC)
SELECT * FROM (
  SELECT c.number, c.required, (SELECT count(*) FROM last l WHERE l.review_id = c.id AND l.kind = 'approve'
    AND l.person_id <> c.created_by
    AND NOT EXISTS (SELECT FROM review_author a WHERE a.review_id = c.id AND a.person_id = l.person_id)
    AND audit_agrees('verdict.insert', l.id::text, l.image)) AS approving
  FROM change c) x WHERE approving < required ORDER BY number LIMIT $1
