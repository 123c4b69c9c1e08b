-- The person for whom each open transaction acts. Only act_as() writes it. Rows of finished
-- transactions are deleted.
CREATE TABLE acting (
  xid        xid8 PRIMARY KEY,
  person_id  uuid NOT NULL REFERENCES person,
  token_id   uuid REFERENCES token
);
COMMENT ON COLUMN acting.token_id IS 'The presented API token. NULL: a session.';
