-- The target that introduced each policy. It tells which policy was in force at any target.

ALTER TABLE policy ADD COLUMN target bigint UNIQUE REFERENCES target;
COMMENT ON COLUMN policy.target IS
  'The target that introduced the policy. Set by guard_policy().';

-- Genesis introduced the first policy, and the commit of a review that names it each other one. The
-- owner changes these append-only rows here, once.
ALTER TABLE policy DISABLE TRIGGER USER;
UPDATE policy p SET target = b.number
FROM (SELECT t.number, row_number() OVER (ORDER BY t.number) AS nth
      FROM target t LEFT JOIN submission s ON s.id = t.submission_id
      WHERE t.kind = 'genesis' OR s.new_policy_hash IS NOT NULL) b
WHERE b.nth = p.number;
ALTER TABLE policy ENABLE TRIGGER USER;
