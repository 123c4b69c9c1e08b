-- The secrets of a worker, without their content. Reviews warn about missing ones. The worker
-- itself decides which secrets a run receives.
ALTER TABLE worker ADD COLUMN secrets jsonb NOT NULL DEFAULT '[]'
  CONSTRAINT worker_secrets_are_a_list CHECK (jsonb_typeof(secrets) = 'array' AND jsonb_array_length(secrets) <= 1000);
COMMENT ON COLUMN worker.secrets IS
  'Names, versions and descriptors of the secrets in the worker''s folder.';
