-- Noderoles, their steps and dependencies, and the runs of steps.

CREATE TABLE noderole (
  id             uuid  PRIMARY KEY,
  node_id        uuid  NOT NULL REFERENCES node,
  role           text  NOT NULL,
  instance       int   NOT NULL DEFAULT 0 CHECK (instance >= 0),
  deployment_id  uuid  NOT NULL REFERENCES deployment,
  disposition    text  NOT NULL DEFAULT 'in_service'
      CHECK (disposition IN ('in_service', 'expunged', 'gone')),
  role_hash      bytea NOT NULL REFERENCES object,
  data           jsonb NOT NULL DEFAULT '{}',
  doc            jsonb NOT NULL DEFAULT '{}',
  system_data    jsonb NOT NULL DEFAULT '{}',
  UNIQUE (node_id, role, instance)
);
CREATE INDEX noderole_deployment ON noderole (deployment_id, role);
CREATE INDEX noderole_role ON noderole (role);
COMMENT ON TABLE noderole IS 'A role on a node. One row forever, also after its removal.';
COMMENT ON COLUMN noderole.disposition IS
  'in_service; expunged: the role is being removed; gone: removed.';
COMMENT ON COLUMN noderole.data IS 'The noderole''s own reviewed data.';
COMMENT ON COLUMN noderole.doc IS 'The part of the node''s document that pages and workers need.';
COMMENT ON COLUMN noderole.system_data IS
  'Data that Gantry derives, for example from other noderoles.';

CREATE TABLE step (
  id                     uuid        PRIMARY KEY,
  noderole_id            uuid        NOT NULL REFERENCES noderole,
  node_id                uuid        NOT NULL REFERENCES node,
  action                 text        NOT NULL DEFAULT 'run',
  concurrency_group_id   bigint      NOT NULL REFERENCES concurrency_group,
  rank                   int         NOT NULL CHECK (rank >= 0),
  priority               int         NOT NULL DEFAULT 0,
  jig                    text        NOT NULL REFERENCES jig,
  exclusive              boolean     NOT NULL DEFAULT true,
  destructive            boolean     NOT NULL DEFAULT false,
  immediate              boolean     NOT NULL DEFAULT false,
  needs                  text        NOT NULL DEFAULT 'alive'
      CHECK (needs IN ('alive', 'any', 'dead')),
  run_location           text        NOT NULL DEFAULT 'node' CHECK (run_location IN ('node', 'worker')),
  generation             bigint      NOT NULL CHECK (generation > 0),
  content_hash           bytea       NOT NULL CHECK (octet_length(content_hash) = 32),
  disruption_budget_ids  bigint[]    NOT NULL DEFAULT '{}',
  blocks_node            boolean     NOT NULL DEFAULT false,
  retries                int         NOT NULL DEFAULT 0 CHECK (retries >= 0),
  backoff_s              int         NOT NULL DEFAULT 5 CHECK (backoff_s >= 0),
  timeout_s              int         NOT NULL DEFAULT 3600 CHECK (timeout_s > 0),
  check_s                int         CHECK (check_s BETWEEN 5 AND 86400),
  join_kind              text        NOT NULL DEFAULT 'all'
      CHECK (join_kind IN ('all', 'any', 'at_least')),
  join_n                 int CHECK (join_n > 0),
  join_after             text        NOT NULL DEFAULT 'success'
      CHECK (join_after IN ('success', 'end')),
  state                  text        NOT NULL
      CHECK (state IN ('blocked', 'todo', 'transition', 'active', 'error', 'gone')),
  since                  timestamptz NOT NULL DEFAULT now(),
  skipped                text,
  pending                int         NOT NULL DEFAULT 0 CHECK (pending >= 0),
  satisfied              int         NOT NULL DEFAULT 0 CHECK (satisfied >= 0),
  applied_generation     bigint      NOT NULL DEFAULT 0 CHECK (applied_generation >= 0),
  failures               int         NOT NULL DEFAULT 0 CHECK (failures >= 0),
  not_before             timestamptz NOT NULL DEFAULT '-infinity',
  node_up                boolean     NOT NULL DEFAULT false,
  node_fits              boolean     NOT NULL DEFAULT false,
  cause                  text,
  cause_by               text CHECK (length(cause_by) <= 200),
  error                  text,
  output                 jsonb,
  output_run             bigint,
  results                jsonb,
  input_hash             bytea CHECK (octet_length(input_hash) = 32),
  input_version          int         NOT NULL DEFAULT 0 CHECK (input_version >= 0),
  input_checked          int         NOT NULL DEFAULT 0 CHECK (input_checked >= 0),
  stale                  boolean     NOT NULL DEFAULT false,
  CONSTRAINT step_applied_is_not_ahead CHECK (applied_generation <= generation),
  CONSTRAINT step_blocked_is_pending CHECK (state <> 'blocked' OR pending > 0),
  CONSTRAINT step_destructive_runs_once CHECK (
    NOT (destructive AND state IN ('todo', 'transition') AND applied_generation = generation)),
  CONSTRAINT step_gone_does_nothing CHECK (
    state <> 'gone' OR (pending = 0 AND failures = 0 AND cause IS NULL AND output IS NULL
    AND disruption_budget_ids = '{}')),
  CONSTRAINT step_immediate_never_runs CHECK (NOT (immediate AND (state = 'transition'))),
  CONSTRAINT step_join_is_complete CHECK ((join_kind = 'at_least') = (join_n IS NOT NULL)),
  CONSTRAINT step_skipped_has_no_output CHECK (skipped IS NULL OR output IS NULL),
  CONSTRAINT step_todo_has_no_pending CHECK (state <> 'todo' OR pending = 0),
  UNIQUE (noderole_id, action)
) WITH (fillfactor = 70);
CREATE INDEX step_disruption_budget ON step (id)
  INCLUDE (disruption_budget_ids, node_id)
  WHERE disruption_budget_ids <> '{}'
    AND (state IN ('transition', 'error') OR failures > 0 OR NOT node_up);
CREATE INDEX step_blocks_node ON step (node_id) WHERE state = 'error' AND blocks_node;
CREATE INDEX step_generation ON step (generation);
CREATE INDEX step_input ON step (rank, id)
  WHERE input_version <> input_checked AND state = 'active' AND pending = 0;
CREATE INDEX step_stale ON step (id) WHERE stale;
CREATE INDEX step_node ON step (node_id, rank, id);
CREATE INDEX step_other_action ON step (noderole_id) WHERE action <> 'run';
CREATE INDEX step_ready ON step (concurrency_group_id, priority DESC, since, rank, id)
  WHERE state = 'todo' AND node_fits;
CREATE INDEX step_needs_no_run ON step (rank, id)
  WHERE state = 'todo' AND (immediate OR skipped IS NOT NULL
    OR (applied_generation = generation AND (destructive OR cause IS NULL)));
CREATE INDEX step_pending ON step (state, since, id)
  INCLUDE (concurrency_group_id, node_id)
  WHERE state IN ('blocked', 'todo', 'transition', 'error');
COMMENT ON TABLE step IS
  'An action of a noderole. Commits write intent (up to join_after); workers write progress.';
COMMENT ON COLUMN step.rank IS
  'The length of the longest path from a first step. Steps are always locked in the order (rank, '
  'id).';
COMMENT ON COLUMN step.exclusive IS 'No other exclusive run on the node at the same time.';
COMMENT ON COLUMN step.destructive IS
  'It destroys data, so it never runs again for the same generation.';
COMMENT ON COLUMN step.immediate IS 'It has no run. The annealer completes it.';
COMMENT ON COLUMN step.needs IS 'The state of the node that the step needs.';
COMMENT ON COLUMN step.run_location IS
  'node: on the node, through its wrapper and ledger. worker: on the worker''s machine, for the node.';
COMMENT ON COLUMN step.generation IS 'The number of the blueprint that last changed the step.';
COMMENT ON COLUMN step.content_hash IS
  'The hash that the node''s ledger compares: role, own reviewed data and re-runs, but no output.';
COMMENT ON COLUMN step.blocks_node IS 'If the step fails, no other step of the node starts.';
COMMENT ON COLUMN step.check_s IS
  'The interval of the check of the role in seconds. NULL: it has none.';
COMMENT ON COLUMN step.join_kind IS 'How many parents must complete: all, any, or at least join_n.';
COMMENT ON COLUMN step.join_after IS
  'success: parents must be active. end: they may also have failed.';
COMMENT ON COLUMN step.state IS
  'gone: its noderole is no longer part of the target. Only commits set or clear this state.';
COMMENT ON COLUMN step.since IS 'When state last changed.';
COMMENT ON COLUMN step.skipped IS 'Why the step is skipped. NULL: it is not skipped.';
COMMENT ON COLUMN step.pending IS 'The number of parents that the join still waits for.';
COMMENT ON COLUMN step.satisfied IS
  'The number of parents that satisfy a join other than all. 0 for all.';
COMMENT ON COLUMN step.applied_generation IS 'The generation whose result is applied. 0: none yet.';
COMMENT ON COLUMN step.failures IS 'Failed attempts since the step last became due.';
COMMENT ON COLUMN step.not_before IS 'The earliest next attempt, after a failure.';
COMMENT ON COLUMN step.node_up IS
  'Whether the node is alive. A phantom node always is. Written by the annealer''s transitions.';
COMMENT ON COLUMN step.node_fits IS
  'Whether the node is available and meets the needs of this step. Only triggers write it.';
COMMENT ON COLUMN step.cause IS 'Why a re-run is due although a result is applied.';
COMMENT ON COLUMN step.cause_by IS
  'The person who requested the re-run that cause names. NULL: no person, or a commit, whose '
  'blueprint names its review.';
COMMENT ON COLUMN step.output IS 'The output that children use as input.';
COMMENT ON COLUMN step.output_run IS 'The run that returned the output.';
COMMENT ON COLUMN step.results IS 'The result of the last attempt, independent of its outcome.';
COMMENT ON COLUMN step.input_hash IS
  'The hash of the input from other noderoles that the applied run read. NULL: not known.';
COMMENT ON COLUMN step.input_version IS
  'Increases when the input may have changed. The worker compares the input while it differs from '
  'input_checked.';
COMMENT ON COLUMN step.input_checked IS 'The input_version for which the input was last compared.';
COMMENT ON COLUMN step.stale IS
  'The input differs from the input of the applied run, and the step does not run again by itself.';

CREATE TABLE role_check (
  step_id     uuid        PRIMARY KEY REFERENCES step,
  node_id     uuid        NOT NULL REFERENCES node,
  due_at      timestamptz NOT NULL,
  worker_id   uuid,
  leased_at   timestamptz,
  generation  bigint      NOT NULL DEFAULT 0 CHECK (generation >= 0),
  state       text        NOT NULL DEFAULT 'unknown'
      CHECK (state IN ('unknown', 'passing', 'failing')),
  failures    int         NOT NULL DEFAULT 0 CHECK (failures >= 0),
  caused_rerun  boolean     NOT NULL DEFAULT false,
  detail      text        NOT NULL DEFAULT '' CHECK (length(detail) <= 2000),
  duration_ms     int         NOT NULL DEFAULT 0 CHECK (duration_ms >= 0),
  checked_at  timestamptz,
  changed_at  timestamptz,
  passes_until timestamptz    NOT NULL DEFAULT now(),
  CONSTRAINT role_check_lease_is_complete CHECK ((worker_id IS NULL) = (leased_at IS NULL)),
  CONSTRAINT role_check_result_is_complete CHECK (
    (state = 'unknown') = (checked_at IS NULL) AND (checked_at IS NULL) = (changed_at IS NULL)),
  CONSTRAINT role_check_passing_has_no_failures CHECK (state <> 'passing' OR (failures = 0 AND NOT caused_rerun))
) WITH (fillfactor = 70);
CREATE INDEX role_check_due ON role_check (due_at, step_id);
CREATE INDEX role_check_passes ON role_check (passes_until);
CREATE INDEX role_check_leased ON role_check (node_id) WHERE worker_id IS NOT NULL;
COMMENT ON TABLE role_check IS
  'The last result of the check of each step whose role has one. A trigger inserts and deletes the '
  'rows; workers write the results.';
COMMENT ON COLUMN role_check.due_at IS
  'When the next check is due. While one runs: when its lease ends.';
COMMENT ON COLUMN role_check.worker_id IS 'The worker that runs the check now.';
COMMENT ON COLUMN role_check.generation IS 'step.generation of the last result. 0: no result.';
COMMENT ON COLUMN role_check.failures IS 'Consecutive failures since the last success or re-run.';
COMMENT ON COLUMN role_check.caused_rerun IS
  'Whether a failure made the step run again since the last success.';
COMMENT ON COLUMN role_check.detail IS 'The end of the output, with secrets masked.';
COMMENT ON COLUMN role_check.changed_at IS 'When state last changed.';
COMMENT ON COLUMN role_check.passes_until IS
  'How long the last success counts. In the past: the check failed, has not run since the step became '
  'ACTIVE, or no worker runs it. A deployment with such an ACTIVE step is not converged.';

CREATE TABLE edge (
  child   uuid NOT NULL REFERENCES step,
  parent  uuid NOT NULL REFERENCES step,
  kind    text NOT NULL CHECK (kind IN ('hard', 'order_only', 'soft')),
  PRIMARY KEY (child, parent),
  CONSTRAINT edge_is_no_loop CHECK (child <> parent)
);
CREATE INDEX edge_parent ON edge (parent, child);
COMMENT ON TABLE edge IS 'The dependencies between steps.';

CREATE TABLE run (
  id                    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  step_id               uuid        NOT NULL REFERENCES step,
  node_id               uuid        NOT NULL REFERENCES node,
  concurrency_group_id  bigint      NOT NULL REFERENCES concurrency_group,
  generation            bigint      NOT NULL,
  blueprint_number      bigint      NOT NULL REFERENCES blueprint,
  epoch                 bigint      NOT NULL,
  content_hash          bytea       NOT NULL CHECK (octet_length(content_hash) = 32),
  exclusive             boolean     NOT NULL,
  cause                 text,
  cause_by              text,
  failures              int         NOT NULL DEFAULT 0 CHECK (failures >= 0),
  state                 text        NOT NULL DEFAULT 'queued'
      CHECK (state IN ('queued', 'running', 'ended')),
  outcome               text
      CHECK (outcome IN ('succeeded', 'failed', 'lost', 'canceled', 'late', 'unstarted')),
  superseded            boolean     NOT NULL DEFAULT false,
  worker_id             uuid,
  queued_at             timestamptz NOT NULL DEFAULT now(),
  started_at            timestamptz,
  ended_at              timestamptz,
  ended_xid             xid8,
  lease_until           timestamptz NOT NULL,
  cancel_requested      boolean     NOT NULL DEFAULT false,
  input                 jsonb,
  surroundings          jsonb,
  input_hash            bytea CHECK (octet_length(input_hash) = 32),
  input_version         int,
  result                jsonb,
  result_bytes          int         NOT NULL DEFAULT 0 CHECK (result_bytes >= 0),
  error                 text,
  log_bytes             bigint      NOT NULL DEFAULT 0 CHECK (log_bytes >= 0),
  out_bytes             bigint      NOT NULL DEFAULT 0 CHECK (out_bytes >= 0),
  err_bytes             bigint      NOT NULL DEFAULT 0 CHECK (err_bytes >= 0),
  adoptions             int         NOT NULL DEFAULT 0 CHECK (adoptions BETWEEN 0 AND 5),
  CONSTRAINT run_end_is_complete CHECK (
    (state = 'ended') = (ended_at IS NOT NULL) AND (state = 'ended') = (outcome IS NOT NULL)),
  CONSTRAINT run_running_has_worker CHECK (
    state <> 'running' OR (worker_id IS NOT NULL AND started_at IS NOT NULL))
);
CREATE INDEX run_blueprint ON run (blueprint_number, id);
CREATE INDEX run_by_state ON run (coalesce(outcome, state), id);
CREATE INDEX run_by_duration ON run (
    coalesce((extract(epoch FROM ended_at - started_at) * 1000000)::bigint, -1), id);
CREATE INDEX run_concurrency_group ON run (concurrency_group_id, id DESC);
CREATE INDEX run_ended_at ON run (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX run_generation ON run (generation, id);
CREATE INDEX run_node ON run (node_id, id DESC);
CREATE INDEX run_of_worker ON run (worker_id, id DESC) WHERE worker_id IS NOT NULL;
CREATE UNIQUE INDEX run_one_exclusive_on_node ON run (node_id)
  WHERE ended_at IS NULL AND exclusive;
CREATE UNIQUE INDEX run_one_open_of_step ON run (step_id) WHERE ended_at IS NULL;
CREATE INDEX run_open_lease ON run (lease_until) WHERE ended_at IS NULL;
CREATE INDEX run_outcome ON run (outcome, id DESC) WHERE outcome IS NOT NULL;
CREATE INDEX run_queued ON run (id) WHERE state = 'queued';
CREATE INDEX run_queued_at ON run (queued_at, id);
CREATE INDEX run_results ON run (node_id, id DESC)
  INCLUDE (step_id, result_bytes)
  WHERE result IS NOT NULL AND result_bytes > 0;
CREATE INDEX run_step ON run (step_id, id DESC);
CREATE INDEX run_worker ON run (worker_id) WHERE ended_at IS NULL;
COMMENT ON TABLE run IS
  'One attempt at a step. Its id is the fencing token. The queue consists of the queued rows.';
COMMENT ON COLUMN run.generation IS 'step.generation when the run was queued.';
COMMENT ON COLUMN run.blueprint_number IS 'The target when the run was queued.';
COMMENT ON COLUMN run.cause IS 'Why the step ran again although a result was applied.';
COMMENT ON COLUMN run.failures IS
  'The number of failed attempts of the step that were retried before. This run is attempt '
  'failures + 1.';
COMMENT ON COLUMN run.input_version IS 'step.input_version when the input was read.';
COMMENT ON COLUMN run.outcome IS 'unstarted: it ended before it started on its node.';
COMMENT ON COLUMN run.superseded IS
  'A commit changed the step and canceled this run. The step continues with the new target.';
COMMENT ON COLUMN run.ended_xid IS
  'The transaction that ended the run, written by a trigger. NULL: the run is open.';
COMMENT ON COLUMN run.lease_until IS
  'If the worker does not renew the lease until then, the run is lost.';
COMMENT ON COLUMN run.out_bytes IS
  'How far the log contains standard output as the node has it. An adopting worker reads on there.';
COMMENT ON COLUMN run.err_bytes IS 'The same for standard error.';
COMMENT ON COLUMN run.adoptions IS
  'How often another worker took the run over after its worker was lost. Limited, because a run can '
  'crash its workers.';
COMMENT ON COLUMN run.surroundings IS 'The other input of the run, with secrets as references.';
COMMENT ON COLUMN run.result IS
  'The result of the attempt, independent of its outcome. NULL with result_bytes > 0: no longer '
  'stored (engine::data::retention).';
COMMENT ON COLUMN run.result_bytes IS 'The size of the result. 0: there is none.';
ALTER TABLE node_fact ADD CONSTRAINT node_fact_run_id_fkey
  FOREIGN KEY (run_id) REFERENCES run(id);

CREATE TABLE run_log (
  run_id     bigint      NOT NULL,
  at_offset  bigint      NOT NULL CHECK (at_offset >= 0),
  at         timestamptz NOT NULL DEFAULT now(),
  body       bytea       NOT NULL,
  PRIMARY KEY (run_id, at_offset)
) PARTITION BY RANGE (run_id);
CREATE TABLE run_log_rest PARTITION OF run_log DEFAULT;
COMMENT ON TABLE run_log IS 'The log of a run in chunks. Old partitions are dropped.';
COMMENT ON COLUMN run_log.at_offset IS 'The number of bytes in the run''s log before this chunk.';
