-- The credential with which a transaction acts, and passwords that the database can verify but not
-- produce.

-- Rows of finished transactions remain for a moment and must not block the removal of people and
-- tokens.
ALTER TABLE acting
  DROP CONSTRAINT acting_person_id_fkey,
  DROP CONSTRAINT acting_token_id_fkey,
  ADD COLUMN session_id uuid,
  ADD COLUMN admin boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN acting.session_id IS 'The presented session. NULL: an API token.';
COMMENT ON COLUMN acting.admin IS
  'The person was an admin when they presented a session. False for tokens.';

-- The hash part becomes the SHA-256 of the Argon2id output. With the password, a client computes
-- the output. The row does not contain it.
UPDATE account SET password_hash =
  left(password_hash, -length(split_part(password_hash, '$', 6)))
  || rtrim(encode(sha256(decode(split_part(password_hash, '$', 6) || '=', 'base64')), 'base64'), '=');
COMMENT ON COLUMN account.password_hash IS
  'PHC string of Argon2id. Its hash part is the SHA-256 of the Argon2id output, so the row '
  'alone proves nothing.';
