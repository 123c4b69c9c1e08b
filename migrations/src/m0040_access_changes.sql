-- Access that one person gave another: accounts, grants of reviewer and admin, sign-in links,
-- resets. Only triggers write it.
CREATE TABLE access_change (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  person_id      uuid NOT NULL REFERENCES person,
  kind           text NOT NULL CHECK (kind IN ('created', 'granted', 'enabled', 'link', 'reset')),
  permission     text CHECK ((permission IS NOT NULL) = (kind = 'granted')),
  deployment_id  uuid REFERENCES deployment,
  by             uuid REFERENCES person,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  confirmed_by   uuid REFERENCES person,
  confirmed_at   timestamptz,
  dismissed_at   timestamptz,
  CONSTRAINT access_change_confirmation_is_whole CHECK ((confirmed_by IS NULL) = (confirmed_at IS NULL)),
  CONSTRAINT access_change_needs_another CHECK (confirmed_by <> by AND confirmed_by <> person_id)
);
CREATE INDEX access_change_person ON access_change (person_id, at);
COMMENT ON COLUMN access_change.by IS
  'The admin. NULL: the owner of the installation, with `gantry admin` or `gantry up`.';
COMMENT ON COLUMN access_change.dismissed_at IS
  'When the person dismissed the notice about the change.';

ALTER TABLE person ADD COLUMN verdicts_void_to bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN person.verdicts_void_to IS
  'Verdicts up to this id are void, because the account was disabled after them.';
UPDATE person SET verdicts_void_to = coalesce((SELECT max(id) FROM verdict), 0) WHERE disabled;

ALTER TABLE session ADD COLUMN link_by uuid REFERENCES person;
COMMENT ON COLUMN session.link_by IS
  'The admin who created the link that began the session, until a password is set. Until then, '
  'the session can do nothing else.';
