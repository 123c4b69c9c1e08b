-- Accounts, permissions, sessions, tokens and second factors.

CREATE TABLE person (
  id                uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  name              text        NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,95}$') UNIQUE,
  display           text        NOT NULL DEFAULT '' CHECK (length(display) <= 200),
  kind              text        NOT NULL DEFAULT 'human' CHECK (kind IN ('human', 'service')),
  disabled          boolean     NOT NULL DEFAULT false,
  permissions       text[]      NOT NULL DEFAULT '{viewer}'
      CHECK (permissions <@ ARRAY['viewer', 'operator', 'reviewer', 'admin']),
  grants_version    int         NOT NULL DEFAULT 1,
  verdicts_void_to  bigint      NOT NULL DEFAULT 0,
  created_at        timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT person_name_is_no_id
    CHECK (name !~ '^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$'),
  -- /people/me is the account of the caller.
  CONSTRAINT person_name_is_not_me CHECK (name <> 'me')
);
CREATE INDEX person_admins ON person (name)
  WHERE kind = 'human' AND NOT disabled AND 'admin' = ANY (permissions);
COMMENT ON TABLE person IS 'Accounts of people and services. Disabled, never deleted.';
COMMENT ON COLUMN person.kind IS 'human: signs in and decides. service: API tokens only.';
COMMENT ON COLUMN person.permissions IS
  'Permissions in all deployments. scoped_grant has the permissions in parts of the tree.';
COMMENT ON COLUMN person.grants_version IS
  'The version of all permissions of the person. A change names the version that it is based on.';
COMMENT ON COLUMN person.verdicts_void_to IS
  'Verdicts up to this id are void, because the account was disabled after them.';

CREATE TABLE account (
  person_id      uuid        PRIMARY KEY REFERENCES person,
  password_hash  text        NOT NULL CHECK (password_hash LIKE '$argon2%'),
  changed_at     timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE account IS
  'The password of a person. Without a row, the person signs in with links only.';
COMMENT ON COLUMN account.password_hash IS
  'PHC string of Argon2id. Its hash part is the SHA-256 of the Argon2id output, so the row alone '
  'proves nothing.';

CREATE TABLE scoped_grant (
  person_id      uuid NOT NULL REFERENCES person,
  permission     text NOT NULL CHECK (permission IN ('viewer', 'operator', 'reviewer')),
  deployment_id  uuid NOT NULL,
  PRIMARY KEY (person_id, permission, deployment_id)
);
CREATE INDEX scoped_grant_deployment ON scoped_grant (deployment_id);
COMMENT ON TABLE scoped_grant IS
  'Permissions of a person in a deployment and all of its descendants.';
COMMENT ON COLUMN scoped_grant.permission IS
  'admin is missing: an admin decides about all people, so it has no scope.';

CREATE TABLE session (
  id               uuid        NOT NULL DEFAULT gen_random_uuid() UNIQUE,
  token_hash       bytea       PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  person_id        uuid        NOT NULL REFERENCES person,
  created_at       timestamptz NOT NULL DEFAULT now(),
  last_seen_at     timestamptz NOT NULL DEFAULT now(),
  idle_expires_at  timestamptz NOT NULL,
  expires_at       timestamptz NOT NULL,
  fresh_at         timestamptz NOT NULL DEFAULT now(),
  by_link          boolean     NOT NULL DEFAULT true,
  link_by          uuid REFERENCES person,
  ceremony         jsonb CHECK (length(ceremony::text) <= 65536),
  factor_at        timestamptz,
  user_agent       text        NOT NULL DEFAULT '',
  address          text        NOT NULL DEFAULT ''
);
CREATE INDEX session_expires ON session (expires_at);
CREATE INDEX session_person ON session (person_id);
COMMENT ON TABLE session IS 'Signed-in browsers. The cookie has the token; the row has its hash.';
COMMENT ON COLUMN session.id IS
  'Identifies a session, for example to end it. It is not a credential.';
COMMENT ON COLUMN session.fresh_at IS
  'When the session got its current token: at its start, or when its password was set. by_link '
  'counts for one hour after that.';
COMMENT ON COLUMN session.by_link IS
  'The session began with a sign-in link. It may set a password without the old one for a limited '
  'time.';
COMMENT ON COLUMN session.link_by IS
  'The admin who created the link that began the session, until a password is set. Until then, the '
  'session can do nothing else.';
COMMENT ON COLUMN session.ceremony IS 'A WebAuthn registration or sign-in in progress.';
COMMENT ON COLUMN session.factor_at IS 'When the session verified its second factor.';

CREATE TABLE token (
  id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  kind           text        NOT NULL CHECK (kind IN ('sign_in', 'api', 'worker', 'node')),
  hash           bytea       NOT NULL CHECK (octet_length(hash) = 32) UNIQUE,
  name           text        NOT NULL DEFAULT '',
  person_id      uuid REFERENCES person,
  node_id        uuid,
  scopes         text[]      NOT NULL DEFAULT '{}',
  deployment_id  uuid,
  created_by     uuid REFERENCES person,
  created_at     timestamptz NOT NULL DEFAULT now(),
  expires_at     timestamptz NOT NULL,
  used_at        timestamptz,
  last_used_at   timestamptz,
  revoked_at     timestamptz,
  CONSTRAINT token_has_an_owner CHECK (
    CASE kind WHEN 'node' THEN node_id IS NOT NULL
              WHEN 'worker' THEN true
              ELSE person_id IS NOT NULL END),
  CONSTRAINT token_of_the_api CHECK (kind <> 'api' OR (
    name <> '' AND length(name) <= 100
    AND cardinality(scopes) > 0 AND scopes <@ ARRAY['viewer', 'operator', 'admin']
    AND expires_at <= created_at + interval '366 days'))
);
CREATE INDEX token_node ON token (node_id, created_at DESC) WHERE kind = 'node';
CREATE INDEX token_person ON token (person_id);
COMMENT ON TABLE token IS
  'Sign-in links, and tokens of API clients, workers and nodes. A row has only the hash.';
COMMENT ON COLUMN token.scopes IS
  'api: the permissions of its person that the token is limited to. sign_in: {password} if the '
  'link requires a new password.';
COMMENT ON COLUMN token.deployment_id IS
  'api: valid only in this deployment and its descendants. NULL: wherever its person has the '
  'permission.';
COMMENT ON COLUMN token.used_at IS 'sign_in: when the link was used. It works once.';

CREATE TABLE acting (
  xid             xid8    PRIMARY KEY,
  person_id       uuid    NOT NULL,
  token_id        uuid,
  session_id      uuid,
  admin           boolean NOT NULL DEFAULT false,
  pending         boolean NOT NULL DEFAULT false,
  needs_password  boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE acting IS
  'The person who acts in a transaction. Only the functions of guards/acting.sql write it.';
COMMENT ON COLUMN acting.token_id IS 'The presented API token. NULL: a session.';
COMMENT ON COLUMN acting.session_id IS 'The presented session. NULL: an API token.';
COMMENT ON COLUMN acting.admin IS
  'The person was an admin when they presented a session, or a token of a service account with the '
  'scope admin. False for tokens of people.';
COMMENT ON COLUMN acting.pending IS
  'The session lacks its second factor. The transaction may only verify or enrol one.';
COMMENT ON COLUMN acting.needs_password IS
  'The session began with a link from an admin and has no password yet. The transaction may only '
  'set one.';

CREATE TABLE access_change (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  person_id      uuid        NOT NULL REFERENCES person,
  kind           text        NOT NULL
      CHECK (kind IN (
        'created', 'granted', 'enabled', 'link', 'reset', 'factor_removed', 'token')),
  permission     text,
  deployment_id  uuid,
  by             uuid REFERENCES person,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  confirmed_by   uuid REFERENCES person,
  confirmed_at   timestamptz,
  dismissed_at   timestamptz,
  CONSTRAINT access_change_check CHECK ((permission IS NOT NULL) = (kind = 'granted')),
  CONSTRAINT access_change_confirmation_is_complete CHECK (
    (confirmed_by IS NULL) = (confirmed_at IS NULL)),
  CONSTRAINT access_change_needs_another CHECK (confirmed_by <> by AND confirmed_by <> person_id)
);
CREATE INDEX access_change_person ON access_change (person_id, at);
COMMENT ON TABLE access_change IS
  'Access that one person gave another: accounts, grants of reviewer and admin, sign-in links, '
  'resets, tokens of service accounts. Only triggers write it.';
COMMENT ON COLUMN access_change.by IS
  'The admin. Access from a service account has a row for the account and for each admin who '
  'created its token or made it an admin, with the same time. NULL: the owner of the installation, '
  'with `gantry admin` or `gantry up`.';
COMMENT ON COLUMN access_change.dismissed_at IS
  'When the person dismissed the notice about the change.';

CREATE TABLE passkey (
  id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  person_id      uuid        NOT NULL REFERENCES person,
  name           text        NOT NULL CHECK (length(name) >= 1 AND length(name) <= 64),
  rp_id          text        NOT NULL CHECK (length(rp_id) >= 1 AND length(rp_id) <= 253),
  origin         text        NOT NULL CHECK (length(origin) >= 1 AND length(origin) <= 300),
  credential_id  bytea       NOT NULL
      CHECK (octet_length(credential_id) >= 1 AND octet_length(credential_id) <= 1023)
      UNIQUE,
  credential     jsonb       NOT NULL CHECK (length(credential::text) <= 16384),
  created_at     timestamptz NOT NULL DEFAULT now(),
  counter        bigint      NOT NULL DEFAULT 0 CHECK (counter >= 0),
  last_used_at   timestamptz,
  revoked_at     timestamptz,
  revoked_by     uuid REFERENCES person
);
CREATE INDEX passkey_person ON passkey (person_id, created_at);
COMMENT ON TABLE passkey IS
  'Registered passkeys (WebAuthn). Only counter, last_used_at and revoked_* change.';
COMMENT ON COLUMN passkey.rp_id IS 'The relying party: the domain that the passkey is bound to.';
COMMENT ON COLUMN passkey.credential IS
  'The public key and its properties, as the WebAuthn library writes them.';
COMMENT ON COLUMN passkey.counter IS
  'The signature counter of the authenticator. A lower value suggests a copy.';

CREATE TABLE passkey_confirmation (
  passkey_id          uuid        PRIMARY KEY REFERENCES passkey,
  by_passkey          uuid REFERENCES passkey,
  nonce               bytea CHECK (octet_length(nonce) = 16),
  client_data         bytea CHECK (octet_length(client_data) <= 8192),
  authenticator_data  bytea CHECK (octet_length(authenticator_data) <= 8192),
  signature           bytea CHECK (octet_length(signature) <= 2048),
  at                  timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT passkey_confirmation_check CHECK (by_passkey <> passkey_id),
  CONSTRAINT passkey_confirmation_is_complete CHECK (
    num_nulls(by_passkey, nonce, client_data, authenticator_data, signature) IN (0, 5))
);
COMMENT ON TABLE passkey_confirmation IS
  'A confirmed passkey counts for signed verdicts. by_passkey is NULL if the owner of the '
  'installation confirmed it.';

CREATE TABLE totp (
  person_id     uuid        PRIMARY KEY REFERENCES person,
  secret        bytea       NOT NULL CHECK (octet_length(secret) = 20),
  session_id    uuid,
  created_at    timestamptz NOT NULL DEFAULT now(),
  confirmed_at  timestamptz,
  last_step     bigint      NOT NULL DEFAULT 0
);
COMMENT ON TABLE totp IS
  'Authenticator apps of people (TOTP, RFC 6238). A row is a factor once confirmed_at is set.';
COMMENT ON COLUMN totp.session_id IS
  'The session that set up the app. Only this session can read the secret again and confirm the '
  'app.';
COMMENT ON COLUMN totp.confirmed_at IS
  'When the person entered a first code. NULL: the app does not count yet.';
COMMENT ON COLUMN totp.last_step IS 'The time step of the last accepted code. A code works once.';

CREATE TABLE visit (
  person_id  uuid        PRIMARY KEY REFERENCES person,
  at         timestamptz NOT NULL
);
COMMENT ON TABLE visit IS
  'The last visit of a person: a sign-in, or a request with a session or token. Accurate to one '
  'minute.';

CREATE TABLE idempotency (
  person_id      uuid        NOT NULL REFERENCES person,
  key            text        NOT NULL CHECK (key ~ '^[!-~]{1,255}$'),
  request        bytea       NOT NULL CHECK (octet_length(request) = 32),
  claim          uuid        NOT NULL DEFAULT gen_random_uuid(),
  claimed_at     timestamptz NOT NULL DEFAULT now(),
  claimed_until  timestamptz NOT NULL,
  status         smallint CHECK (status >= 200 AND status <= 299),
  headers        jsonb,
  body           bytea CHECK (octet_length(body) <= 65536),
  withheld       text CHECK (withheld IN ('secret', 'large')),
  PRIMARY KEY (person_id, key),
  CONSTRAINT idempotency_answer_is_complete CHECK (
    CASE WHEN status IS NULL THEN headers IS NULL AND body IS NULL AND withheld IS NULL
         ELSE headers IS NOT NULL AND (body IS NULL) = (withheld IS NOT NULL) END)
);
CREATE INDEX idempotency_age ON idempotency (claimed_at);
COMMENT ON TABLE idempotency IS
  'Responses to requests with an idempotency key, for 24 hours. status NULL: the request is still '
  'running.';
COMMENT ON COLUMN idempotency.request IS 'SHA-256 of method, path, query and body.';
COMMENT ON COLUMN idempotency.claim IS
  'The request that executes it now. After a timeout, another request takes over.';
COMMENT ON COLUMN idempotency.withheld IS
  'Why the body is not stored: it has a secret, or it is too large.';
