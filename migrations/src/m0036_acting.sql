-- The person that each open transaction acts for. Only act_as() writes it; rows of finished transactions are removed.
CREATE TABLE acting (
  xid        xid8 PRIMARY KEY,
  person_id  uuid NOT NULL REFERENCES person,
  token_id   uuid REFERENCES token
);
COMMENT ON COLUMN acting.token_id IS 'The API token that was presented; NULL: a session.';
