-- Content-addressed storage of documents, roles and scripts.

CREATE TABLE object (
  hash        bytea       PRIMARY KEY CHECK (octet_length(hash) = 32),
  kind        text        NOT NULL
      CHECK (kind IN ('root', 'deployment', 'node', 'barclamp', 'role', 'script', 'policy')),
  body        bytea       NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT object_hash_is_of_body CHECK (hash = sha256(body))
);
CREATE INDEX object_of_catalog ON object (hash) WHERE kind IN ('barclamp', 'role');
COMMENT ON TABLE object IS 'Content-addressed documents, roles and scripts. Append-only.';
