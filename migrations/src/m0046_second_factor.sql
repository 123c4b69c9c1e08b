-- Authenticator apps of people (TOTP, RFC 6238), and sessions that present a second factor.

-- A row counts as a factor from confirmed_at on. last_step is the time step of the last code that was accepted.
CREATE TABLE totp (
  person_id     uuid PRIMARY KEY REFERENCES person,
  secret        bytea NOT NULL CHECK (octet_length(secret) = 20),
  created_at    timestamptz NOT NULL DEFAULT now(),
  confirmed_at  timestamptz,
  last_step     bigint NOT NULL DEFAULT 0,
  session_id    uuid
);
COMMENT ON COLUMN totp.session_id IS 'The session that set it up: only that one sees the secret again and confirms it.';

-- When the session presented its second factor. Sessions from before this migration count as presented.
ALTER TABLE session ADD COLUMN factor_at timestamptz;
UPDATE session SET factor_at = now();

-- An admin who removes another person's factor may know the password.
ALTER TABLE access_change DROP CONSTRAINT access_change_kind_check;
ALTER TABLE access_change ADD CONSTRAINT access_change_kind_check
  CHECK (kind IN ('created', 'granted', 'enabled', 'link', 'reset', 'factor_removed'));

ALTER TABLE acting ADD COLUMN pending boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN acting.pending IS 'The session lacks its second factor: the transaction may only present or enrol one.';
