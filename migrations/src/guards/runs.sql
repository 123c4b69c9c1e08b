-- Runs ------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION guard_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'The identity of a run can never change' USING ERRCODE = 'GY015',
    HINT = 'End the run. The next claim creates another one.';
END $$;
CREATE TRIGGER guard_run BEFORE DELETE OR TRUNCATE
  OR UPDATE OF id, step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, queued_at, cause, cause_by, failures ON run
  FOR EACH STATEMENT EXECUTE FUNCTION guard_run();

CREATE OR REPLACE FUNCTION guard_run_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state <> 'ended' OR NEW.ended_at <> OLD.ended_at THEN
    RAISE EXCEPTION 'Run % has ended and can no longer change', OLD.id USING ERRCODE = 'GY016';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_run_ended BEFORE UPDATE ON run FOR EACH ROW WHEN (OLD.state = 'ended') EXECUTE FUNCTION guard_run_ended();
