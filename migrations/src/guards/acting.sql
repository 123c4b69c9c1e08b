-- The person for whom a transaction acts.
--
-- A connection with the server's role proves nothing about people. To act for a person, a
-- transaction presents that person's session or token, of which the database stores only the hash.
-- Nothing else writes the table `acting`. So a stolen server role can act only for people whose
-- credential it has. Connections of the owner are exempt.
--
-- A session without its second factor is recorded as pending. Its transaction acts for no one. It
-- may only verify or enrol a factor (second_factor.sql), or set the password of a link. The same
-- applies to a session that began with an admin's link, until it has a password.

-- Acts for the person of a session or API token from here on. Returns the person, or NULL if the
-- credential is invalid. The person and the credential are locked until the transaction ends. A
-- transaction that also changes people must lock the person first, to prevent deadlocks.
CREATE OR REPLACE FUNCTION act_as(credential text) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  presented bytea := sha256(convert_to(credential, 'UTF8'));
  holder record;
BEGIN
  SELECT s.person_id, NULL::uuid AS token_id, s.id AS session_id,
    'admin' = ANY (p.permissions) AS admin,
    lacks_factor(s.person_id, s.factor_at) AS pending, s.link_by IS NOT NULL AS needs_password
      INTO holder
  FROM session s JOIN person p ON p.id = s.person_id
  WHERE s.token_hash = presented AND s.idle_expires_at > now() AND s.expires_at > now()
    AND NOT p.disabled
  FOR SHARE OF p, s;
  IF NOT FOUND THEN
    SELECT t.person_id, t.id AS token_id, NULL::uuid AS session_id,
      p.kind = 'service' AND 'admin' = ANY (p.permissions) AND 'admin' = ANY (t.scopes) AS admin,
      false AS pending, false AS needs_password INTO holder
    FROM token t JOIN person p ON p.id = t.person_id
    WHERE t.hash = presented AND t.kind = 'api' AND t.expires_at > now() AND t.revoked_at IS NULL
      AND NOT p.disabled
    FOR SHARE OF p, t;
  END IF;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- Every other visible row belongs to a finished transaction. Rows that another transaction is
  -- deleting are skipped. An older snapshot would still show rows that are already deleted.
  IF current_setting('transaction_isolation') = 'read committed' THEN
    DELETE FROM acting a WHERE a.xid IN (
      SELECT o.xid FROM acting o WHERE o.xid <> pg_current_xact_id() LIMIT 100
        FOR UPDATE SKIP LOCKED);
  END IF;
  IF acting_holder() <> holder.person_id THEN
    RAISE EXCEPTION 'The transaction already acts for another person'
      USING ERRCODE = 'GY035', HINT = 'Begin another transaction.';
  END IF;
  INSERT INTO acting (xid, person_id, token_id, session_id, admin, pending, needs_password)
  VALUES (pg_current_xact_id(), holder.person_id, holder.token_id, holder.session_id, holder.admin,
    holder.pending, holder.needs_password)
  ON CONFLICT (xid) DO UPDATE SET token_id = excluded.token_id, session_id = excluded.session_id,
    admin = excluded.admin,
    pending = excluded.pending, needs_password = excluded.needs_password;
  RETURN holder.person_id;
END $$;

-- A row from a backup could have the id of a future transaction.
DELETE FROM acting;

-- The person for whom this transaction acts. NULL: Gantry itself.
CREATE OR REPLACE FUNCTION acting_person() RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.person_id FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned() AND NOT a.pending
    AND NOT a.needs_password
$$;

-- For the audit: the person of the presented credential, even if the session lacks its factor.
CREATE OR REPLACE FUNCTION acting_holder() RETURNS uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.person_id FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned()
$$;

-- Whether the person presented a session, not a token.
CREATE OR REPLACE FUNCTION acting_in_session() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM acting a
                 WHERE a.xid = pg_current_xact_id_if_assigned() AND a.session_id IS NOT NULL
                   AND NOT a.pending AND NOT a.needs_password)
$$;

-- Whether the person presented a session, or a token with the scope operator.
CREATE OR REPLACE FUNCTION acting_as_operator() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM acting a LEFT JOIN token t ON t.id = a.token_id
                 WHERE a.xid = pg_current_xact_id_if_assigned() AND NOT a.pending
                   AND NOT a.needs_password
                   AND (a.session_id IS NOT NULL OR 'operator' = ANY (t.scopes)))
$$;

-- Whether the presented credential lets the person operate in a deployment. The worker's role may
-- call only acting_person(), so that check comes first.
CREATE OR REPLACE FUNCTION acting_operates(place uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF acting_person() IS NULL THEN
    RETURN false;
  END IF;
  RETURN acting_as_operator() AND EXISTS (
    SELECT FROM person p WHERE p.id = acting_person()
      AND has_permission_in(p, ARRAY['operator'], ARRAY[place]));
END $$;

-- The deployment in which a person needs the operator permission to change a proposal.
CREATE OR REPLACE FUNCTION proposal_place(proposal bigint) RETURNS uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce((SELECT n.deployment_id FROM node n
    WHERE n.id = p.node_id AND n.removed_in IS NULL), p.deployment_id)
  FROM proposal p WHERE p.id = proposal_place.proposal
$$;

-- Whether the person is an admin and presented a session. Admins who give up the permission in this
-- transaction complete it as admins.
CREATE OR REPLACE FUNCTION acting_admin() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned() AND a.admin
    AND a.session_id IS NOT NULL AND NOT a.pending AND NOT a.needs_password)
$$;

-- Whether this transaction may change the account, its permissions and its links. An admin in a
-- session may. So may a token of a service account that is an admin, but only if the account has no
-- permission beyond those of the token. The permissions reviewer and admin are always beyond it.
-- So a service account gives no more than it has, and no one decides about changes because of it.
CREATE OR REPLACE FUNCTION acting_manages(who person) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  service person;
  operates boolean;
BEGIN
  IF acting_admin() THEN
    RETURN true;
  END IF;
  SELECT p.* INTO service FROM acting a JOIN person p ON p.id = a.person_id
    WHERE a.xid = pg_current_xact_id_if_assigned() AND a.admin AND a.token_id IS NOT NULL;
  IF NOT FOUND OR who.id = service.id THEN
    RETURN false;
  END IF;
  operates := acting_as_operator();
  RETURN who.permissions <@ CASE
      WHEN operates AND 'operator' = ANY (service.permissions) THEN ARRAY['viewer', 'operator']
      ELSE ARRAY['viewer'] END
    AND NOT EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = who.id
      AND g.permission <> 'viewer'
      AND NOT (g.permission = 'operator' AND operates
        AND has_permission_in(service, ARRAY['operator'], ARRAY[g.deployment_id])));
END $$;

-- Whether this is the owner's connection, or a function that runs as the owner.
CREATE OR REPLACE FUNCTION is_owner() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT pg_has_role(current_user, c.relowner, 'USAGE') FROM pg_class c
    WHERE c.oid = 'public.acting'::regclass
$$;

-- Rows in a person's name -------------------------------------------------------------------------
-- These triggers sort after the others of their table, whose messages are more specific.

-- Arguments: the column with the person, and the required credential:
-- - session
-- - operator: a session, or a token with the scope operator
-- - operator in its deployment: the same, and the permission operator in the deployment of the
--   proposal
-- - operator everywhere: the same, and the permission operator everywhere
-- - enrol: a session. It may lack its second factor if the person has none.
CREATE OR REPLACE FUNCTION guard_with_credential() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF is_owner() THEN
    RETURN NEW;
  END IF;
  IF TG_ARGV[1] = 'enrol' AND (to_jsonb(NEW) ->> TG_ARGV[0])::uuid = acting_pending_person() THEN
    RETURN NEW;
  END IF;
  IF acting_pending() THEN
    RAISE EXCEPTION 'Cannot write %.%: the session lacks its second factor', TG_TABLE_NAME,
      TG_ARGV[0]
      USING ERRCODE = 'GY070', HINT = 'Enter a code from the authenticator app, or use a passkey.';
  END IF;
  IF (to_jsonb(NEW) ->> TG_ARGV[0])::uuid IS DISTINCT FROM acting_person() THEN
    RAISE EXCEPTION 'Cannot write %.%: the transaction does not act for that person', TG_TABLE_NAME,
      TG_ARGV[0]
      USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
  END IF;
  IF (CASE WHEN TG_ARGV[1] LIKE 'operator%' THEN NOT acting_as_operator()
    ELSE NOT acting_in_session() END) THEN
    RAISE EXCEPTION 'Cannot write %.% with this token', TG_TABLE_NAME, TG_ARGV[0]
      USING ERRCODE = 'GY036', HINT = CASE WHEN TG_ARGV[1] LIKE 'operator%'
        THEN 'Use a token with the operator scope.'
                                      ELSE 'Sign in with a browser.' END;
  END IF;
  IF TG_ARGV[1] LIKE 'operator %' AND NOT acting_operates(
      CASE WHEN TG_ARGV[1] LIKE '%deployment' THEN proposal_place(
        coalesce(to_jsonb(NEW) ->> 'proposal_id', to_jsonb(NEW) ->> 'id')::bigint) END) THEN
    RAISE EXCEPTION 'Cannot write %.%: the person lacks the operator permission', TG_TABLE_NAME,
      TG_ARGV[0]
      USING ERRCODE = 'GY019', HINT = 'This requires the operator permission in the deployment.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_with_credential BEFORE INSERT ON verdict FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential('person_id', 'session');
CREATE TRIGGER guard_with_credential BEFORE INSERT OR UPDATE ON review_view FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential('person_id', 'session');
CREATE TRIGGER guard_with_credential BEFORE INSERT OR UPDATE ON viewed_change FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential('person_id', 'session');
CREATE TRIGGER guard_with_credential BEFORE UPDATE OF dismissed_at ON access_change FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential('person_id', 'session');
CREATE TRIGGER guard_with_credential BEFORE INSERT ON comment FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential('person_id', 'operator');
CREATE TRIGGER guard_with_credential_resolved BEFORE UPDATE ON comment FOR EACH ROW
  WHEN (NEW.resolved_by IS NOT NULL)
    EXECUTE FUNCTION guard_with_credential('resolved_by', 'operator');
CREATE TRIGGER guard_with_credential BEFORE INSERT ON blueprint FOR EACH ROW
  WHEN (NEW.kind <> 'genesis') EXECUTE FUNCTION guard_with_credential('committed_by', 'operator');
-- Checked at commit, because these rows are written before the person's row is locked.
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON proposal
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW
    EXECUTE FUNCTION guard_with_credential('created_by', 'operator in its deployment');
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON edit DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_with_credential('actor', 'operator in its deployment');
CREATE CONSTRAINT TRIGGER guard_with_credential_insert AFTER INSERT ON node
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.created_by IS NOT NULL)
    EXECUTE FUNCTION guard_with_credential('created_by', 'operator everywhere');
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON policy DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.created_by IS NOT NULL)
    EXECUTE FUNCTION guard_with_credential('created_by', 'operator');
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON import_report
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.by IS NOT NULL)
    EXECUTE FUNCTION guard_with_credential('by', 'operator everywhere');
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON barclamp
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.imported_by IS NOT NULL)
    EXECUTE FUNCTION guard_with_credential('imported_by', 'operator everywhere');

-- The author of a restoring edit records what the restore leaves out.
CREATE OR REPLACE FUNCTION guard_with_credential_not_restored() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT is_owner() AND NOT EXISTS (
    SELECT FROM edit e WHERE e.proposal_id = NEW.proposal_id AND e.seq = NEW.first_edit
      AND e.actor = acting_person()) THEN
    RAISE EXCEPTION
      'Cannot write not_restored: the transaction does not act for the author of edit % of proposal %',
      NEW.first_edit, NEW.proposal_id
      USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON not_restored
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_with_credential_not_restored();

-- A person who undoes, redoes or drops an edit becomes its author. They must be signed in and
-- cannot add another person.
CREATE OR REPLACE FUNCTION guard_with_credential_touched() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF is_owner() THEN
    RETURN NULL;
  END IF;
  IF acting_person() IS NULL OR NOT NEW.touched_by <@ (OLD.touched_by || acting_person())
     OR (NEW.undone <> OLD.undone AND acting_person() <> ALL (NEW.touched_by)) THEN
    RAISE EXCEPTION
      'Cannot change edit % of proposal %: the transaction does not act for that person',
      NEW.seq, NEW.proposal_id
      USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
  END IF;
  IF NOT acting_as_operator() THEN
    RAISE EXCEPTION 'Cannot change edits with this token'
      USING ERRCODE = 'GY036', HINT = 'Use a token with the operator scope.';
  END IF;
  IF NOT acting_operates(proposal_place(NEW.proposal_id)) THEN
    RAISE EXCEPTION 'Cannot change edits of proposal %: the person lacks the operator permission',
      NEW.proposal_id
      USING ERRCODE = 'GY019', HINT = 'This requires the operator permission in the deployment.';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_with_credential_touched AFTER UPDATE ON edit
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_with_credential_touched();

-- A review needs the credential of its submitter. Without it, a review may only replace the
-- submitter's newest one after its base has changed (guard_replan), if no edit changed since.
-- Documents, effects, risks, title, policy and authors must be equal, and the base no smaller
-- (control::reviews::replan).
CREATE OR REPLACE FUNCTION guard_with_credential_review() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF is_owner() OR NEW.created_by = acting_person()
      AND acting_operates(proposal_place(NEW.proposal_id)) THEN
    RETURN NULL;
  END IF;
  -- guard_audit_part rejects new parts of a review that is in the audit, even if this check fires
  -- early.
  IF EXISTS (SELECT FROM replan r JOIN review b ON b.id = r.before_id WHERE r.after_id = NEW.id
     AND replaces(NEW, b))
     AND EXISTS (SELECT FROM audit a WHERE a.subject = NEW.id::text
       AND a.action = 'review.insert' AND a.source = 'database') THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION
    'Cannot submit proposal %: the transaction does not act for its submitter, or the submitter '
    'lacks the operator permission',
    NEW.proposal_id
    USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
END $$;
CREATE OR REPLACE FUNCTION replaces(s review, b review) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT (s.proposal_id, s.version, s.epoch, s.created_by, s.title, s.change_hash, s.effects_hash,
    s.risk, s.summary)
       = (b.proposal_id, b.version + 1, b.epoch, b.created_by, b.title, b.change_hash,
         b.effects_hash, b.risk, b.summary)
    AND s.new_policy_hash IS NOT DISTINCT FROM b.new_policy_hash
    -- Edits and reviews hold the proposal's lock, so the ids of these audit rows have their
    -- order.
    AND NOT EXISTS (
      SELECT FROM edit e JOIN audit a ON a.subject = e.proposal_id || ' ' || e.seq
        AND a.action IN ('edit.insert', 'edit.update')
      WHERE e.proposal_id = s.proposal_id AND a.source = 'database' AND a.id > coalesce((
        SELECT max(x.id) FROM audit x WHERE x.subject = b.id::text
          AND x.action = 'review.insert' AND x.source = 'database'), 0))
    AND (SELECT array_agg(x.person_id ORDER BY x.person_id) FROM review_author x
      WHERE x.review_id = s.id)
      = (SELECT array_agg(x.person_id ORDER BY x.person_id) FROM review_author x
        WHERE x.review_id = b.id)
    AND NOT EXISTS (
      SELECT FROM (SELECT * FROM review_document x WHERE x.review_id = s.id) x
      FULL JOIN (SELECT * FROM review_document x WHERE x.review_id = b.id) y
        USING (kind, id)
      WHERE (x.review_id, x.old_hash, x.new_hash) IS DISTINCT FROM (s.id, y.old_hash,
        y.new_hash) OR y.review_id IS NULL)
    AND NOT EXISTS (SELECT FROM review_base x JOIN deployment d ON d.id = x.deployment_id
      AND d.removed_in IS NULL
                    WHERE x.review_id = b.id AND NOT EXISTS (
                      SELECT FROM review_base y WHERE y.review_id = s.id
                        AND y.deployment_id = x.deployment_id))
$$;
CREATE CONSTRAINT TRIGGER guard_with_credential AFTER INSERT ON review
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_with_credential_review();

-- Without a person, only a replan raises the version of a proposal. So verdicts end only with an
-- action of a person, or with a change of their base (guard_replan).
CREATE OR REPLACE FUNCTION guard_with_credential_proposal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  -- guard_proposal requires the commit, and guard_blueprint the permission of the committer.
  IF is_owner() OR acting_as_operator()
      AND (NEW.state = 'committed' OR acting_operates(proposal_place(NEW.id))) THEN
    RETURN NULL;
  END IF;
  IF (NEW.title, NEW.state) = (OLD.title, OLD.state) AND EXISTS (
    SELECT FROM replan r WHERE r.proposal_id = NEW.id AND r.version = NEW.version) THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION
    'Cannot change proposal %: the transaction does not act for an operator of its deployment',
    NEW.id
    USING ERRCODE = 'GY035', HINT = 'Sign in, or use a token with the operator scope.';
END $$;
CREATE CONSTRAINT TRIGGER guard_with_credential_change AFTER UPDATE OF state, title, version
  ON proposal DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN ((NEW.state, NEW.title, NEW.version) IS DISTINCT FROM (OLD.state, OLD.title, OLD.version))
  EXECUTE FUNCTION guard_with_credential_proposal();

-- Hold, maintenance and priority need an operator of the deployment, a drain an operator
-- everywhere. Priority names no person.
CREATE OR REPLACE FUNCTION guard_with_credential_hold() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  who person;
  named uuid := (to_jsonb(NEW) ->> CASE TG_TABLE_NAME WHEN 'deployment' THEN 'on_hold_by'
    WHEN 'worker' THEN 'drain_by' ELSE 'unavailable_by' END)::uuid;
  place uuid := CASE TG_TABLE_NAME WHEN 'deployment' THEN NEW.id
    ELSE (to_jsonb(NEW) ->> 'deployment_id')::uuid END;
BEGIN
  IF is_owner() THEN
    RETURN NEW;
  END IF;
  SELECT * INTO who FROM person WHERE id = acting_person();
  IF NOT FOUND OR TG_NAME <> 'guard_with_credential_priority' AND named <> who.id THEN
    RAISE EXCEPTION
      'Cannot change hold, maintenance, priority or drain of % %: the transaction does not act for '
      'that person', TG_TABLE_NAME, NEW.id
      USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
  END IF;
  IF NOT acting_operates(place) THEN
    RAISE EXCEPTION 'Account % may not change hold, maintenance, priority or drain of % %',
      who.name, TG_TABLE_NAME, NEW.id
      USING ERRCODE = 'GY019', HINT = CASE TG_TABLE_NAME
        WHEN 'worker' THEN 'This requires the operator permission for all deployments.'
        ELSE 'This requires the operator permission in the deployment.' END;
  END IF;
  RETURN NEW;
END $$;
-- The commit that removes a deployment ends its hold without an operator.
CREATE TRIGGER guard_with_credential BEFORE UPDATE OF on_hold_by, on_hold_since, on_hold_reason
  ON deployment FOR EACH ROW
  WHEN (NEW.removed_in IS NULL
    AND (NEW.on_hold_by, NEW.on_hold_since, NEW.on_hold_reason)
      IS DISTINCT FROM (OLD.on_hold_by, OLD.on_hold_since, OLD.on_hold_reason))
  EXECUTE FUNCTION guard_with_credential_hold();
CREATE TRIGGER guard_with_credential_priority BEFORE UPDATE OF priority ON deployment FOR EACH ROW
  WHEN (NEW.removed_in IS NULL AND NEW.priority <> OLD.priority)
    EXECUTE FUNCTION guard_with_credential_hold();
CREATE TRIGGER guard_with_credential BEFORE UPDATE OF available, unavailable_by, unavailable_at,
  unavailable_reason ON node FOR EACH ROW
  WHEN ((NEW.available, NEW.unavailable_by, NEW.unavailable_at, NEW.unavailable_reason)
        IS DISTINCT FROM (OLD.available, OLD.unavailable_by, OLD.unavailable_at,
          OLD.unavailable_reason))
  EXECUTE FUNCTION guard_with_credential_hold();
CREATE TRIGGER guard_with_credential BEFORE UPDATE OF drain_by, drain_since, drain_reason ON worker
  FOR EACH ROW
  WHEN ((NEW.drain_by, NEW.drain_since, NEW.drain_reason)
        IS DISTINCT FROM (OLD.drain_by, OLD.drain_since, OLD.drain_reason))
  EXECUTE FUNCTION guard_with_credential_hold();

-- People and credentials --------------------------------------------------------------------------

-- Only admins add people and change their permissions. A service account must be able to manage the
-- account before and after the change.
CREATE OR REPLACE FUNCTION guard_with_admin() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF is_owner() OR acting_manages(NEW) AND (TG_OP = 'INSERT' OR acting_manages(OLD)) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'Cannot change table person: the transaction does not act for an admin, or acts '
    'for a service account that lacks a permission of the account'
    USING ERRCODE = 'GY037', HINT = 'Sign in as an admin.';
END $$;
CREATE TRIGGER guard_with_admin BEFORE INSERT OR UPDATE ON person FOR EACH ROW
  EXECUTE FUNCTION guard_with_admin();

CREATE OR REPLACE FUNCTION guard_grant_with_admin() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF is_owner() OR acting_manages((SELECT p FROM person p
      WHERE p.id = CASE TG_OP WHEN 'DELETE' THEN OLD.person_id ELSE NEW.person_id END)) THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  RAISE EXCEPTION 'Cannot change table scoped_grant: the transaction does not act for an admin, or '
    'acts for a service account that lacks a permission of the account'
    USING ERRCODE = 'GY037', HINT = 'Sign in as an admin.';
END $$;
CREATE TRIGGER guard_with_admin BEFORE INSERT OR DELETE ON scoped_grant FOR EACH ROW
  EXECUTE FUNCTION guard_grant_with_admin();
-- After the insertion, the account has the new grant.
CREATE TRIGGER guard_with_admin_after AFTER INSERT ON scoped_grant FOR EACH ROW
  EXECUTE FUNCTION guard_grant_with_admin();

-- People create their own API tokens. Admins create those of service accounts, and all sign-in
-- links. A service account creates links of the accounts that it may manage, and no tokens.
CREATE OR REPLACE FUNCTION guard_with_credential_token() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF is_owner() THEN
    RETURN NEW;
  END IF;
  IF NEW.kind IN ('api', 'node') AND (NEW.created_by = acting_person()) IS NOT TRUE THEN
    RAISE EXCEPTION 'Cannot create a token: the transaction does not act for its creator'
      USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
  END IF;
  IF NEW.kind = 'node' AND NOT (acting_in_session() AND EXISTS (
       SELECT FROM person p JOIN node n ON n.id = NEW.node_id
       WHERE p.id = NEW.created_by
         AND has_permission_in(p, ARRAY['operator', 'admin'], ARRAY[n.deployment_id]))) THEN
    RAISE EXCEPTION
      'Cannot create a token for node %: this requires a session of an admin or an operator of '
      'its deployment',
      NEW.node_id USING ERRCODE = 'GY036', HINT = 'Sign in with a browser.';
  END IF;
  IF NEW.kind = 'api' AND NOT acting_in_session() THEN
    RAISE EXCEPTION 'Cannot create a token with a token' USING ERRCODE = 'GY036',
      HINT = 'Sign in with a browser.';
  END IF;
  IF NOT acting_admin() AND NEW.kind <> 'node'
     AND (NEW.kind <> 'api' OR NEW.person_id <> NEW.created_by)
     AND NOT (NEW.kind = 'sign_in'
       AND acting_manages((SELECT p FROM person p WHERE p.id = NEW.person_id))) THEN
    RAISE EXCEPTION
      'Cannot create a token of kind % for another person: the transaction does not act for an '
      'admin', NEW.kind
      USING ERRCODE = 'GY037', HINT = 'Sign in as an admin.';
  END IF;
  IF NEW.kind = 'api' AND NEW.person_id <> NEW.created_by
     AND NOT EXISTS (SELECT FROM person p WHERE p.id = NEW.person_id AND p.kind = 'service') THEN
    RAISE EXCEPTION 'Cannot create a token for another person' USING ERRCODE = 'GY037',
      HINT = 'Each person creates their own tokens.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_with_credential BEFORE INSERT ON token FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential_token();

-- Only the functions below begin sessions. A request extends the idle limit only, up to 12 hours,
-- and never revives an expired session.
CREATE OR REPLACE FUNCTION guard_session() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT is_owner() AND (NEW.expires_at > OLD.expires_at
     OR NEW.idle_expires_at > least(NEW.expires_at, now() + interval '12 hours')
                         OR least(OLD.idle_expires_at, OLD.expires_at) <= now()) THEN
    RAISE EXCEPTION 'Cannot extend the session' USING ERRCODE = 'GY038', HINT = 'Sign in again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_session BEFORE UPDATE ON session FOR EACH ROW EXECUTE FUNCTION guard_session();

-- Uses a one-time link and begins a session. Returns the person and the steps that the link
-- requires. No row: the link is invalid.
CREATE OR REPLACE FUNCTION begin_session_by_link(
  link text, session_hash bytea, idle interval, absolute interval, agent text, client_address text)
RETURNS TABLE (who uuid, asks text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  UPDATE token t SET used_at = now() FROM person p
  WHERE t.hash = sha256(convert_to(link, 'UTF8')) AND t.kind = 'sign_in' AND t.used_at IS NULL
    AND t.revoked_at IS NULL
    AND t.expires_at > now() AND p.id = t.person_id AND NOT p.disabled AND p.kind = 'human'
  RETURNING p.id, t.scopes INTO who, asks;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at, user_agent, address,
    by_link)
  VALUES (session_hash, who, now() + least(idle, absolute, interval '12 hours'),
    now() + least(absolute, interval '7 days'),
          agent, client_address, true);
  RETURN NEXT;
END $$;

-- Whether this is the Argon2id output of the person's password.
CREATE OR REPLACE FUNCTION proves_password(who uuid, proof bytea) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce(sha256(proof) = (SELECT decode(split_part(a.password_hash, '$', 6) || '=',
    'base64') FROM account a WHERE a.person_id = who), false)
$$;

-- Begins a session if the password matches. False: it does not match.
CREATE OR REPLACE FUNCTION begin_session_by_password(
  who uuid, proof bytea, session_hash bytea, idle interval, absolute interval, agent text,
    client_address text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  -- The lock keeps the account enabled and its password unchanged until the session exists.
  PERFORM FROM person p WHERE p.id = who AND NOT p.disabled AND p.kind = 'human' FOR SHARE;
  IF NOT FOUND OR NOT proves_password(who, proof) THEN
    RETURN false;
  END IF;
  INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at, user_agent, address,
    by_link)
  VALUES (session_hash, who, now() + least(idle, absolute, interval '12 hours'),
    now() + least(absolute, interval '7 days'),
          agent, client_address, false);
  RETURN true;
END $$;

-- Sets the password of the acting person and replaces the token of their session. Requires a
-- session begun by a link within the last hour, or the Argon2id output of the old password. False:
-- `before` is not the stored row (NULL: no password yet).
CREATE OR REPLACE FUNCTION set_password(before text, after text, old_proof bytea,
  session_hash bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  a acting;
BEGIN
  SELECT * INTO a FROM acting WHERE xid = pg_current_xact_id_if_assigned()
    AND session_id IS NOT NULL;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'Cannot set a password without a session' USING ERRCODE = 'GY036',
      HINT = 'Sign in with a browser.';
  END IF;
  PERFORM FROM person WHERE id = a.person_id FOR NO KEY UPDATE;
  IF (SELECT x.password_hash FROM account x WHERE x.person_id = a.person_id) IS DISTINCT FROM before
    THEN
    RETURN false;
  END IF;
  IF EXISTS (SELECT FROM session s WHERE s.id = a.session_id AND s.by_link
     AND s.fresh_at > now() - interval '1 hour') THEN
    -- The link proves as much as the old password.
  ELSIF a.pending THEN
    RAISE EXCEPTION 'Cannot set the password: the session lacks its second factor'
      USING ERRCODE = 'GY070', HINT = 'Enter a code from the authenticator app, or use a passkey.';
  ELSIF NOT proves_password(a.person_id, old_proof) THEN
    RAISE EXCEPTION 'Cannot set the password: the old password is wrong or missing'
      USING ERRCODE = 'GY037', HINT = 'Ask an admin for a new sign-in link.';
  END IF;
  INSERT INTO account (person_id, password_hash) VALUES (a.person_id, after)
  ON CONFLICT (person_id) DO UPDATE SET password_hash = excluded.password_hash, changed_at = now();
  UPDATE session SET token_hash = session_hash, fresh_at = now(), by_link = false
    WHERE id = a.session_id;
  UPDATE acting SET needs_password = false WHERE xid = a.xid;
  RETURN true;
END $$;
