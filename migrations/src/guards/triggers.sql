-- Functions, triggers and grants. Every migration run replaces them in one transaction, so a
-- database is never without them. The enum `Refusal` lists the error codes. The settings
-- gantry.server_role, gantry.worker_role and gantry.metrics_role name the roles.

-- Every search path ends with pg_temp. Otherwise a temporary table could shadow one of Gantry's.
--
-- Functions that read a review's documents or the blueprint history disable sequential scans. After
-- one review with thousands of documents, the planner expects the same of the next one. It then
-- reads whole tables for each row that a review of one document writes.

DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT tgname, tgrelid::regclass AS tbl FROM pg_trigger
           WHERE NOT tgisinternal AND tgname LIKE 'guard\_%' AND tgparentid = 0
             AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
  LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', t.tgname, t.tbl);
  END LOOP;
END $$;
