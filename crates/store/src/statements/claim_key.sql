INSERT INTO idempotency AS i (person_id, key, request, claim, claimed_until)
SELECT $1, $2, $3, $4, now() + make_interval(secs => $5)
WHERE (SELECT count(*) FROM (SELECT 1 FROM idempotency WHERE person_id = $1 LIMIT $7) k) < $7
   OR EXISTS (SELECT 1 FROM idempotency WHERE person_id = $1 AND key = $2)
ON CONFLICT (person_id, key) DO UPDATE SET request = excluded.request, claim = excluded.claim, claimed_at = now(),
  claimed_until = excluded.claimed_until, status = NULL, headers = NULL, body = NULL, withheld = NULL
WHERE i.claimed_at < now() - make_interval(secs => $6)
   OR (i.status IS NULL AND i.claimed_until < now() AND i.request = excluded.request)
RETURNING claim
