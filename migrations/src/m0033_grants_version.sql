-- Detects that two admins change a person's permissions concurrently: the second gets an error.
ALTER TABLE person ADD COLUMN grants_version int NOT NULL DEFAULT 1;
COMMENT ON COLUMN person.grants_version IS
  'Of what they may, everywhere and in parts of the tree: a change names the version that somebody looked at.';

COMMENT ON COLUMN session.fresh_at IS
  'Since when the session has the token that it has: it began then, or its password was set. For an hour from there by_link counts.';
