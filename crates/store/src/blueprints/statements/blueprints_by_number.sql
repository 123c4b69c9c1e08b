SELECT t.number, t.kind, t.root, t.enabled, t.reason, t.committed_at AS at, p.name AS by, s.id AS review, s.title,
d.name AS deployment, d.id AS deployment_id,
ARRAY(SELECT w.name FROM review_author a JOIN person w ON w.id = a.person_id
      WHERE a.review_id = s.id ORDER BY w.name) AS authors,
ARRAY(SELECT w.name FROM (SELECT DISTINCT ON (v.person_id) v.person_id, v.kind, v.at FROM verdict v
                          WHERE v.review_id = s.id AND v.person_id IS NOT NULL ORDER BY v.person_id, v.id DESC) v
      JOIN person w ON w.id = v.person_id WHERE v.kind = 'approve'
        AND NOT approval_barred(v.person_id, s.id, v.at) ORDER BY w.name) AS approved_by
FROM blueprint t LEFT JOIN person p ON p.id = t.committed_by
LEFT JOIN review s ON s.id = t.review_id LEFT JOIN proposal o ON o.id = s.proposal_id
LEFT JOIN deployment d ON d.id = o.deployment_id WHERE t.number = ANY($1) ORDER BY t.number DESC
