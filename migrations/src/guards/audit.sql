-- The audit: rows that the database writes, and the hash chain over all rows.
--
-- Triggers write a row (source = 'database') for each change of intent, verdicts, people, sessions,
-- tokens, node records and runs. Its detail is the changed row, so an export proves that the row is
-- unchanged since. Rows of use cases (source = 'application') add the reasons and prove nothing.
-- The triggers run as the owner, so no other role needs the privilege to insert such rows.

-- Rows --------------------------------------------------------------------------------------------

-- A transaction that acts for a person writes audit rows for that person or for Gantry only.
CREATE OR REPLACE FUNCTION guard_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE person uuid := acting_holder();
BEGIN
  IF person IS NOT NULL AND NEW.actor <> person THEN
    RAISE EXCEPTION 'The audit row names % as its actor, but the transaction acts for %', NEW.actor,
      person
      USING ERRCODE = 'GY044', HINT = 'Name the person for whom the transaction acts, or no actor.';
  END IF;
  RETURN NEW;
END $$;
-- Whether the owner is connected. Functions of the audit run as the owner, so is_owner() is always
-- true in them.
CREATE OR REPLACE FUNCTION is_owner_session() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT pg_has_role(session_user, c.relowner, 'USAGE') FROM pg_class c
    WHERE c.oid = 'public.acting'::regclass
$$;
CREATE TRIGGER guard_audit BEFORE INSERT ON audit FOR EACH ROW
  WHEN (NEW.source = 'application' AND NEW.actor IS NOT NULL) EXECUTE FUNCTION guard_audit();

-- Functions for runs are on the hot path. Their own search path would cost 0.1 ms per call, so they
-- qualify every name.

-- Queues each inserted row for sealing.
CREATE OR REPLACE FUNCTION guard_audit_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.audit_unsealed (audit_id) SELECT a.id FROM added a;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_audit_queue AFTER INSERT ON audit REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION guard_audit_queue();

-- UTC, independent of the time zone of the session.
CREATE OR REPLACE FUNCTION audit_moment(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.to_char(pg_catalog.timezone('UTC', at), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- The audited part of a run: its identity and its outcome. Like every image of a row, it does not
-- depend on settings of the session. Otherwise a later verification could not compare it.
CREATE OR REPLACE FUNCTION audit_run(r run) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
    'id', r.id, 'step_id', r.step_id, 'node_id', r.node_id,
    'concurrency_group_id', r.concurrency_group_id, 'generation', r.generation,
    'blueprint_number', r.blueprint_number, 'epoch', r.epoch,
    'content_hash', pg_catalog.concat(E'\\x', pg_catalog.encode(r.content_hash, 'hex')), 'cause',
      r.cause, 'cause_by', r.cause_by,
    'queued_at', public.audit_moment(r.queued_at), 'started_at', public.audit_moment(r.started_at),
      'worker_id', r.worker_id,
    'ended_at', public.audit_moment(r.ended_at), 'outcome', r.outcome))
$$;

-- The parts of a review that other tables store. The change hash proves its documents.
CREATE OR REPLACE FUNCTION audit_review(s review) RETURNS jsonb LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET bytea_output = 'hex'
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1 AS $$
  SELECT jsonb_strip_nulls(to_jsonb(s) - ARRAY['xid', 'summary'] || jsonb_build_object(
    'base', (SELECT coalesce(jsonb_object_agg(b.deployment_id, b.head_no), '{}')
      FROM review_base b WHERE b.review_id = s.id),
    'authors', (SELECT coalesce(jsonb_agg(a.person_id ORDER BY a.person_id), '[]')
                FROM review_author a WHERE a.review_id = s.id),
    'signed', (SELECT true FROM signature_demand g WHERE g.review_id = s.id)))
$$;

-- The audited part of any other row. For tables with secrets or progress, only the listed columns.
CREATE OR REPLACE FUNCTION audit_image(of_table text, r jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT jsonb_strip_nulls(coalesce(
    (SELECT jsonb_object_agg(c.name, r -> c.name) FROM unnest(CASE of_table
       WHEN 'account' THEN ARRAY['person_id', 'changed_at']
       WHEN 'session' THEN ARRAY['id', 'person_id', 'created_at', 'fresh_at', 'expires_at',
         'by_link', 'address', 'factor_at']
       WHEN 'token' THEN ARRAY['id', 'kind', 'name', 'person_id', 'node_id', 'deployment_id',
         'scopes', 'created_by', 'created_at',
                               'expires_at', 'used_at', 'revoked_at']
       WHEN 'node' THEN ARRAY['id', 'fqdn', 'removed_in', 'transport', 'address', 'connection',
         'hints', 'description', 'macs',
                              'serial', 'available', 'unavailable_by', 'unavailable_reason']
       WHEN 'deployment' THEN ARRAY['id', 'name', 'on_hold_by', 'on_hold_since', 'on_hold_reason', 'priority']
       WHEN 'worker' THEN ARRAY['id', 'name', 'drain_by', 'drain_since', 'drain_reason']
       WHEN 'totp' THEN ARRAY['person_id', 'created_at', 'confirmed_at']
       WHEN 'passkey' THEN ARRAY['id', 'person_id', 'name', 'rp_id', 'origin', 'credential',
         'created_at', 'revoked_at', 'revoked_by']
       END) c (name)),
    CASE of_table
      WHEN 'edit' THEN r - 'body' || jsonb_build_object('body_sha256',
        encode(sha256(convert_to((r -> 'body')::text, 'UTF8')), 'hex'))
      WHEN 'proposal' THEN r - 'updated_at'
      WHEN 'comment' THEN r - 'body' || jsonb_build_object('body_sha256',
        encode(sha256(convert_to(r ->> 'body', 'UTF8')), 'hex'))
      ELSE r - 'xid' END))
$$;

-- Writes the audit row of a changed row. Arguments: the columns that identify the row, and the
-- column with the person who changed it. That column counts only without an acting person: if the
-- owner wrote the row, or if a session began (acting.sql).
CREATE OR REPLACE FUNCTION guard_audit_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET timezone = 'UTC' SET bytea_output = 'hex' SET datestyle = 'ISO' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 AS $$
DECLARE
  r jsonb := to_jsonb(CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END);
  image jsonb := audit_image(TG_TABLE_NAME, r);
BEGIN
  IF TG_OP = 'UPDATE' AND image = audit_image(TG_TABLE_NAME, to_jsonb(OLD)) THEN
    RETURN NULL;
  END IF;
  INSERT INTO audit (actor, action, subject, detail, source)
  VALUES (coalesce(acting_holder(), CASE WHEN TG_TABLE_NAME = 'session' OR is_owner_session()
    THEN (r ->> TG_ARGV[1])::uuid END),
          TG_TABLE_NAME || '.' || lower(TG_OP),
          (SELECT string_agg(r ->> k.name, ' ' ORDER BY k.place)
           FROM unnest(string_to_array(TG_ARGV[0], ' ')) WITH ORDINALITY k (name, place)),
          image, 'database');
  RETURN NULL;
END $$;

CREATE TRIGGER guard_audit AFTER INSERT ON blueprint FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('number', 'committed_by');
CREATE TRIGGER guard_audit AFTER INSERT ON policy FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('number', 'created_by');
CREATE TRIGGER guard_audit AFTER INSERT ON barclamp FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('name version', 'imported_by');
CREATE TRIGGER guard_audit AFTER INSERT ON verdict FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', 'person_id');
CREATE TRIGGER guard_audit AFTER INSERT ON verdict_signature
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('verdict_id', '');
CREATE TRIGGER guard_audit AFTER INSERT ON passkey FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', 'person_id');
CREATE TRIGGER guard_audit_change AFTER UPDATE OF revoked_at ON passkey FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', 'revoked_by');
CREATE TRIGGER guard_audit AFTER INSERT OR UPDATE OR DELETE ON totp FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('person_id', '');
CREATE TRIGGER guard_audit AFTER INSERT ON passkey_confirmation
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('passkey_id', '');
-- A transaction presents its credential after it has written these rows, so they are audited at its
-- end.
CREATE CONSTRAINT TRIGGER guard_audit AFTER INSERT ON proposal DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', 'created_by');
CREATE CONSTRAINT TRIGGER guard_audit_change AFTER UPDATE OF state, title, version ON proposal
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', '');
CREATE TRIGGER guard_audit AFTER INSERT ON replan FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('before_id', '');
CREATE TRIGGER guard_audit AFTER INSERT OR UPDATE ON comment FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', '');
CREATE TRIGGER guard_audit AFTER INSERT OR UPDATE ON access_change FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', '');
CREATE CONSTRAINT TRIGGER guard_audit AFTER INSERT ON edit DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('proposal_id seq', 'actor');
CREATE CONSTRAINT TRIGGER guard_audit_change AFTER UPDATE ON edit DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('proposal_id seq', '');
CREATE TRIGGER guard_audit AFTER INSERT OR UPDATE OR DELETE ON person FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', '');
CREATE TRIGGER guard_audit AFTER INSERT OR UPDATE OR DELETE ON scoped_grant
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('person_id permission deployment_id', '');
-- A new password is audited as its time of change. The hash itself is never recorded.
CREATE TRIGGER guard_audit AFTER INSERT OR DELETE OR UPDATE OF password_hash, changed_at ON account
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('person_id', 'person_id');
CREATE TRIGGER guard_audit AFTER INSERT ON session FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', 'person_id');
CREATE TRIGGER guard_audit_change AFTER DELETE OR UPDATE OF person_id, token_hash, fresh_at,
  expires_at, by_link, factor_at ON session
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', '');
CREATE TRIGGER guard_audit AFTER INSERT ON token FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('id', 'created_by');
CREATE TRIGGER guard_audit_change AFTER DELETE
  OR UPDATE OF kind, hash, person_id, node_id, deployment_id, scopes, expires_at, used_at,
    revoked_at ON token
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', '');
-- Phantom nodes are created with the deployments of a blueprint.
CREATE TRIGGER guard_audit AFTER INSERT ON node FOR EACH ROW WHEN (NOT NEW.phantom)
  EXECUTE FUNCTION guard_audit_row('id', 'created_by');
CREATE TRIGGER guard_audit_change AFTER DELETE
  OR UPDATE OF fqdn, removed_in, transport, address, connection, hints, description, macs, serial,
    available, unavailable_by,
               unavailable_reason ON node
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', '');
CREATE TRIGGER guard_audit AFTER UPDATE OF on_hold_by, on_hold_since, on_hold_reason, priority ON deployment
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', 'on_hold_by');
CREATE TRIGGER guard_audit AFTER UPDATE OF drain_by, drain_since, drain_reason ON worker
  FOR EACH ROW EXECUTE FUNCTION guard_audit_row('id', 'drain_by');
CREATE TRIGGER guard_audit AFTER UPDATE OF epoch ON head FOR EACH ROW
  EXECUTE FUNCTION guard_audit_row('epoch', '');

-- A review is audited once all its parts exist. At the same moment the database decides whether its
-- approvals must be signed. guard_audit_part rejects later parts, even if a transaction checks its
-- constraints early.
CREATE OR REPLACE FUNCTION guard_audit_review() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO signature_demand (review_id) SELECT NEW.id WHERE requires_signature(NEW.id);
  INSERT INTO audit (actor, action, subject, detail, source)
  VALUES (coalesce(acting_holder(), CASE WHEN is_owner_session() THEN NEW.created_by END),
    'review.insert', NEW.id::text, audit_review(NEW), 'database');
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_audit AFTER INSERT ON review DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_audit_review();
-- A transaction may check its constraints early (SET CONSTRAINTS). The review is complete from then
-- on.
CREATE OR REPLACE FUNCTION guard_audit_part() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM added p JOIN audit a ON a.subject = p.review_id::text
             WHERE a.action = 'review.insert' AND a.source = 'database') THEN
    RAISE EXCEPTION 'Cannot extend a review that is already in the audit'
      USING ERRCODE = 'GY013', HINT = 'Submit the proposal again.';
  END IF;
  RETURN NULL;
END $$;
DO $$
DECLARE tbl text;
BEGIN
  FOREACH tbl IN ARRAY ARRAY['review_base', 'review_author', 'review_document'] LOOP
    EXECUTE format('CREATE TRIGGER guard_audit_part AFTER INSERT ON %I
                    REFERENCING NEW TABLE AS added FOR EACH STATEMENT
                    EXECUTE FUNCTION guard_audit_part()', tbl);
  END LOOP;
END $$;

-- Most updates of runs renew a lease or append to a log. A row trigger with a condition costs
-- nothing for them.
CREATE OR REPLACE FUNCTION guard_audit_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.audit (action, subject, detail, source)
  VALUES (CASE WHEN NEW.state OPERATOR(pg_catalog.=) 'running'::pg_catalog.text THEN 'run.start'
    ELSE 'run.end' END,
          NEW.id::pg_catalog.text, public.audit_run(NEW), 'database');
  RETURN NULL;
END $$;
CREATE TRIGGER guard_audit AFTER INSERT ON run FOR EACH ROW WHEN (NEW.state <> 'queued')
  EXECUTE FUNCTION guard_audit_run();
CREATE TRIGGER guard_audit_change AFTER UPDATE OF state, outcome ON run FOR EACH ROW
  WHEN ((NEW.state, NEW.outcome) IS DISTINCT FROM (OLD.state, OLD.outcome))
    EXECUTE FUNCTION guard_audit_run();

-- Hash chain --------------------------------------------------------------------------------------

-- The exact bytes that are sealed. An export contains them, so that a verifier needs no database.
CREATE OR REPLACE FUNCTION audit_content(a audit) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (jsonb_build_object('id', a.id, 'at',
    to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                             'actor', a.actor, 'action', a.action, 'subject', a.subject, 'detail',
                               a.detail)
          || CASE a.source WHEN 'database' THEN '{"source": "database"}' ELSE '{}' END::jsonb)::text
$$;

-- Seals up to at_most waiting rows, oldest first, and returns their number. A later call seals the
-- rows of transactions that are still open. So the order of the chain differs from the order of
-- ids.
CREATE OR REPLACE FUNCTION seal_audit(at_most int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  a audit;
  last_seq bigint;
  last_hash bytea;
  sealed int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(3);
  SELECT seq, hash INTO last_seq, last_hash FROM seal ORDER BY seq DESC LIMIT 1;
  last_seq := coalesce(last_seq, 0);
  last_hash := coalesce(last_hash, decode(repeat('00', 32), 'hex'));
  FOR a IN SELECT x.* FROM audit_unsealed u JOIN audit x ON x.id = u.audit_id ORDER BY u.audit_id
    LIMIT at_most LOOP
    last_seq := last_seq + 1;
    INSERT INTO seal (seq, audit_id, prev_hash, hash)
    VALUES (last_seq, a.id, last_hash, sha256(last_hash || convert_to(audit_content(a), 'UTF8')))
    RETURNING hash INTO last_hash;
    DELETE FROM audit_unsealed u WHERE u.audit_id = a.id;
    sealed := sealed + 1;
  END LOOP;
  RETURN sealed;
END $$;

-- The first seq at which the chain is broken. NULL: it is intact.
CREATE OR REPLACE FUNCTION audit_broken_at() RETURNS bigint LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT min(c.seq) FROM (
    SELECT s.seq, s.hash, s.prev_hash, a,
           lag(s.hash, 1, decode(repeat('00', 32), 'hex')) OVER (ORDER BY s.seq) AS before,
           row_number() OVER (ORDER BY s.seq) AS place
    FROM seal s JOIN audit a ON a.id = s.audit_id) c
  WHERE c.seq <> c.place OR c.prev_hash <> c.before
     OR c.hash <> sha256(c.prev_hash || convert_to(audit_content(c.a), 'UTF8'))
$$;

-- Whether a row still has the values in its audit row. Columns added by later versions are not in
-- the audit row.
CREATE OR REPLACE FUNCTION audit_agrees(of_action text, of_subject text, image jsonb)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM audit a WHERE a.subject = of_subject AND a.action = of_action
    AND a.source = 'database'
                   AND a.detail = (SELECT jsonb_object_agg(k, image -> k)
                     FROM jsonb_object_keys(a.detail) k))
$$;

-- Whether the last change of a row is sealed after this seq, or not yet. An export up to this seq
-- omits such rows.
CREATE OR REPLACE FUNCTION audited_after(of_action text, of_subject text, seq bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM audit a LEFT JOIN seal s ON s.audit_id = a.id
                 WHERE a.subject = of_subject AND a.action = of_action AND a.source = 'database'
                   AND (s.seq IS NULL OR s.seq > audited_after.seq))
$$;
