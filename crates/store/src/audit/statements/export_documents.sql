SELECT n.kind, n.id, o.kind, o.hash, o.body FROM (
  SELECT d.kind, d.id, d.new_hash AS hash
  FROM blueprint t JOIN review_document d ON d.review_id = t.review_id
  WHERE t.number = $1
  UNION ALL
  SELECT r.kind, r.id, r.hash FROM blueprint t CROSS JOIN LATERAL root_documents(t.root) r
  WHERE t.number = $1 AND t.kind = 'genesis') n
JOIN object o ON o.hash = n.hash
WHERE (n.kind, n.id) > ($2, $3) ORDER BY n.kind, n.id LIMIT $4
