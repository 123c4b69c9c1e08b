-- Scoped grants, names of sessions, API tokens of people and service accounts, and passwords.
--
-- Existing permissions stay valid everywhere, in person.permissions.

COMMENT ON COLUMN person.permissions IS
  'Permissions in all deployments. scoped_grant has the permissions in parts of the tree.';

CREATE TABLE scoped_grant (
  person_id      uuid NOT NULL REFERENCES person,
  -- An admin decides about all people, so admin exists only everywhere.
  permission     text NOT NULL CHECK (permission IN ('viewer', 'operator', 'reviewer')),
  deployment_id  uuid NOT NULL REFERENCES deployment,
  PRIMARY KEY (person_id, permission, deployment_id)
);
CREATE INDEX scoped_grant_deployment ON scoped_grant (deployment_id);
COMMENT ON TABLE scoped_grant IS
  'Permissions of a person in a deployment and all of its descendants.';

ALTER TABLE session
  ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
  ADD COLUMN by_link boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN session.id IS
  'Identifies a session, for example to end it. It is not a credential.';
COMMENT ON COLUMN session.by_link IS
  'The session began with a sign-in link. It may set a password without the old one for a '
  'limited time.';

ALTER TABLE token
  ADD COLUMN deployment_id uuid REFERENCES deployment,
  ADD CONSTRAINT token_of_the_api CHECK (
    kind <> 'api' OR (
      name <> '' AND length(name) <= 100 AND cardinality(scopes) > 0
      -- Only people can review. A token cannot.
      AND scopes <@ ARRAY['viewer', 'operator', 'admin']
      AND expires_at <= created_at + interval '366 days'));
COMMENT ON COLUMN token.scopes IS
  'api: the permissions of its person that the token is limited to. sign_in: {password} if the '
  'link requires a new password.';
COMMENT ON COLUMN token.deployment_id IS
  'api: valid only in this deployment and its descendants. NULL: wherever its person has the '
  'permission.';

-- Each server counts failed sign-ins itself, for existing and unknown names alike.
ALTER TABLE account DROP COLUMN failures, DROP COLUMN locked_until;
