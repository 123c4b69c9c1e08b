-- The facts of reviews (s) of proposals (p) with their blueprints (t). $2: the maximum number of
-- threads per review. Every move of a deployment has its risk, so left_holds runs for few reviews.
SELECT s.id, p.state = 'open' AND p.version = s.version AS newest, t.number AS target,
  p.state = 'discarded' AS discarded, s.policy_number, s.epoch, s.approvals_needed, s.risk,
  ARRAY(SELECT a.person_id FROM review_author a WHERE a.review_id = s.id) AS authors,
  ARRAY(SELECT v.person_id FROM verdict v
        WHERE v.review_id = s.id AND v.person_id IS NOT NULL ORDER BY v.id) AS reviewers,
  ARRAY(SELECT v.kind FROM verdict v
        WHERE v.review_id = s.id AND v.person_id IS NOT NULL ORDER BY v.id) AS verdicts,
  ARRAY(SELECT (extract(epoch FROM v.at) * 1000000)::bigint FROM verdict v
        WHERE v.review_id = s.id AND v.person_id IS NOT NULL ORDER BY v.id) AS given_at,
  ARRAY(SELECT v.id <= w.verdicts_void_to FROM verdict v JOIN person w ON w.id = v.person_id
        WHERE v.review_id = s.id ORDER BY v.id) AS void,
  EXISTS (SELECT FROM signature_demand g WHERE g.review_id = s.id) AS demanded,
  CASE WHEN EXISTS (SELECT FROM signature_demand g WHERE g.review_id = s.id)
    THEN ARRAY(SELECT l.person_id FROM (
        SELECT DISTINCT ON (v.person_id) v.id, v.person_id
        FROM verdict v JOIN person w ON w.id = v.person_id
        WHERE v.review_id = s.id AND v.id > w.verdicts_void_to
        ORDER BY v.person_id, v.id DESC) l
      WHERE is_signed(l.id))
    ELSE '{}' END AS signed,
  (extract(epoch FROM s.created_at) * 1000000)::bigint AS submitted,
  ARRAY(SELECT w.name FROM review o
        JOIN comment c ON c.review_id = o.id AND c.thread_id IS NULL AND c.resolved_by IS NULL
        JOIN person w ON w.id = c.person_id
        WHERE o.proposal_id = p.id AND p.state = 'open' ORDER BY c.id LIMIT $2) AS threads,
  (SELECT coalesce(jsonb_agg(jsonb_build_array(m.name, m.head_no) ORDER BY m.deployment_id), '[]')
   FROM moved_base(s.id) m WHERE p.state = 'open') AS moved,
  (SELECT coalesce(jsonb_agg(jsonb_build_array(l.name, l.on_hold, l.held_by)), '[]')
   FROM left_holds(s.id) l WHERE p.state = 'open' AND 'move' = ANY (s.risk)) AS left_holds
