-- Housekeeping ------------------------------------------------------------------------------------

-- Creates log partitions ahead of the newest run: two, of 131,072 runs each. The reaper calls it.
-- Rows that arrive before their partition stay in the default partition, and so does their range.
CREATE OR REPLACE FUNCTION ensure_run_log_room() RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  width constant bigint := 131072;
  first bigint;
  made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(4);
  SELECT coalesce(max(id), 0) / width INTO first FROM run;
  FOR part IN first .. first + 2 LOOP
    CONTINUE WHEN to_regclass(format('public.run_log_%s', part)) IS NOT NULL;
    CONTINUE WHEN EXISTS (SELECT FROM run_log_rest r WHERE r.run_id >= part * width AND r.run_id < (part + 1) * width);
    EXECUTE format('CREATE TABLE public.run_log_%s PARTITION OF public.run_log FOR VALUES FROM (%s) TO (%s)',
                   part, part * width, (part + 1) * width);
    made := made + 1;
  END LOOP;
  RETURN made;
END $$;
SELECT ensure_run_log_room();

-- Deletes older events. At least one day remains for clients that resume a stream.
CREATE OR REPLACE FUNCTION forget_events(older_than interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE gone bigint;
BEGIN
  WITH old AS (DELETE FROM event WHERE at < now() - greatest(older_than, interval '1 day') RETURNING xid, id),
       last AS (SELECT xid, id FROM old ORDER BY xid DESC, id DESC LIMIT 1),
       noted AS (UPDATE event_cutoff f SET xid = last.xid, id = last.id FROM last WHERE (last.xid, last.id) > (f.xid, f.id))
  SELECT count(*) INTO gone FROM old;
  RETURN gone;
END $$;

-- Called after a restore. Only the owner may call it.
CREATE OR REPLACE FUNCTION raise_epoch() RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE head SET epoch = epoch + 1 RETURNING epoch
$$;
