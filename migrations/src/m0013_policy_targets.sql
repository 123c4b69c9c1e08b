-- Which target brought each policy, so that it can be said which one was in force at any target.

ALTER TABLE policy ADD COLUMN target bigint UNIQUE REFERENCES target;
COMMENT ON COLUMN policy.target IS 'The target that brought it; until the next one it is in force. Set by guard_policy().';

-- The first came with the genesis, each other one with the commit of a submission that named it. Rows of this table are never changed
-- but here, once, by the owner.
ALTER TABLE policy DISABLE TRIGGER USER;
UPDATE policy p SET target = b.number
FROM (SELECT t.number, row_number() OVER (ORDER BY t.number) AS nth
      FROM target t LEFT JOIN submission s ON s.id = t.submission_id
      WHERE t.kind = 'genesis' OR s.new_policy_hash IS NOT NULL) b
WHERE b.nth = p.number;
ALTER TABLE policy ENABLE TRIGGER USER;
