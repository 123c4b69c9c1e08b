SELECT s.id, s.title, coalesce(s.summary->'deployments'->>d.id::text, d.name), d.id, n.id, n.fqdn,
  ARRAY(SELECT w.name FROM review_author a JOIN person w ON w.id = a.person_id
        WHERE a.review_id = s.id ORDER BY w.name),
  s.created_at, coalesce(s.summary->>'short', s.summary->'lines'->>0, ''),
  EXISTS (SELECT FROM replan r WHERE r.before_id = s.id AND r.after_id IS NULL)
FROM review s JOIN proposal p ON p.id = s.proposal_id JOIN deployment d ON d.id = p.deployment_id
LEFT JOIN node n ON n.id = p.node_id WHERE s.id = ANY($1) ORDER BY s.id DESC
