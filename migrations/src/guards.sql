-- Functions, triggers and grants. Applied whole by every migration run: idempotent.
-- gantry.app_role names the application role in this transaction.

DO $$
DECLARE app text := current_setting('gantry.app_role');
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', app);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %I', app);
END $$;

CREATE OR REPLACE FUNCTION raise_epoch() RETURNS bigint LANGUAGE sql AS
$$ UPDATE head SET epoch = epoch + 1 RETURNING epoch $$;
