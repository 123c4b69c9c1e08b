-- Passkeys of people, and verdicts signed with them.

-- credential contains the public key and its properties, as the WebAuthn library writes them. Only
-- counter, last_used_at and revoked_* change.
CREATE TABLE passkey (
  id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  person_id      uuid NOT NULL REFERENCES person,
  name           text NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
  rp_id          text NOT NULL CHECK (length(rp_id) BETWEEN 1 AND 253),
  origin         text NOT NULL CHECK (length(origin) BETWEEN 1 AND 300),
  credential_id  bytea NOT NULL UNIQUE CHECK (octet_length(credential_id) BETWEEN 1 AND 1023),
  credential     jsonb NOT NULL CHECK (length(credential::text) <= 16384),
  created_at     timestamptz NOT NULL DEFAULT now(),
  counter        bigint NOT NULL DEFAULT 0 CHECK (counter >= 0),
  last_used_at   timestamptz,
  revoked_at     timestamptz,
  revoked_by     uuid REFERENCES person
);
CREATE INDEX passkey_person ON passkey (person_id, created_at);

-- A confirmed passkey counts for signed verdicts. by_passkey is NULL if the owner confirmed it.
CREATE TABLE passkey_confirmation (
  passkey_id          uuid PRIMARY KEY REFERENCES passkey,
  by_passkey          uuid REFERENCES passkey CHECK (by_passkey <> passkey_id),
  nonce               bytea CHECK (octet_length(nonce) = 16),
  client_data         bytea CHECK (octet_length(client_data) <= 8192),
  authenticator_data  bytea CHECK (octet_length(authenticator_data) <= 8192),
  signature           bytea CHECK (octet_length(signature) <= 2048),
  at                  timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT passkey_confirmation_is_whole CHECK (
    num_nulls(by_passkey, nonce, client_data, authenticator_data, signature) IN (0, 5))
);

-- message is the text that the authenticator signed. The same signature never counts twice.
CREATE TABLE verdict_signature (
  verdict_id          bigint PRIMARY KEY REFERENCES verdict,
  passkey_id          uuid NOT NULL REFERENCES passkey,
  nonce               bytea NOT NULL CHECK (octet_length(nonce) = 16),
  client_data         bytea NOT NULL CHECK (octet_length(client_data) <= 8192),
  authenticator_data  bytea NOT NULL CHECK (octet_length(authenticator_data) <= 8192),
  signature           bytea NOT NULL CHECK (octet_length(signature) <= 2048),
  message             bytea NOT NULL UNIQUE GENERATED ALWAYS AS (sha256(authenticator_data || sha256(client_data))) STORED
);
CREATE INDEX verdict_signature_passkey ON verdict_signature (passkey_id);

-- Reviews whose approvals must be signed. The database decides when the review is submitted.
CREATE TABLE signature_demand (
  submission_id  bigint PRIMARY KEY REFERENCES submission
);

-- A WebAuthn registration or sign-in in progress.
ALTER TABLE session ADD COLUMN ceremony jsonb CHECK (length(ceremony::text) <= 65536);
