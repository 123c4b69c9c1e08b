-- Health checks: which results they may record.

-- The database sets the connection number of a health check, so no worker can claim a success for
-- another connection.
CREATE OR REPLACE FUNCTION guard_health_check_connection() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.connection_no := coalesce((SELECT n.connection_no FROM node n WHERE n.id = NEW.node_id), 0);
  RETURN NEW;
END $$;

CREATE TRIGGER guard_health_check_connection BEFORE INSERT ON health_check
  FOR EACH ROW EXECUTE FUNCTION guard_health_check_connection();
