-- Scoped grants, names of sessions, API tokens of people and service accounts, and passwords.
--
-- Existing permissions stay valid everywhere, in person.permissions.

COMMENT ON COLUMN person.permissions IS 'What they may everywhere. What they may in parts of the tree is in scoped_grant.';

CREATE TABLE scoped_grant (
  person_id      uuid NOT NULL REFERENCES person,
  -- An admin decides about all people, so admin exists only everywhere.
  permission     text NOT NULL CHECK (permission IN ('viewer', 'operator', 'reviewer')),
  deployment_id  uuid NOT NULL REFERENCES deployment,
  PRIMARY KEY (person_id, permission, deployment_id)
);
CREATE INDEX scoped_grant_deployment ON scoped_grant (deployment_id);
COMMENT ON TABLE scoped_grant IS 'What a person may in a deployment and in all below it.';

ALTER TABLE session
  ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
  ADD COLUMN by_link boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN session.id IS 'By which people name a session when they end it. It lets nobody in.';
COMMENT ON COLUMN session.by_link IS 'Begun by a one-time sign-in: such a session may set a password without the old one for a while.';

ALTER TABLE token
  ADD COLUMN deployment_id uuid REFERENCES deployment,
  ADD CONSTRAINT token_of_the_api CHECK (
    kind <> 'api' OR (
      name <> '' AND length(name) <= 100 AND cardinality(scopes) > 0
      -- Only people can review. A token cannot.
      AND scopes <@ ARRAY['viewer', 'operator', 'admin']
      AND expires_at <= created_at + interval '366 days'));
COMMENT ON COLUMN token.scopes IS 'api: what it may at most, of what its person may. sign_in: {password} when it asks to set one.';
COMMENT ON COLUMN token.deployment_id IS 'api: only in this deployment and in all below it. NULL: wherever its person may.';

-- Each server counts failed sign-ins itself, for existing and unknown names alike.
ALTER TABLE account DROP COLUMN failures, DROP COLUMN locked_until;
