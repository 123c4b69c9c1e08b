-- What a transaction acts with, and passwords that the database verifies but cannot produce.

-- Rows of finished transactions stay for a moment and must not keep people and tokens from being removed.
ALTER TABLE acting
  DROP CONSTRAINT acting_person_id_fkey,
  DROP CONSTRAINT acting_token_id_fkey,
  ADD COLUMN session_id uuid,
  ADD COLUMN admin boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN acting.session_id IS 'The session that was presented; NULL: an API token.';
COMMENT ON COLUMN acting.admin IS 'The person was an admin when they presented a session. False for tokens.';

-- The hash part becomes the SHA-256 of the Argon2id output. Whoever knows the password computes the output; the row does not contain it.
UPDATE account SET password_hash =
  left(password_hash, -length(split_part(password_hash, '$', 6)))
  || rtrim(encode(sha256(decode(split_part(password_hash, '$', 6) || '=', 'base64')), 'base64'), '=');
COMMENT ON COLUMN account.password_hash IS
  'PHC string of Argon2id. Its hash part is the SHA-256 of the Argon2id output, so the row alone proves nothing.';
