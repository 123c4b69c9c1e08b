SELECT split_part(action, '.', 1) || ' ' || subject, detail FROM audit a WHERE source = 'database'
AND CASE action WHEN 'blueprint.insert' THEN NOT EXISTS (SELECT FROM blueprint WHERE number::text = a.subject)
  WHEN 'policy.insert' THEN NOT EXISTS (SELECT FROM policy WHERE number::text = a.subject)
  WHEN 'barclamp.insert' THEN NOT EXISTS (SELECT FROM barclamp WHERE concat_ws(' ', name, version) = a.subject)
  WHEN 'review.insert' THEN NOT EXISTS (SELECT FROM review WHERE id = (a.detail ->> 'id')::bigint)
  WHEN 'passkey.insert' THEN NOT EXISTS (SELECT FROM passkey WHERE id::text = a.subject)
  WHEN 'passkey_confirmation.insert' THEN NOT EXISTS (SELECT FROM passkey_confirmation WHERE passkey_id::text = a.subject)
  WHEN 'verdict_signature.insert' THEN NOT EXISTS (SELECT FROM verdict_signature WHERE verdict_id::text = a.subject)
  WHEN 'verdict.insert' THEN NOT EXISTS (SELECT FROM verdict WHERE id = (a.detail ->> 'id')::bigint)
  WHEN 'run.start' THEN NOT EXISTS (SELECT FROM run WHERE id = (a.detail ->> 'id')::bigint)
  WHEN 'run.end' THEN NOT EXISTS (SELECT FROM run WHERE id = (a.detail ->> 'id')::bigint)
  ELSE false END ORDER BY id LIMIT $1
