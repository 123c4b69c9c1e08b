-- Grants ------------------------------------------------------------------------------------------
-- There are four roles. The owner owns the tables and migrates. The server, the workers and
-- monitoring get the privileges in this file, one block per role and one line per table. All
-- privileges are revoked first. Columns are listed if the database or another role writes the other
-- columns (times, transaction ids, identities).
--
-- A function with its caller's privileges adds none, so server and workers may call all of those. A
-- function that runs as the owner (SECURITY DEFINER) is listed for each role that needs it.

DO $$
DECLARE
  other record;
BEGIN
  INSERT INTO database_role (purpose, name)
  VALUES ('server', current_setting('gantry.server_role')), ('worker', current_setting('gantry.worker_role')),
         ('metrics', current_setting('gantry.metrics_role'))
  ON CONFLICT (purpose) DO UPDATE SET name = excluded.name;

  -- Also revokes from roles with other names that an earlier migration granted privileges to.
  FOR other IN
    SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC') AS name
    FROM (SELECT a.grantee, c.relowner AS owner FROM pg_class c, aclexplode(c.relacl) a
          WHERE c.relnamespace = 'public'::regnamespace
          UNION SELECT a.grantee, c.relowner FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
          WHERE c.relnamespace = 'public'::regnamespace
          UNION SELECT a.grantee, p.proowner FROM pg_proc p, aclexplode(p.proacl) a
          WHERE p.pronamespace = 'public'::regnamespace
          UNION SELECT 0::oid, 0::oid) granted
    LEFT JOIN pg_roles r ON r.oid = granted.grantee
    WHERE granted.grantee <> granted.owner OR granted.grantee = 0
  LOOP
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA public FROM %s', other.name);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM %s', other.name);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM %s', other.name);
  END LOOP;
  IF has_schema_privilege('public', 'CREATE WITH GRANT OPTION') THEN
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
  END IF;
END $$;

-- The server: intent, reviews, people, node records. Not the progress that only workers see: output
-- and results of steps, inputs and logs of runs, health of nodes.
DO $$
DECLARE
  server text := current_setting('gantry.server_role');
  granted text;
  intent record;
BEGIN
  FOREACH granted IN ARRAY ARRAY[
    'USAGE ON SCHEMA public',
    'SELECT ON ALL TABLES IN SCHEMA public',
    'INSERT (hash, kind, body) ON object',
    'INSERT (number, hash, created_by) ON policy',
    'INSERT (name, version, hash, imported_by) ON barclamp',
    'INSERT (number, parent, kind, root, review_id, enabled, epoch, reason, committed_by) ON
             blueprint',
    'UPDATE (number, enabled, policy_number) ON head',
    'INSERT (id, parent, name, system, phantom, doc, head_no) ON deployment',
    'UPDATE (parent, name, doc, head_no, removed_in, on_hold_by, on_hold_since, on_hold_reason,
             priority) ON
             deployment',
    'INSERT (id, fqdn, deployment_id, phantom, doc, transport, address, connection, created_by) ON
             node',
    -- Health is not among them. health_checked_at and contradicting_checks make a worker check the
    -- node soon. report_no voids a check that began earlier. bootenv and facts come from the
    -- machine's reports.
    'UPDATE (fqdn, deployment_id, doc, removed_in, version, description, hints, macs, serial,
             transport, address, connection, connection_no, available, unavailable_by,
             unavailable_reason, unavailable_at, health_checked_at, contradicting_checks,
             report_no, bootenv, facts, facts_at) ON node',
    -- A row without run_id comes from the machine, never from a role.
    'INSERT (node_id, source, facts, token_id), UPDATE (facts, at, token_id) ON node_fact',
    'INSERT (node_id, kind, detail, token_id, address), DELETE ON node_report',
    'INSERT (deployment_id, node_id, kind, title, created_by) ON proposal',
    'UPDATE (title, state, version, updated_at, closed_at) ON proposal',
    'INSERT (proposal_id, seq, actor, body, undone, request_seq) ON edit',
    'UPDATE (undone, touched_by, dropped) ON edit',
    'INSERT (proposal_id, version, title, change_hash, effects_hash, policy_number,
             new_policy_hash, approvals_needed, epoch, root_hash, summary, risk, created_by) ON
             review',
    'INSERT ON review_base',
    'INSERT ON review_author',
    'INSERT ON review_document',
    'INSERT ON blueprint_deployment',
    'INSERT (proposal_id, first_edit, last_edit, blueprint_number, missing, more) ON not_restored',
    'INSERT (before_id, proposal_id, after_id, version, blueprint_number, moved, refused) ON
             replan',
    'INSERT (review_id, person_id, policy_number, kind, reason) ON verdict',
    'INSERT (verdict_id, passkey_id, nonce, client_data, authenticator_data, signature) ON
             verdict_signature',
    'INSERT (id, person_id, name, rp_id, origin, credential_id, credential, counter) ON passkey',
    'UPDATE (counter, last_used_at, revoked_at, revoked_by) ON passkey',
    'INSERT (passkey_id, by_passkey, nonce, client_data, authenticator_data, signature) ON
             passkey_confirmation',
    'INSERT (person_id, secret), DELETE ON totp',
    'INSERT (review_id, thread_id, anchor, person_id, body) ON comment',
    'UPDATE (resolved_by, resolved_at) ON comment',
    'INSERT, UPDATE (review_id, before_id, at) ON review_view',
    'INSERT, UPDATE (content, at) ON viewed_change',
    'INSERT (name, class, description, client_role), UPDATE (active) ON jig',
    'INSERT (deployment_id, name, max_running, mode), UPDATE (max_running, mode) ON
             concurrency_group',
    -- Progress: a commit sets the state of its steps. Retry, the end of a queued run and
    -- maintenance move a step and its descendants.
    'INSERT (state, pending, node_up) ON step',
    'UPDATE (state, pending, satisfied, applied_generation, failures, cause, cause_by, error,
             since, not_before, node_up, node_fits, input_version, stale) ON step',
    'INSERT, DELETE ON edge',
    -- The server requests that a worker cancels a run, and ends runs that no worker has leased.
    'UPDATE (cancel_requested, superseded, error, state, outcome, ended_at) ON run',
    'INSERT (topic, subject, kind, body) ON event',
    'INSERT (actor, action, subject, detail) ON audit',
    'INSERT (by, report), DELETE ON import_report',
    'INSERT (person_id, key, request, claim, claimed_until), UPDATE, DELETE ON idempotency',
    'INSERT ON person',
    'UPDATE (name, display, disabled, permissions) ON person',
    'INSERT, DELETE ON scoped_grant',
    'UPDATE (last_seen_at, idle_expires_at, ceremony), DELETE ON session',
    'UPDATE (dismissed_at) ON access_change',
    'INSERT, UPDATE (at) ON visit',
    'UPDATE (drain_by, drain_since, drain_reason) ON worker',
    'INSERT, UPDATE, DELETE ON background_task',
    'INSERT (address), UPDATE (seen_at), DELETE ON server_address',
    'INSERT, UPDATE (last_used_at, revoked_at), DELETE ON token',
    -- The database verifies credentials. Only these functions act for a person, begin a session or
    -- set a password.
    'EXECUTE ON FUNCTION act_as(text)',
    'EXECUTE ON FUNCTION acting_person()',
    'EXECUTE ON FUNCTION acting_in_session()',
    'EXECUTE ON FUNCTION acting_as_operator()',
    'EXECUTE ON FUNCTION acting_admin()',
    'EXECUTE ON FUNCTION acting_manages(person)',
    'EXECUTE ON FUNCTION acting_pending()',
    'EXECUTE ON FUNCTION acting_pending_person()',
    'EXECUTE ON FUNCTION acting_session()',
    'EXECUTE ON FUNCTION confirm_totp(bigint)',
    'EXECUTE ON FUNCTION present_totp(bigint)',
    'EXECUTE ON FUNCTION present_passkey(uuid)',
    'EXECUTE ON FUNCTION begin_session_by_link(text, bytea, interval, interval, text, text)',
    'EXECUTE ON FUNCTION begin_session_by_password(uuid, bytea, bytea, interval, interval, text,
               text)',
    'EXECUTE ON FUNCTION set_password(text, text, bytea, bytea)',
    'EXECUTE ON FUNCTION confirm_access(uuid, uuid)',
    -- A guard calls it at the end of a commit. It records that commit and nothing else.
    'EXECUTE ON FUNCTION note_projected(bigint)',
    'EXECUTE ON FUNCTION seal_audit(int)',
    'EXECUTE ON FUNCTION reset_join_confirmation(uuid)'
  ] LOOP
    EXECUTE format('GRANT %s TO %I', granted, server);
  END LOOP;
  -- Intent of noderoles and steps: the columns that guard_intent protects. Their identity never
  -- changes.
  FOR intent IN
    SELECT t.tgrelid::regclass AS "table",
      string_agg(a.attname, ', ') FILTER (WHERE a.attname <> 'disposition') AS added,
      string_agg(a.attname, ', ') FILTER (WHERE a.attname NOT IN
        ('id', 'node_id', 'role', 'instance', 'noderole_id', 'action')) AS changed
    FROM pg_trigger t
    JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = ANY(t.tgattr::int2[])
    WHERE t.tgname = 'guard_intent' AND t.tgrelid IN ('noderole'::regclass, 'step'::regclass)
    GROUP BY t.tgrelid
  LOOP
    EXECUTE format('GRANT INSERT (%s), UPDATE (%s) ON %s TO %I', intent.added, intent.changed,
                   intent."table", server);
  END LOOP;
  -- Only functions may read the acting person.
  EXECUTE format('REVOKE ALL ON acting FROM %I', server);
END $$;

-- Workers: they claim, execute and end runs, and run health checks. They read the documents that
-- approve a run, and nothing about sessions, tokens or accounts.
DO $$
DECLARE
  worker text := current_setting('gantry.worker_role');
  granted text;
BEGIN
  FOREACH granted IN ARRAY ARRAY[
    'USAGE ON SCHEMA public',
    'SELECT ON seaql_migrations, guard_version, database_role',
    -- The chain from a run to its documents and verdicts.
    'SELECT ON object, policy, blueprint, blueprint_deployment, head, proposal, review,
               review_base, review_author, review_document, verdict, signature_demand,
               verdict_signature, passkey, passkey_confirmation',
    -- An approval does not count if an author gave its person access, or if the person is an
    -- author.
    'SELECT (id, kind) ON person',
    'SELECT (person_id, kind, by, at, confirmed_at) ON access_change',
    'SELECT (proposal_id, actor, undone, touched_by) ON edit',
    'SELECT ON deployment, jig, concurrency_group, disruption_budget, noderole, edge',
    'SELECT, UPDATE (alive, alive_since, last_seen_at, health_checked_at, contradicting_checks,
                     joined, joined_at, boot_id, facts, facts_at) ON node',
    'SELECT, INSERT (node_id, reached, address, detail, attempts, duration_ms, by), DELETE ON
                     health_check',
    -- A row without token_id comes from a role, never from the machine.
    'SELECT, INSERT (node_id, source, facts, run_id), UPDATE (facts, at, run_id) ON node_fact',
    -- A trigger writes node_fits when a node's health changes.
    'SELECT, UPDATE (state, pending, satisfied, applied_generation, failures, cause, cause_by,
                     error, since, not_before, node_up, node_fits, results, output, output_run,
                     input_hash, input_version, input_checked, stale) ON step',
    -- A trigger inserts and deletes the rows.
    'SELECT, UPDATE (due_at, worker_id, leased_at, generation, state, failures, caused_rerun, detail,
                     duration_ms, checked_at, changed_at, passes_until) ON role_check',
    'SELECT, INSERT (step_id, node_id, concurrency_group_id, generation, content_hash,
                     blueprint_number, epoch, exclusive, cause, cause_by, failures, lease_until)
                     ON run',
    'UPDATE (state, worker_id, started_at, lease_until, ended_at, outcome, error, input,
             surroundings, input_hash, input_version, result, result_bytes, log_bytes, out_bytes,
             err_bytes, adoptions) ON run',
    -- A guard reads the end of the log.
    'SELECT (run_id, at_offset), INSERT (run_id, at_offset, at, body) ON run_log',
    'SELECT, INSERT (id, name, phase, capacity, jigs, host, pid, version, lease_until), DELETE ON
                     worker',
    'UPDATE (phase, lease_until, last_heartbeat_at, reason, secrets) ON worker',
    'SELECT, INSERT, UPDATE, DELETE ON background_task',
    'SELECT ON server_address',
    'INSERT (topic, subject, kind, body) ON event',
    'EXECUTE ON FUNCTION acting_person()',
    'EXECUTE ON FUNCTION seal_audit(int)',
    'EXECUTE ON FUNCTION ensure_run_log_room()',
    'EXECUTE ON FUNCTION forget_excess_results(bigint[])',
    'EXECUTE ON FUNCTION forget_events(interval)'
  ] LOOP
    EXECUTE format('GRANT %s TO %I', granted, worker);
  END LOOP;
END $$;

-- Monitoring: states, counts and times. No documents, data, output, results, logs, connections,
-- addresses or errors, and nothing about sessions, tokens or accounts. docs/operating.md lists
-- these columns.
DO $$
DECLARE
  metrics text := current_setting('gantry.metrics_role');
  granted text;
BEGIN
  FOREACH granted IN ARRAY ARRAY[
    'USAGE ON SCHEMA public',
    'SELECT ON seaql_migrations, guard_version, database_role',
    'SELECT ON head',
    'SELECT (number, parent, kind, enabled, epoch, committed_at) ON blueprint',
    'SELECT (id, parent, name, head_no, removed_in, on_hold_since, priority) ON deployment',
    'SELECT (id, fqdn, deployment_id, phantom, removed_in, alive, alive_since, last_seen_at,
             health_checked_at, contradicting_checks, joined, joined_at, available,
             unavailable_at, transport, created_at) ON node',
    'SELECT ON jig, concurrency_group, disruption_budget',
    'SELECT (id, node_id, role, instance, deployment_id, disposition) ON noderole',
    'SELECT (id, noderole_id, node_id, action, concurrency_group_id, jig, rank, priority,
             destructive, generation, state, since, not_before, pending, applied_generation,
             failures, cause, node_up, node_fits, stale, check_s) ON step',
    'SELECT (step_id, node_id, due_at, generation, state, failures, caused_rerun, duration_ms, checked_at,
             changed_at, passes_until) ON role_check',
    'SELECT (id, step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch,
             cause, failures, state, outcome, worker_id, queued_at, started_at, ended_at,
             lease_until, cancel_requested, superseded, result_bytes, log_bytes) ON run',
    'SELECT (id, name, phase, capacity, jigs, host, version, lease_until, started_at,
             last_heartbeat_at, drain_since) ON worker',
    'SELECT (process_id, process_kind, process, task, period_ms, started_at, ended_at, duration_ms,
             failures, due_at, lease_until) ON background_task',
    'SELECT (id, deployment_id, kind, state, version, created_at, updated_at, closed_at) ON
             proposal',
    'SELECT (id, proposal_id, version, approvals_needed, risk, created_at) ON review',
    'SELECT (id, review_id, kind, at) ON verdict',
    'SELECT (id, at) ON audit',
    'SELECT (seq, audit_id, sealed_at) ON seal'
  ] LOOP
    EXECUTE format('GRANT %s TO %I', granted, metrics);
  END LOOP;
END $$;

-- Functions with their caller's privileges, which guards call for server and workers. Only the
-- owner may call raise_epoch.
DO $$
DECLARE
  harmless record;
BEGIN
  FOR harmless IN
    SELECT p.oid::regprocedure AS name FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f' AND NOT p.prosecdef
      AND p.prorettype <> 'trigger'::regtype AND p.proname <> 'raise_epoch'
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I, %I', harmless.name,
                   current_setting('gantry.server_role'), current_setting('gantry.worker_role'));
  END LOOP;
END $$;
