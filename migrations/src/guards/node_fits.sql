-- Node requirements of a step ---------------------------------------------------------------------

-- step.node_fits: whether node_reasons is empty (admission.sql). These functions run once per row,
-- and their own search path would cost 0.1 ms per call. No approval depends on them.
CREATE OR REPLACE FUNCTION set_node_fits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT public.node_fits(NEW.needs, n.phantom, n.removed_in, n.available, n.alive, n.joined) INTO NEW.node_fits
  FROM public.node n WHERE n.id = NEW.node_id;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_node_fits BEFORE INSERT OR UPDATE OF needs, node_id, node_fits ON step
  FOR EACH ROW EXECUTE FUNCTION set_node_fits();

CREATE OR REPLACE FUNCTION set_node_fits_of_steps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM public.step s WHERE s.node_id = NEW.id
    AND s.node_fits <> public.node_fits(s.needs, NEW.phantom, NEW.removed_in, NEW.available, NEW.alive, NEW.joined)
    ORDER BY s.rank, s.id FOR UPDATE;
  UPDATE public.step s
  SET node_fits = public.node_fits(s.needs, NEW.phantom, NEW.removed_in, NEW.available, NEW.alive, NEW.joined)
  WHERE s.node_id = NEW.id
    AND s.node_fits <> public.node_fits(s.needs, NEW.phantom, NEW.removed_in, NEW.available, NEW.alive, NEW.joined);
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_fits_of_steps AFTER UPDATE OF alive, available, joined, phantom, removed_in, transport, address, connection, connection_no ON node FOR EACH ROW
  WHEN ((NEW.alive, NEW.available, NEW.joined, NEW.phantom, NEW.removed_in)
        IS DISTINCT FROM (OLD.alive, OLD.available, OLD.joined, OLD.phantom, OLD.removed_in))
  EXECUTE FUNCTION set_node_fits_of_steps();
