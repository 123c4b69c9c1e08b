-- People open a policy change like a document change.

ALTER TABLE opened DROP CONSTRAINT opened_kind_check;
ALTER TABLE opened
  ADD CONSTRAINT opened_kind_check CHECK (kind IN ('policy', 'deployment', 'node')),
  ADD CONSTRAINT opened_policy_is_one CHECK (kind <> 'policy' OR document_id = '00000000-0000-0000-0000-000000000000');
COMMENT ON COLUMN opened.document_id IS 'All zeros for the policy.';
