SELECT s.id, audit_review(s), coalesce((
    SELECT jsonb_agg(jsonb_build_object('kind', d.kind, 'id', d.id,
      'old', encode(d.old_hash, 'hex'), 'new', encode(d.new_hash, 'hex')) ORDER BY d.kind, d.id)
    FROM review_document d WHERE d.review_id = s.id), '[]')
FROM review s WHERE s.id > $1 AND NOT audited_after('review.insert', s.id::text, $2)
ORDER BY s.id LIMIT $3
