-- The person behind a transaction.
--
-- A connection of the server's role proves nothing about people. A transaction that acts for a person presents that person's session
-- or token, which the database stores only as a hash. Nothing else writes the table `acting`, so a stolen database role cannot act for
-- anyone whose session it does not have.

-- Starts acting for the person of a session or API token; returns the person, or NULL if the credential is not valid.
CREATE OR REPLACE FUNCTION act_as(credential text) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  presented bytea := sha256(convert_to(credential, 'UTF8'));
  found record;
BEGIN
  SELECT s.person_id, NULL::uuid AS token_id INTO found FROM session s JOIN person p ON p.id = s.person_id
  WHERE s.token_hash = presented AND s.idle_expires_at > now() AND s.expires_at > now() AND NOT p.disabled;
  IF NOT FOUND THEN
    SELECT t.person_id, t.id AS token_id INTO found FROM token t JOIN person p ON p.id = t.person_id
    WHERE t.hash = presented AND t.kind = 'api' AND t.expires_at > now() AND t.revoked_at IS NULL AND NOT p.disabled;
  END IF;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- Rows of finished transactions have no further use. Rows that another transaction is removing are left to it.
  DELETE FROM acting a WHERE a.xid IN (
    SELECT o.xid FROM acting o WHERE o.xid < pg_snapshot_xmin(pg_current_snapshot()) LIMIT 100 FOR UPDATE SKIP LOCKED);
  INSERT INTO acting (xid, person_id, token_id) VALUES (pg_current_xact_id(), found.person_id, found.token_id)
  ON CONFLICT (xid) DO UPDATE SET person_id = excluded.person_id, token_id = excluded.token_id;
  RETURN found.person_id;
END $$;

-- The person that this transaction acts for; NULL: none, so Gantry itself.
CREATE OR REPLACE FUNCTION acting_person() RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.person_id FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned()
$$;
