-- Grants --------------------------------------------------------------------------------------------------------------
-- Everything is taken away first, so that what is not listed here is not granted. Columns are listed where the others
-- are the database's to fill: times, transaction ids, identities.

DO $$
DECLARE
  app text := current_setting('gantry.app_role');
  granted text;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', app);
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA public FROM %I', app);
  REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM %I', app);
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I', app);
  EXECUTE format('REVOKE ALL ON acting FROM %I', app);
  FOREACH granted IN ARRAY ARRAY[
    'INSERT (hash, kind, body) ON object',
    'INSERT (number, hash, created_by) ON policy',
    'INSERT (name, version, hash, imported_by) ON barclamp',
    'INSERT (number, parent, kind, root, submission_id, enabled, epoch, reason, committed_by) ON target',
    'UPDATE (number, enabled, policy_number) ON head',
    'INSERT, UPDATE, DELETE ON deployment',
    'INSERT, UPDATE, DELETE ON node',
    'INSERT (node_id, reached, address, said, tried, took_ms, by), DELETE ON node_look',
    'INSERT, UPDATE, DELETE ON node_fact',
    'INSERT (node_id, kind, said, token_id, address), DELETE ON node_report',
    'INSERT (deployment_id, node_id, kind, title, created_by) ON proposal',
    'UPDATE (title, state, version, updated_at, closed_at) ON proposal',
    'INSERT (proposal_id, seq, actor, body, undone) ON edit',
    'UPDATE (undone, touched_by, dropped) ON edit',
    'INSERT (proposal_id, version, title, change_hash, effects_hash, policy_number, new_policy_hash, approvals_needed,
             epoch, root_hash, summary, risk, created_by) ON submission',
    'INSERT ON submission_base',
    'INSERT ON submission_author',
    'INSERT ON submission_document',
    'INSERT ON target_deployment',
    'INSERT (proposal_id, first_edit, last_edit, target, missing, more) ON left_out',
    'INSERT (before_id, proposal_id, after_id, version, target, moved, refused) ON replan',
    'INSERT (submission_id, person_id, policy_number, kind, reason) ON verdict',
    'INSERT (submission_id, thread_id, anchor, person_id, body) ON comment',
    'UPDATE (resolved_by, resolved_at) ON comment',
    'INSERT, UPDATE (submission_id, before_id, at) ON look',
    'INSERT, UPDATE (content, at) ON opened',
    'INSERT (name, class, description, client_role), UPDATE ON jig',
    'INSERT, UPDATE, DELETE ON lane',
    'INSERT, UPDATE, DELETE ON budget',
    'INSERT, UPDATE, DELETE ON noderole',
    'INSERT, UPDATE, DELETE ON step',
    'INSERT, UPDATE, DELETE ON edge',
    'INSERT, UPDATE ON run',
    'INSERT ON run_log',
    'INSERT, UPDATE, DELETE ON worker',
    'INSERT (topic, subject, kind, body) ON event',
    'INSERT (actor, action, subject, detail) ON audit',
    'INSERT (by, report), DELETE ON import_report',
    'INSERT (person_id, key, request, claim, claimed_until), UPDATE, DELETE ON idempotency',
    'INSERT ON person',
    'UPDATE (name, display, disabled, permissions) ON person',
    'INSERT, DELETE ON scoped_grant',
    'UPDATE (last_seen_at, idle_expires_at), DELETE ON session',
    'UPDATE (dismissed_at) ON access_change',
    'INSERT, UPDATE (at) ON visit',
    'INSERT, UPDATE (last_used_at, revoked_at), DELETE ON token'
  ] LOOP
    EXECUTE format('GRANT %s TO %I', granted, app);
  END LOOP;
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO %I', app);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION raise_epoch() FROM %I', app);
END $$;
