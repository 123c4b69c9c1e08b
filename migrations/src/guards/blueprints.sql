-- Blueprints and the head ------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION guard_blueprint_change(new_blueprint blueprint, h head) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  s review;
  p proposal;
  parent_blueprint blueprint;
  named text;
  others text;
  approving int;
  unsigned text;
  demanded boolean;
  threads int;
  places uuid[];
BEGIN
  SELECT * INTO s FROM review WHERE id = new_blueprint.review_id;
  SELECT * INTO p FROM proposal WHERE id = s.proposal_id FOR UPDATE;
  SELECT * INTO parent_blueprint FROM blueprint WHERE number = new_blueprint.parent;
  IF s.epoch <> h.epoch THEN
    RAISE EXCEPTION 'Review % is from epoch %, but the current epoch is %', s.id, s.epoch, h.epoch
      USING ERRCODE = 'GY008',
        HINT = 'A backup was restored since then. Submit the proposal again.';
  END IF;
  IF p.state <> 'open' OR p.version <> s.version THEN
    RAISE EXCEPTION 'Proposal % is % at version %, but review % is of version %', p.id, p.state,
      p.version, s.id, s.version
      USING ERRCODE = 'GY005', HINT = 'Review and commit the newest version.';
  END IF;
  IF s.policy_number <> h.policy_number THEN
    RAISE EXCEPTION 'Review % was submitted under policy %, but policy % is in force', s.id,
      s.policy_number, h.policy_number
      USING ERRCODE = 'GY006', HINT = 'Submit the proposal again.';
  END IF;
  IF new_blueprint.enabled <> parent_blueprint.enabled THEN
    RAISE EXCEPTION 'A change cannot turn execution on or off' USING ERRCODE = 'GY003';
  END IF;
  -- A plan without changes has not been checked either.
  IF s.new_policy_hash IS NULL AND NOT EXISTS (SELECT FROM review_document d WHERE d.review_id = s.id) THEN
    RAISE EXCEPTION 'Review % changes nothing', s.id USING ERRCODE = 'GY009',
      HINT = 'Submit the proposal again.';
  END IF;

  -- Everyone who edited or submitted the committed proposal is an author, listed or not.
  SELECT string_agg(DISTINCT a.name, ', ') INTO named FROM person a
  WHERE (a.id = s.created_by OR EXISTS (
      SELECT FROM edit e WHERE e.proposal_id = p.id AND (e.actor = a.id AND NOT e.undone OR a.id = ANY (e.touched_by))))
    AND NOT EXISTS (SELECT FROM review_author x WHERE x.review_id = s.id AND x.person_id = a.id);
  IF named IS NOT NULL OR NOT EXISTS (SELECT FROM review_author x WHERE x.review_id = s.id) THEN
    RAISE EXCEPTION 'Review % does not list these authors: %', s.id, coalesce(named, 'all')
      USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
  END IF;

  -- Nothing in the base has changed that the review reads. The base contains its deployment, the
  -- ancestors and every deployment that it writes.
  SELECT string_agg(m.name, ', ' ORDER BY m.name) INTO named FROM moved_base(s.id) m;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Deployments that review % is based on have changed since: %', s.id, named
      USING ERRCODE = 'GY004', HINT = 'Submit the proposal again to plan it on the current target.';
  END IF;
  SELECT string_agg(d.name, ', ' ORDER BY d.name) INTO named
  FROM (SELECT w.deployment_id FROM written_by(s.id) w
        UNION SELECT l.deployment_id FROM review_lineage(s.id) l) x
  JOIN deployment d ON d.id = x.deployment_id
  WHERE NOT EXISTS (SELECT FROM review_base b WHERE b.review_id = s.id AND b.deployment_id = d.id);
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Review % changes or reads deployments outside its base: %', s.id, named
      USING ERRCODE = 'GY009';
  END IF;

  -- The documents that the review replaces are unchanged since planning, and the new root differs
  -- from its parent in exactly these.
  IF NOT replaces_as_listed(parent_blueprint.root, new_blueprint.root, s.id) THEN
    WITH was AS MATERIALIZED (SELECT * FROM root_documents(parent_blueprint.root)),
         now_is AS MATERIALIZED (SELECT * FROM root_documents(new_blueprint.root)),
         listed AS (SELECT d.kind, d.id, d.old_hash, d.new_hash FROM review_document d WHERE d.review_id = s.id),
         changed AS (SELECT kind, id, was.hash AS old_hash, now_is.hash AS new_hash
                     FROM was FULL JOIN now_is USING (kind, id) WHERE was.hash IS DISTINCT FROM now_is.hash)
    SELECT (SELECT string_agg(x.kind || ' ' || x.id, ', ') FROM (
              SELECT kind, id FROM listed LEFT JOIN was USING (kind, id) WHERE was.hash IS DISTINCT FROM listed.old_hash LIMIT 5) x),
           (SELECT string_agg(x.kind || ' ' || x.id, ', ') FROM (
              (TABLE changed EXCEPT TABLE listed) UNION (TABLE listed EXCEPT TABLE changed) LIMIT 5) x)
    INTO named, others;
    IF named IS NOT NULL THEN
      RAISE EXCEPTION 'Documents that review % replaces have changed since: %', s.id, named
        USING ERRCODE = 'GY004',
          HINT = 'Submit the proposal again to plan it on the current target.';
    END IF;
    IF others IS NOT NULL THEN
      RAISE EXCEPTION
        'The new root differs from blueprint % in other documents than review % lists: %',
        new_blueprint.parent, s.id, others USING ERRCODE = 'GY010';
    END IF;
    PERFORM check_canonical(new_blueprint.root);
  END IF;

  -- A commit does not end a hold.
  SELECT string_agg(format('%s leaves %s (on hold by %s)', l.name, l.on_hold, l.held_by), ', '),
         string_agg(DISTINCT l.on_hold, ', ')
  INTO named, others FROM left_holds(s.id) l;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Review % moves deployments out of a hold: %', s.id, named
      USING ERRCODE = 'GY027',
        HINT = format('Ask an operator to end the hold of %s first, or wait until it ends.', others);
  END IF;

  -- The risks determine the number of approvals, so the review must list all of them.
  IF NOT s.risk @> ARRAY['removal', 'rerun', 'move', 'secret', 'connection'] THEN
    SELECT string_agg(r.risk, ', ') INTO named FROM risks_of_documents(s.id) r WHERE r.risk <> ALL (s.risk);
    IF named IS NOT NULL THEN
      RAISE EXCEPTION 'Review % does not list these risks: %', s.id, named
        USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
    END IF;
  END IF;

  -- The latest verdict of each person who may review now. The row locks keep these accounts enabled
  -- until the commit.
  PERFORM FROM person WHERE id IN (SELECT person_id FROM verdict WHERE review_id = s.id) ORDER BY id FOR SHARE;
  places := places_of(s.id);
  demanded := EXISTS (SELECT FROM signature_demand g WHERE g.review_id = s.id);
  -- A deployment may have got a new parent since the review was submitted.
  IF NOT demanded AND requires_signature(s.id) THEN
    RAISE EXCEPTION
      'The approvals of review % must now be signed, but it was submitted before that rule '
      'applied', s.id
      USING ERRCODE = 'GY060', HINT = 'Submit the proposal again.';
  END IF;
  WITH last AS (
    SELECT DISTINCT ON (v.person_id) v.id, v.person_id, v.kind, v.at FROM verdict v JOIN person w ON w.id = v.person_id
    WHERE v.review_id = s.id AND v.id > w.verdicts_void_to ORDER BY v.person_id, v.id DESC),
  counted AS (
    SELECT l.kind, who.name, l.kind = 'approve' AND approval_barred(who.id, s.id, l.at) AS barred,
           demanded AND l.kind = 'approve' AND NOT is_signed(l.id) AS unsigned
    FROM last l JOIN person who ON who.id = l.person_id
    WHERE may_review(who, places) AND NOT EXISTS (
      SELECT FROM review_author x WHERE x.review_id = s.id AND x.person_id = l.person_id))
  SELECT count(*) FILTER (WHERE c.kind = 'approve' AND NOT c.barred AND NOT c.unsigned),
         string_agg(c.name, ', ' ORDER BY c.name) FILTER (WHERE c.kind <> 'approve'),
         string_agg(c.name, ', ' ORDER BY c.name) FILTER (WHERE c.barred),
         string_agg(c.name, ', ' ORDER BY c.name) FILTER (WHERE c.unsigned AND NOT c.barred)
  INTO approving, named, others, unsigned FROM counted c;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Objections by % block review %', named, s.id
      USING ERRCODE = 'GY007', HINT = 'Change the proposal, or ask them to approve it.';
  END IF;
  IF approving < s.approvals_needed AND others IS NOT NULL THEN
    RAISE EXCEPTION
      'Review % has % of % approvals. Approvals by % do not count, because their access or that '
      'of an author is new', s.id, approving,
      s.approvals_needed, others
      USING ERRCODE = 'GY040',
        HINT =
          'Ask another reviewer to approve it, or another admin to confirm the new access. The '
          'review shows who got access from whom.';
  END IF;
  IF approving < s.approvals_needed AND unsigned IS NOT NULL THEN
    RAISE EXCEPTION
      'Review % has % of % signed approvals. Approvals by % are not signed with a confirmed '
      'passkey', s.id, approving,
      s.approvals_needed, unsigned
      USING ERRCODE = 'GY060',
        HINT = 'Ask them to approve it again and to sign with a confirmed passkey.';
  END IF;
  IF approving < s.approvals_needed THEN
    RAISE EXCEPTION 'Review % has % of % approvals', s.id, approving, s.approvals_needed
      USING ERRCODE = 'GY007', HINT = 'Ask a reviewer who is not an author to approve it.';
  END IF;

  -- Threads belong to the proposal: a new review does not settle questions on an earlier one.
  SELECT count(*), string_agg(DISTINCT who.name, ', ') INTO threads, named
  FROM review o JOIN comment c ON c.review_id = o.id AND c.thread_id IS NULL AND c.resolved_by IS NULL
  JOIN person who ON who.id = c.person_id WHERE o.proposal_id = p.id;
  IF threads > 0 THEN
    RAISE EXCEPTION 'Proposal % has % open threads, started by %', p.id, threads, named
      USING ERRCODE = 'GY017',
        HINT =
          'Ask the people who started the threads, or a reviewer who is not an author, to resolve '
          'them.';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION guard_blueprint() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  h head;
  parent_blueprint blueprint;
BEGIN
  -- An older snapshot would miss verdicts given since.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION
      'A blueprint can only be inserted in a READ COMMITTED transaction, and this one is %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'GY003', HINT = 'Begin a READ COMMITTED transaction.';
  END IF;
  SELECT * INTO h FROM head FOR UPDATE;
  NEW.xid := pg_current_xact_id();
  NEW.committed_at := now();
  IF NEW.epoch <> h.epoch THEN
    RAISE EXCEPTION 'The blueprint is from epoch %, but the current epoch is %', NEW.epoch, h.epoch
      USING ERRCODE = 'GY008', HINT = 'A backup was restored since then. Read the head again.';
  END IF;
  IF coalesce(NEW.parent, 0) <> h.number THEN
    RAISE EXCEPTION 'Blueprint % has parent %, but the head is %', NEW.number, coalesce(NEW.parent, 0),
      h.number
      USING ERRCODE = 'GY003', HINT = 'Another blueprint was committed in the meantime. Try again.';
  END IF;
  IF NEW.kind = 'genesis' THEN
    PERFORM check_canonical(NEW.root);
    RETURN NEW;
  END IF;
  -- The committer needs the permission at this moment. The row lock keeps the account enabled until
  -- the commit.
  PERFORM FROM person WHERE id = NEW.committed_by FOR SHARE;
  IF NOT EXISTS (SELECT FROM person p WHERE p.id = NEW.committed_by AND NOT p.disabled AND CASE NEW.kind
      WHEN 'change' THEN has_permission_in(p, ARRAY['operator', 'reviewer'], places_of(NEW.review_id))
      ELSE 'operator' = ANY (p.permissions) END) THEN
    RAISE EXCEPTION 'Account % may not commit blueprint %',
      coalesce((SELECT name FROM person WHERE id = NEW.committed_by), 'unknown'), NEW.number
      USING ERRCODE = 'GY019',
        HINT =
          'An account needs the operator permission everywhere. For a change, operator or '
          'reviewer in all its deployments is enough.';
  END IF;
  SELECT * INTO parent_blueprint FROM blueprint WHERE number = NEW.parent;
  -- The rows of a change are compared once, at its end. So a transaction can commit only one
  -- change.
  IF NEW.kind = 'change' AND EXISTS (SELECT FROM blueprint t WHERE t.xid = pg_current_xact_id() AND t.epoch = h.epoch AND t.kind <> 'switch') THEN
    RAISE EXCEPTION 'A transaction can commit only one change' USING ERRCODE = 'GY003',
      HINT = 'Commit the next change in a new transaction.';
  END IF;
  IF NEW.kind = 'change' THEN
    PERFORM guard_blueprint_change(NEW, h);
    RETURN NEW;
  END IF;
  IF NEW.root <> parent_blueprint.root OR NEW.enabled = parent_blueprint.enabled THEN
    RAISE EXCEPTION 'A switch must keep the root of its parent and turn execution on or off'
      USING ERRCODE = 'GY003', HINT = 'Execution may already be in that state.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_blueprint BEFORE INSERT ON blueprint FOR EACH ROW EXECUTE FUNCTION guard_blueprint();

-- At the end of the transaction, the head has moved and every document of the new blueprint is
-- projected.
CREATE OR REPLACE FUNCTION guard_projected() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  h head;
  named text;
BEGIN
  SELECT * INTO h FROM head;
  IF h.number <> NEW.number OR h.enabled <> NEW.enabled OR h.policy_number = 0 THEN
    RAISE EXCEPTION 'Blueprint % was inserted, but the head is % (policy %)', NEW.number, h.number,
      h.policy_number
      USING ERRCODE = 'GY014';
  END IF;
  IF NEW.kind = 'switch' THEN
    RETURN NULL;
  END IF;
  IF NEW.kind = 'genesis' THEN
    SELECT string_agg(x.row_name, ', ') INTO named FROM (
      SELECT r.kind || ' ' || r.id AS row_name FROM root_documents(NEW.root) r
      LEFT JOIN deployment d ON r.kind = 'deployment' AND d.id = r.id AND d.head_no = NEW.number
      LEFT JOIN node n ON r.kind = 'node' AND n.id = r.id
      WHERE coalesce(d.doc, n.doc) IS DISTINCT FROM r.hash LIMIT 5) x;
  ELSE
    IF NOT EXISTS (SELECT FROM proposal p JOIN review s ON s.proposal_id = p.id
                   WHERE s.id = NEW.review_id AND p.state = 'committed') THEN
      RAISE EXCEPTION 'Blueprint % was inserted, but its proposal is not closed', NEW.number
        USING ERRCODE = 'GY014';
    END IF;
    -- The approved policy and the jig switches in the document of *system* are in force.
    IF (SELECT y.hash FROM policy y WHERE y.number = h.policy_number) IS DISTINCT FROM
       (SELECT coalesce(s.new_policy_hash, y.hash) FROM review s JOIN policy y ON y.number = s.policy_number
        WHERE s.id = NEW.review_id) AND NOT is_owner() THEN
      RAISE EXCEPTION 'Blueprint % was inserted, but the policy in force is not the approved one',
        NEW.number USING ERRCODE = 'GY014';
    END IF;
    SELECT string_agg(j.name, ', ') INTO named FROM jig j, deployment d
    WHERE d.system AND EXISTS (SELECT FROM review_document x WHERE x.review_id = NEW.review_id AND x.kind = 'deployment' AND x.id = d.id)
      AND j.active = (jigs_off(d.doc) ? j.name);
    IF named IS NOT NULL AND NOT is_owner() THEN
      RAISE EXCEPTION
        'Blueprint % was inserted, but these jigs do not match the document of system: %',
        NEW.number, named
        USING ERRCODE = 'GY014';
    END IF;
    SELECT string_agg(x.row_name, ', ') INTO named FROM (
      SELECT d.kind || ' ' || d.id AS row_name FROM review_document d
      LEFT JOIN deployment dep ON d.kind = 'deployment' AND dep.id = d.id AND dep.removed_in IS NULL
      LEFT JOIN node n ON d.kind = 'node' AND n.id = d.id AND n.removed_in IS NULL
      WHERE d.review_id = NEW.review_id AND coalesce(dep.doc, n.doc) IS DISTINCT FROM d.new_hash
      UNION ALL
      -- A removed deployment has no children, nodes or noderoles left, and every node has the
      -- noderoles of its document.
      SELECT 'removal of deployment ' || d.id FROM review_document d
      WHERE d.review_id = NEW.review_id AND d.kind = 'deployment' AND d.new_hash IS NULL
        AND (EXISTS (SELECT FROM deployment c WHERE c.parent = d.id AND c.removed_in IS NULL)
             OR EXISTS (SELECT FROM node n WHERE n.deployment_id = d.id AND n.removed_in IS NULL)
             OR EXISTS (SELECT FROM noderole r WHERE r.deployment_id = d.id AND r.disposition = 'in_service'))
      UNION ALL
      SELECT 'noderoles of node ' || d.id FROM review_document d LEFT JOIN object o ON o.hash = d.new_hash
      WHERE d.review_id = NEW.review_id AND d.kind = 'node'
        AND (SELECT array_agg(k ORDER BY k) FROM jsonb_object_keys(
               coalesce(convert_from(o.body, 'UTF8')::jsonb -> 'noderoles', '{}')) k)
            IS DISTINCT FROM
            (SELECT array_agg(k ORDER BY k) FROM noderole r
             CROSS JOIN LATERAL (SELECT r.role || CASE r.instance WHEN 0 THEN '' ELSE '/' || r.instance END AS k) key
             WHERE r.node_id = d.id AND r.disposition = 'in_service')
      UNION ALL
      SELECT 'head_no of ' || dep.name FROM written_by(NEW.review_id) w JOIN deployment dep ON dep.id = w.deployment_id
      WHERE dep.head_no <> NEW.number LIMIT 5) x;
  END IF;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Blueprint % was inserted, but these rows do not match its documents: %',
      NEW.number, named USING ERRCODE = 'GY014';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_projected AFTER INSERT ON blueprint DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_projected();

CREATE OR REPLACE FUNCTION guard_head() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (NEW.number, NEW.enabled) IS DISTINCT FROM (OLD.number, OLD.enabled) AND NOT EXISTS (
    SELECT FROM blueprint t WHERE t.number = NEW.number AND t.parent IS NOT DISTINCT FROM nullif(OLD.number, 0)
      AND t.enabled = NEW.enabled AND t.xid = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'The head can only move to a blueprint that this transaction inserted'
      USING ERRCODE = 'GY002';
  END IF;
  IF NEW.policy_number <> OLD.policy_number AND NOT (
    EXISTS (SELECT FROM policy p JOIN blueprint t ON t.xid = pg_current_xact_id() AND t.epoch = NEW.epoch
            LEFT JOIN review s ON s.id = t.review_id
            WHERE p.number = NEW.policy_number AND (t.kind = 'genesis' OR s.new_policy_hash = p.hash))) THEN
    RAISE EXCEPTION 'Policy % can only come into force with the commit that introduces it',
      NEW.policy_number
      USING ERRCODE = 'GY002';
  END IF;
  IF NEW.epoch < OLD.epoch THEN
    RAISE EXCEPTION 'The epoch can only rise' USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_head BEFORE UPDATE ON head FOR EACH ROW EXECUTE FUNCTION guard_head();
CREATE OR REPLACE FUNCTION guard_head_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'The row of table head cannot be deleted' USING ERRCODE = 'GY001';
END $$;
CREATE TRIGGER guard_head_stays BEFORE DELETE OR TRUNCATE ON head FOR EACH STATEMENT EXECUTE FUNCTION guard_head_stays();
