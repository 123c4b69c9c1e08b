SELECT s.id FROM proposal p JOIN review s ON s.proposal_id = p.id AND s.version = p.version
JOIN head h ON h.epoch = s.epoch
WHERE p.state = 'open' AND (EXISTS (
    SELECT FROM review_base b LEFT JOIN deployment d ON d.id = b.deployment_id
    WHERE b.review_id = s.id AND d.head_no IS DISTINCT FROM b.head_no)
  OR EXISTS (
    SELECT FROM review_document x
    LEFT JOIN deployment d ON x.kind = 'deployment' AND d.id = x.id AND d.removed_in IS NULL
    LEFT JOIN node n ON x.kind = 'node' AND n.id = x.id AND n.removed_in IS NULL
    WHERE x.review_id = s.id AND coalesce(d.doc, n.doc) IS DISTINCT FROM x.old_hash)
  OR EXISTS (SELECT FROM moved_records(s.id)))
ORDER BY s.id LIMIT $1
