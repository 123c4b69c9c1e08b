-- Authenticator apps of people (TOTP, RFC 6238), and sessions with a second factor.

-- A row is a factor once confirmed_at is set. last_step is the time step of the last accepted code.
CREATE TABLE totp (
  person_id     uuid PRIMARY KEY REFERENCES person,
  secret        bytea NOT NULL CHECK (octet_length(secret) = 20),
  created_at    timestamptz NOT NULL DEFAULT now(),
  confirmed_at  timestamptz,
  last_step     bigint NOT NULL DEFAULT 0,
  session_id    uuid
);
COMMENT ON COLUMN totp.session_id IS
  'The session that set up the app. Only this session can read the secret again and confirm '
  'the app.';

-- When the session verified its second factor. Older sessions count as verified.
ALTER TABLE session ADD COLUMN factor_at timestamptz;
UPDATE session SET factor_at = now();

-- An admin who removes another person's factor may know the password.
ALTER TABLE access_change DROP CONSTRAINT access_change_kind_check;
ALTER TABLE access_change ADD CONSTRAINT access_change_kind_check
  CHECK (kind IN ('created', 'granted', 'enabled', 'link', 'reset', 'factor_removed'));

ALTER TABLE acting ADD COLUMN pending boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN acting.pending IS
  'The session lacks its second factor. The transaction may only verify or enrol one.';
