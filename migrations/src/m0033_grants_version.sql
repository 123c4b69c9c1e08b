-- Detects that two admins change a person's permissions concurrently: the second gets an error.
ALTER TABLE person ADD COLUMN grants_version int NOT NULL DEFAULT 1;
COMMENT ON COLUMN person.grants_version IS
  'The version of all permissions of the person. A change names the version that it is based on.';

COMMENT ON COLUMN session.fresh_at IS
  'When the session got its current token: at its start, or when its password was set. by_link '
  'counts for one hour after that.';
