-- The initial schema: tables, keys, checks, indexes. Functions, triggers and grants are in
-- guards.sql.
--
-- * An id is a uuid if an edit mints it or if it is derived from content. It is a bigint identity
--   if the order of insertion matters.
-- * Hashes have 32 bytes.
-- * Enumerations are text with CHECK, which later migrations can extend without a rewrite.
-- * Target number 0 means "before genesis". generation and applied_generation are target numbers
--   too.

CREATE TABLE object (
  hash        bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
  kind        text NOT NULL CHECK (kind IN ('root', 'deployment', 'node', 'barclamp', 'role', 'script', 'policy')),
  body        bytea NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT object_hash_is_of_body CHECK (hash = sha256(body))
);
COMMENT ON TABLE object IS 'Content-addressed documents, roles and scripts. Append-only.';

-- People and sign-in ------------------------------------------------------------------------------

CREATE TABLE person (
  id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,95}$'),
  display      text NOT NULL DEFAULT '' CHECK (length(display) <= 200),
  kind         text NOT NULL DEFAULT 'human' CHECK (kind IN ('human', 'service')),
  disabled     boolean NOT NULL DEFAULT false,
  permissions  text[] NOT NULL DEFAULT '{viewer}'
               CHECK (permissions <@ ARRAY['viewer', 'operator', 'reviewer', 'admin']),
  created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE account (
  person_id      uuid PRIMARY KEY REFERENCES person,
  password_hash  text NOT NULL CHECK (password_hash LIKE '$argon2%'),
  changed_at     timestamptz NOT NULL DEFAULT now(),
  failures       int NOT NULL DEFAULT 0 CHECK (failures >= 0),
  locked_until   timestamptz
);

CREATE TABLE session (
  token_hash       bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  person_id        uuid NOT NULL REFERENCES person,
  created_at       timestamptz NOT NULL DEFAULT now(),
  last_seen_at     timestamptz NOT NULL DEFAULT now(),
  -- When the person last proved their identity. Dangerous actions require a fresh proof.
  fresh_at         timestamptz NOT NULL DEFAULT now(),
  idle_expires_at  timestamptz NOT NULL,
  expires_at       timestamptz NOT NULL,
  user_agent       text NOT NULL DEFAULT '',
  address          text NOT NULL DEFAULT ''
);
CREATE INDEX session_person ON session (person_id);
CREATE INDEX session_expires ON session (expires_at);

-- Policies, barclamps -----------------------------------------------------------------------------

CREATE TABLE policy (
  number      bigint PRIMARY KEY CHECK (number > 0),
  hash        bytea NOT NULL REFERENCES object,
  created_by  uuid REFERENCES person,
  created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE policy IS
  'Versions of the gate''s policy. The current one is head.policy_number. Append-only.';

CREATE TABLE barclamp (
  name         text NOT NULL,
  version      text NOT NULL,
  hash         bytea NOT NULL REFERENCES object,
  imported_by  uuid REFERENCES person,
  imported_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (name, version)
);
CREATE INDEX barclamp_hash ON barclamp (hash);
COMMENT ON TABLE barclamp IS
  'All imported versions. The content of a version never changes. Append-only.';

-- Target history ----------------------------------------------------------------------------------

CREATE TABLE target (
  number         bigint PRIMARY KEY,
  parent         bigint UNIQUE REFERENCES target,
  kind           text NOT NULL CHECK (kind IN ('genesis', 'change', 'switch')),
  root           bytea NOT NULL REFERENCES object,
  submission_id  bigint UNIQUE,
  enabled        boolean NOT NULL,
  epoch          bigint NOT NULL CHECK (epoch > 0),
  reason         text,
  committed_by   uuid REFERENCES person,
  committed_at   timestamptz NOT NULL DEFAULT now(),
  xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
  CONSTRAINT target_follows_parent CHECK (number = coalesce(parent, 0) + 1),
  CONSTRAINT target_genesis_is_first CHECK ((kind = 'genesis') = (parent IS NULL)),
  CONSTRAINT target_change_has_submission CHECK ((kind = 'change') = (submission_id IS NOT NULL))
);
CREATE INDEX target_xid ON target (xid);
COMMENT ON TABLE target IS 'The target history. Append-only. guard_target() checks every insert.';

CREATE TABLE head (
  singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  number         bigint NOT NULL DEFAULT 0 CHECK (number >= 0),
  enabled        boolean NOT NULL DEFAULT true,
  policy_number  bigint NOT NULL DEFAULT 0 CHECK (policy_number >= 0),
  epoch          bigint NOT NULL DEFAULT 1 CHECK (epoch > 0)
);
INSERT INTO head DEFAULT VALUES;
COMMENT ON TABLE head IS
  'One row: the current target, the execution switch, the policy in force and the epoch.';

-- The cluster -------------------------------------------------------------------------------------

CREATE TABLE deployment (
  id           uuid PRIMARY KEY,
  parent       uuid REFERENCES deployment,
  name         text NOT NULL CHECK (name <> '' AND octet_length(name) <= 96),
  system       boolean NOT NULL DEFAULT false,
  phantom      uuid NOT NULL,
  doc          bytea NOT NULL REFERENCES object,
  head_no      bigint NOT NULL REFERENCES target,
  removed_in   bigint REFERENCES target,
  -- Progress:
  held_by      uuid REFERENCES person,
  held_at      timestamptz,
  held_reason  text,
  CONSTRAINT deployment_system_is_root CHECK (system = (parent IS NULL)),
  CONSTRAINT deployment_is_not_its_parent CHECK (parent <> id),
  CONSTRAINT deployment_hold_is_whole CHECK ((held_by IS NULL) = (held_at IS NULL))
);
CREATE UNIQUE INDEX deployment_name ON deployment (name) WHERE removed_in IS NULL;
CREATE UNIQUE INDEX deployment_one_system ON deployment (system) WHERE system;
CREATE INDEX deployment_parent ON deployment (parent);
COMMENT ON COLUMN deployment.head_no IS
  'The target that last changed the document of this deployment or of one of its nodes.';

CREATE TABLE node (
  id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  fqdn           text NOT NULL
                 CHECK (octet_length(fqdn) <= 253
                        AND fqdn ~ '^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){2,}[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  deployment_id  uuid NOT NULL REFERENCES deployment DEFERRABLE INITIALLY IMMEDIATE,
  phantom        boolean NOT NULL DEFAULT false,
  doc            bytea REFERENCES object,
  removed_in     bigint REFERENCES target,
  -- Progress:
  alive          boolean NOT NULL DEFAULT false,
  available      boolean NOT NULL DEFAULT true,
  joined         text NOT NULL DEFAULT 'none'
                 CHECK (joined IN ('none', 'welcomed', 'integrated', 'finalized', 'confirmed', 'nack')),
  alive_since    timestamptz,
  last_seen_at   timestamptz,
  boot_id        text,
  bootenv        text,
  transport      text NOT NULL DEFAULT 'ssh' CHECK (transport IN ('none', 'local', 'ssh')),
  address        jsonb NOT NULL DEFAULT '[]',
  connection     jsonb NOT NULL DEFAULT '{}',
  facts          jsonb NOT NULL DEFAULT '{}',
  facts_at       timestamptz,
  created_by     uuid REFERENCES person,
  created_at     timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT node_phantom_is_up CHECK (NOT phantom OR (alive AND available)),
  CONSTRAINT node_phantom_has_no_transport CHECK (NOT phantom OR transport = 'none')
);
CREATE UNIQUE INDEX node_fqdn ON node (fqdn) WHERE removed_in IS NULL;
CREATE INDEX node_deployment ON node (deployment_id);
COMMENT ON COLUMN node.doc IS
  'NULL: a bare record without intent. Such rows are added and removed without a review.';
COMMENT ON COLUMN node.connection IS
  'How a worker reaches the node: the root folder of a local node, user and key reference for SSH.';

-- A deployment and its phantom node reference each other. The node is inserted second.
ALTER TABLE deployment ADD CONSTRAINT deployment_phantom
  FOREIGN KEY (phantom) REFERENCES node DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE secret (
  name          text NOT NULL CHECK (name <> '' AND octet_length(name) <= 200),
  version       int NOT NULL CHECK (version > 0),
  sealed        bytea,
  created_by    uuid REFERENCES person,
  created_at    timestamptz NOT NULL DEFAULT now(),
  destroyed_at  timestamptz,
  PRIMARY KEY (name, version),
  CONSTRAINT secret_destroyed_is_empty CHECK ((destroyed_at IS NULL) = (sealed IS NOT NULL))
);

CREATE TABLE token (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  kind          text NOT NULL CHECK (kind IN ('sign_in', 'api', 'worker', 'node')),
  hash          bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
  name          text NOT NULL DEFAULT '',
  person_id     uuid REFERENCES person,
  node_id       uuid REFERENCES node,
  scopes        text[] NOT NULL DEFAULT '{}',
  created_by    uuid REFERENCES person,
  created_at    timestamptz NOT NULL DEFAULT now(),
  expires_at    timestamptz NOT NULL,
  used_at       timestamptz,
  last_used_at  timestamptz,
  revoked_at    timestamptz,
  CONSTRAINT token_has_an_owner CHECK (
    CASE kind WHEN 'node' THEN node_id IS NOT NULL WHEN 'worker' THEN true ELSE person_id IS NOT NULL END)
);
CREATE INDEX token_person ON token (person_id);
COMMENT ON COLUMN token.used_at IS 'sign_in: when the link was used. It works once.';

-- A change and its review -------------------------------------------------------------------------

CREATE TABLE proposal (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  deployment_id  uuid NOT NULL REFERENCES deployment,
  node_id        uuid REFERENCES node,
  kind           text NOT NULL DEFAULT 'personal' CHECK (kind IN ('personal', 'node_scoped', 'autopilot', 'discovery')),
  title          text NOT NULL DEFAULT '' CHECK (length(title) <= 200),
  state          text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'committed', 'discarded')),
  version        int NOT NULL DEFAULT 0 CHECK (version >= 0),
  created_by     uuid NOT NULL REFERENCES person,
  created_at     timestamptz NOT NULL DEFAULT now(),
  updated_at     timestamptz NOT NULL DEFAULT now(),
  closed_at      timestamptz,
  CONSTRAINT proposal_node_scope CHECK (kind <> 'node_scoped' OR node_id IS NOT NULL)
);
CREATE UNIQUE INDEX proposal_one_personal ON proposal (deployment_id) WHERE state = 'open' AND kind = 'personal';
CREATE INDEX proposal_deployment ON proposal (deployment_id, id DESC);
COMMENT ON COLUMN proposal.version IS 'Incremented by every edit, undo, redo and replan.';

CREATE TABLE edit (
  proposal_id  bigint NOT NULL REFERENCES proposal,
  seq          int NOT NULL CHECK (seq > 0),
  actor        uuid NOT NULL REFERENCES person,
  at           timestamptz NOT NULL DEFAULT now(),
  body         jsonb NOT NULL,
  undone       boolean NOT NULL DEFAULT false,
  -- People who undo or redo an edit count as authors.
  touched_by   uuid[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (proposal_id, seq)
);

CREATE TABLE submission (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  proposal_id       bigint NOT NULL REFERENCES proposal,
  version           int NOT NULL CHECK (version > 0),
  title             text NOT NULL DEFAULT '' CHECK (length(title) <= 200),
  change_hash       bytea NOT NULL CHECK (octet_length(change_hash) = 32),
  effects_hash      bytea NOT NULL CHECK (octet_length(effects_hash) = 32),
  policy_number     bigint NOT NULL REFERENCES policy,
  new_policy_hash   bytea REFERENCES object,
  approvals_needed  int NOT NULL CHECK (approvals_needed >= 1),
  epoch             bigint NOT NULL CHECK (epoch > 0),
  root_hash         bytea NOT NULL REFERENCES object,
  summary           jsonb NOT NULL DEFAULT '{}',
  risk              text[] NOT NULL DEFAULT '{}',
  created_by        uuid NOT NULL REFERENCES person,
  created_at        timestamptz NOT NULL DEFAULT now(),
  xid               xid8 NOT NULL DEFAULT pg_current_xact_id(),
  UNIQUE (proposal_id, version)
);
COMMENT ON COLUMN submission.root_hash IS
  'The root as planned on the base. The committed root also has changes of other deployments.';
COMMENT ON COLUMN submission.new_policy_hash IS
  'The policy that this change puts into force. NULL: none.';
ALTER TABLE target ADD CONSTRAINT target_submission FOREIGN KEY (submission_id) REFERENCES submission;

CREATE TABLE submission_base (
  submission_id  bigint NOT NULL REFERENCES submission,
  deployment_id  uuid NOT NULL,
  head_no        bigint NOT NULL,
  PRIMARY KEY (submission_id, deployment_id)
);

CREATE TABLE submission_author (
  submission_id  bigint NOT NULL REFERENCES submission,
  person_id      uuid NOT NULL REFERENCES person,
  PRIMARY KEY (submission_id, person_id)
);

CREATE TABLE submission_document (
  submission_id  bigint NOT NULL REFERENCES submission,
  kind           text NOT NULL CHECK (kind IN ('deployment', 'node')),
  id             uuid NOT NULL,
  old_hash       bytea REFERENCES object,
  new_hash       bytea REFERENCES object,
  PRIMARY KEY (submission_id, kind, id),
  CONSTRAINT submission_document_changes CHECK (old_hash IS DISTINCT FROM new_hash)
);

CREATE TABLE verdict (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  submission_id  bigint NOT NULL REFERENCES submission,
  person_id      uuid REFERENCES person,
  policy_number  bigint REFERENCES policy,
  kind           text NOT NULL CHECK (kind IN ('approve', 'request_changes', 'reject')),
  reason         text NOT NULL DEFAULT '' CHECK (length(reason) <= 10000),
  at             timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT verdict_is_of_one CHECK ((person_id IS NULL) <> (policy_number IS NULL)),
  CONSTRAINT verdict_of_policy_approves CHECK (policy_number IS NULL OR kind = 'approve')
);
CREATE INDEX verdict_submission ON verdict (submission_id, id);
COMMENT ON COLUMN verdict.policy_number IS
  'Instead of a person: the policy that pre-approves this kind of change.';

CREATE TABLE comment (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  submission_id  bigint NOT NULL REFERENCES submission,
  thread_id      bigint REFERENCES comment,
  anchor         text NOT NULL DEFAULT '',
  person_id      uuid NOT NULL REFERENCES person,
  body           text NOT NULL CHECK (body <> '' AND length(body) <= 10000),
  at             timestamptz NOT NULL DEFAULT now(),
  resolved_by    uuid REFERENCES person,
  resolved_at    timestamptz,
  CONSTRAINT comment_resolution_is_whole CHECK ((resolved_by IS NULL) = (resolved_at IS NULL))
);
CREATE INDEX comment_submission ON comment (submission_id, id);
COMMENT ON COLUMN comment.thread_id IS
  'The comment that started the thread. NULL: this comment starts a thread and can be resolved.';

-- The graph: projected intent and progress --------------------------------------------------------

CREATE TABLE jig (
  name         text PRIMARY KEY CHECK (name <> '' AND octet_length(name) <= 96),
  class        text NOT NULL,
  description  text NOT NULL DEFAULT '',
  client_role  text,
  active       boolean NOT NULL DEFAULT true
);

CREATE TABLE lane (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  deployment_id  uuid NOT NULL REFERENCES deployment,
  name           text NOT NULL CHECK (name <> '' AND octet_length(name) <= 96),
  max_running    int CHECK (max_running > 0),
  mode           text NOT NULL DEFAULT 'rolling' CHECK (mode IN ('chunk', 'rolling')),
  UNIQUE (deployment_id, name)
);
COMMENT ON COLUMN lane.max_running IS 'NULL: no limit.';

CREATE TABLE budget (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  deployment_id  uuid NOT NULL REFERENCES deployment,
  name           text NOT NULL,
  max_down       int NOT NULL CHECK (max_down > 0),
  UNIQUE (deployment_id, name)
);
COMMENT ON COLUMN budget.max_down IS
  'Nodes of the failure domain that may be down or in use by runs at once.';

CREATE TABLE noderole (
  id             uuid PRIMARY KEY,
  node_id        uuid NOT NULL REFERENCES node,
  role           text NOT NULL,
  instance       int NOT NULL DEFAULT 0 CHECK (instance >= 0),
  deployment_id  uuid NOT NULL REFERENCES deployment,
  disposition    text NOT NULL DEFAULT 'in_service' CHECK (disposition IN ('in_service', 'expunged', 'gone')),
  role_hash      bytea NOT NULL REFERENCES object,
  data           jsonb NOT NULL DEFAULT '{}',
  doc            jsonb NOT NULL DEFAULT '{}',
  -- Progress:
  system_data    jsonb NOT NULL DEFAULT '{}',
  UNIQUE (node_id, role, instance)
);
CREATE INDEX noderole_deployment ON noderole (deployment_id, role);
COMMENT ON COLUMN noderole.data IS 'The noderole''s own reviewed data.';
COMMENT ON COLUMN noderole.doc IS 'The part of the node''s document that pages and workers need.';

CREATE TABLE step (
  id                  uuid PRIMARY KEY,
  noderole_id         uuid NOT NULL REFERENCES noderole,
  node_id             uuid NOT NULL REFERENCES node,
  action              text NOT NULL DEFAULT 'run',
  -- Intent:
  lane_id             bigint NOT NULL REFERENCES lane,
  rank                int NOT NULL CHECK (rank >= 0),
  priority            int NOT NULL DEFAULT 0,
  jig                 text NOT NULL REFERENCES jig,
  exclusive           boolean NOT NULL DEFAULT true,
  destructive         boolean NOT NULL DEFAULT false,
  instant             boolean NOT NULL DEFAULT false,
  needs               text NOT NULL DEFAULT 'alive' CHECK (needs IN ('alive', 'any', 'dead')),
  place               text NOT NULL DEFAULT 'on' CHECK (place IN ('on', 'for')),
  generation          bigint NOT NULL CHECK (generation > 0),
  content_hash        bytea NOT NULL CHECK (octet_length(content_hash) = 32),
  budget_ids          bigint[] NOT NULL DEFAULT '{}',
  freezes_node        boolean NOT NULL DEFAULT false,
  retries             int NOT NULL DEFAULT 0 CHECK (retries >= 0),
  backoff_s           int NOT NULL DEFAULT 5 CHECK (backoff_s >= 0),
  timeout_s           int NOT NULL DEFAULT 3600 CHECK (timeout_s > 0),
  join_kind           text NOT NULL DEFAULT 'all' CHECK (join_kind IN ('all', 'any', 'at_least')),
  join_n              int CHECK (join_n > 0),
  join_after          text NOT NULL DEFAULT 'success' CHECK (join_after IN ('success', 'end')),
  -- Progress:
  state               text NOT NULL CHECK (state IN ('blocked', 'todo', 'transition', 'active', 'error')),
  skipped             text,
  pending             int NOT NULL DEFAULT 0 CHECK (pending >= 0),
  satisfied           int NOT NULL DEFAULT 0 CHECK (satisfied >= 0),
  applied_generation  bigint NOT NULL DEFAULT 0 CHECK (applied_generation >= 0),
  failures            int NOT NULL DEFAULT 0 CHECK (failures >= 0),
  not_before          timestamptz NOT NULL DEFAULT '-infinity',
  node_up             boolean NOT NULL DEFAULT false,
  node_fits           boolean NOT NULL DEFAULT false,
  cause               text,
  error               text,
  wall                jsonb,
  results             jsonb,
  since               timestamptz NOT NULL DEFAULT now(),
  UNIQUE (noderole_id, action),
  CONSTRAINT step_todo_waits_for_nothing CHECK (state <> 'todo' OR pending = 0),
  CONSTRAINT step_blocked_waits CHECK (state <> 'blocked' OR pending > 0),
  CONSTRAINT step_applied_is_not_ahead CHECK (applied_generation <= generation),
  CONSTRAINT step_destructive_runs_once CHECK (
    NOT (destructive AND state IN ('todo', 'transition') AND applied_generation = generation)),
  CONSTRAINT step_join_is_whole CHECK ((join_kind = 'at_least') = (join_n IS NOT NULL)),
  CONSTRAINT step_instant_never_runs CHECK (NOT (instant AND state = 'transition')),
  CONSTRAINT step_skipped_has_no_wall CHECK (skipped IS NULL OR wall IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX step_ready ON step (lane_id, priority DESC, since, rank, id) WHERE state = 'todo' AND node_fits;
CREATE INDEX step_budget ON step (id) INCLUDE (budget_ids, node_id)
  WHERE budget_ids <> '{}' AND (state IN ('transition', 'error') OR failures > 0 OR NOT node_up);
CREATE INDEX step_freezes ON step (node_id) WHERE state = 'error' AND freezes_node;
CREATE INDEX step_node ON step (node_id, rank, id);
COMMENT ON COLUMN step.rank IS
  'The length of the longest path from a first step. Steps are always locked in the order '
  '(rank, id).';
COMMENT ON COLUMN step.content_hash IS
  'The hash that the node''s ledger compares: role, own reviewed data and re-runs, but no output.';
COMMENT ON COLUMN step.node_up IS
  'Whether the node is alive. A phantom node always is. Written by the annealer''s transitions.';
COMMENT ON COLUMN step.node_fits IS
  'Whether the node is available and meets the needs of this step. Only triggers write it.';
COMMENT ON COLUMN step.pending IS 'The number of parents that the join still waits for.';
COMMENT ON COLUMN step.satisfied IS
  'The number of parents that satisfy a join other than all. 0 for all.';
COMMENT ON COLUMN step.applied_generation IS 'The generation whose result is applied. 0: none yet.';
COMMENT ON COLUMN step.cause IS 'Why a re-run is due although a result is applied.';
COMMENT ON COLUMN step.skipped IS 'Why the step is skipped. NULL: it is not skipped.';
COMMENT ON COLUMN step.results IS 'The result of the last attempt, independent of its outcome.';

CREATE TABLE edge (
  child   uuid NOT NULL REFERENCES step,
  parent  uuid NOT NULL REFERENCES step,
  kind    text NOT NULL CHECK (kind IN ('hard', 'order_only', 'soft')),
  PRIMARY KEY (child, parent),
  CONSTRAINT edge_is_no_loop CHECK (child <> parent)
);
CREATE INDEX edge_parent ON edge (parent, child);

-- Work --------------------------------------------------------------------------------------------

CREATE TABLE worker (
  id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  name         text NOT NULL UNIQUE,
  phase        text NOT NULL DEFAULT 'none'
               CHECK (phase IN ('none', 'welcomed', 'integrated', 'finalized', 'confirmed', 'nack')),
  capacity     int NOT NULL DEFAULT 0 CHECK (capacity >= 0),
  jigs         text[] NOT NULL DEFAULT '{}',
  host         text NOT NULL DEFAULT '',
  pid          int,
  version      text NOT NULL DEFAULT '',
  reason       text,
  lease_until  timestamptz NOT NULL,
  started_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX worker_lease ON worker (lease_until);
COMMENT ON COLUMN worker.jigs IS 'The jig classes that the worker supports.';

CREATE TABLE run (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  step_id           uuid NOT NULL REFERENCES step,
  node_id           uuid NOT NULL REFERENCES node,
  lane_id           bigint NOT NULL REFERENCES lane,
  generation        bigint NOT NULL,
  target_number     bigint NOT NULL REFERENCES target,
  epoch             bigint NOT NULL,
  content_hash      bytea NOT NULL CHECK (octet_length(content_hash) = 32),
  exclusive         boolean NOT NULL,
  cause             text,
  state             text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'ended')),
  outcome           text CHECK (outcome IN ('succeeded', 'failed', 'lost', 'cancelled', 'late', 'unstarted')),
  worker_id         uuid REFERENCES worker,
  queued_at         timestamptz NOT NULL DEFAULT now(),
  started_at        timestamptz,
  ended_at          timestamptz,
  lease_until       timestamptz NOT NULL,
  cancel_requested  boolean NOT NULL DEFAULT false,
  input             jsonb,
  result            jsonb,
  error             text,
  log_bytes         bigint NOT NULL DEFAULT 0 CHECK (log_bytes >= 0),
  CONSTRAINT run_end_is_whole CHECK (
    (state = 'ended') = (ended_at IS NOT NULL) AND (state = 'ended') = (outcome IS NOT NULL)),
  CONSTRAINT run_running_has_worker CHECK (state <> 'running' OR (worker_id IS NOT NULL AND started_at IS NOT NULL))
);
CREATE UNIQUE INDEX run_one_exclusive_on_node ON run (node_id) WHERE ended_at IS NULL AND exclusive;
CREATE UNIQUE INDEX run_one_open_of_step ON run (step_id) WHERE ended_at IS NULL;
CREATE INDEX run_open_lease ON run (lease_until) WHERE ended_at IS NULL;
CREATE INDEX run_queued ON run (id) WHERE state = 'queued';
CREATE INDEX run_worker ON run (worker_id) WHERE ended_at IS NULL;
CREATE INDEX run_step ON run (step_id, id DESC);
CREATE INDEX run_node ON run (node_id, id DESC);
COMMENT ON TABLE run IS
  'One attempt at a step. Its id is the fencing token. The queue consists of the queued rows.';

-- Partitioned by run, not by week. So (run_id, at_offset) stays a key, and a chunk that is sent
-- twice is stored once. Reading a run's log touches one partition. Old logs are still removed by
-- dropping whole partitions.
CREATE TABLE run_log (
  run_id     bigint NOT NULL,
  at_offset  bigint NOT NULL CHECK (at_offset >= 0),
  at         timestamptz NOT NULL DEFAULT now(),
  body       bytea NOT NULL,
  PRIMARY KEY (run_id, at_offset)
) PARTITION BY RANGE (run_id);
CREATE TABLE run_log_rest PARTITION OF run_log DEFAULT;
COMMENT ON COLUMN run_log.at_offset IS 'The number of bytes in the run''s log before this chunk.';

-- Journal and audit -------------------------------------------------------------------------------

CREATE TABLE event (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  xid      xid8 NOT NULL DEFAULT pg_current_xact_id(),
  at       timestamptz NOT NULL DEFAULT now(),
  topic    text NOT NULL,
  subject  text NOT NULL DEFAULT '',
  kind     text NOT NULL,
  body     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX event_journal ON event (xid, id);
CREATE INDEX event_at ON event (at);
COMMENT ON TABLE event IS
  'The journal. Readers use the order (xid, id) and stay below '
  'pg_snapshot_xmin(pg_current_snapshot()). Otherwise an event could appear at an earlier '
  'position.';

CREATE TABLE audit (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT now(),
  actor    uuid REFERENCES person,
  action   text NOT NULL,
  subject  text NOT NULL DEFAULT '',
  detail   jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_actor ON audit (actor, id DESC);
COMMENT ON COLUMN audit.actor IS 'NULL: Gantry itself.';

CREATE TABLE seal (
  seq        bigint PRIMARY KEY CHECK (seq > 0),
  audit_id   bigint NOT NULL UNIQUE REFERENCES audit,
  prev_hash  bytea NOT NULL CHECK (octet_length(prev_hash) = 32),
  hash       bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
  sealed_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE seal IS
  'The hash chain over the audit, written by seal_audit(). hash = sha256(prev_hash || content).';

CREATE TABLE guard_version (
  singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  hash        bytea NOT NULL,
  applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE guard_version IS 'SHA-256 of the guards that were last applied.';
