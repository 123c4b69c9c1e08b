SELECT source || ' ' || key, image FROM (
  SELECT 'blueprint' AS source, number::text AS key, audit_image('blueprint', to_jsonb(t)) AS image FROM blueprint t
  UNION ALL SELECT 'policy', number::text, audit_image('policy', to_jsonb(p)) FROM policy p
  UNION ALL SELECT 'barclamp', concat_ws(' ', name, version), audit_image('barclamp', to_jsonb(b)) FROM barclamp b
  UNION ALL SELECT 'review', id::text, audit_review(s) FROM review s
  UNION ALL SELECT 'passkey', id::text, audit_image('passkey', to_jsonb(k)) FROM passkey k
  UNION ALL SELECT 'passkey_confirmation', passkey_id::text, audit_image('passkey_confirmation', to_jsonb(c))
    FROM passkey_confirmation c
  UNION ALL SELECT 'verdict_signature', verdict_id::text, audit_image('verdict_signature', to_jsonb(g)) FROM verdict_signature g
  UNION ALL SELECT 'verdict', id::text, audit_image('verdict', to_jsonb(v)) FROM verdict v) r
WHERE NOT audit_agrees(source || '.insert', key, image)
UNION ALL
SELECT 'run ' || r.id, audit_run(r) FROM run r WHERE r.state <> 'queued' AND NOT audit_agrees(
  CASE r.state WHEN 'running' THEN 'run.start' ELSE 'run.end' END, r.id::text, audit_run(r)) LIMIT $1
