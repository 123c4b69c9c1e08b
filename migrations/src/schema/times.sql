-- Times: in the years 1 to 9998 UTC. Programs cannot read times outside of theirs, and a page or a
-- worker that reads such a row would fail. Only step.not_before may be '-infinity': at once.
DO $$
DECLARE c record;
BEGIN
  FOR c IN
    SELECT t.oid::regclass AS "table", a.attname AS name
    FROM pg_class t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE t.relnamespace = 'public'::regnamespace AND t.relkind IN ('r', 'p')
      AND NOT t.relispartition AND a.atttypid = 'timestamptz'::regtype
    ORDER BY t.relname, a.attname
  LOOP
    EXECUTE format('ALTER TABLE %1$s ADD CONSTRAINT %2$I CHECK (%3$I >= %4$L AND %3$I < %5$L)', c."table",
      c.name || '_is_readable', c.name,
      CASE WHEN c.name = 'not_before' THEN '-infinity' ELSE '0001-01-01 00:00:00Z' END,
      '9999-01-01 00:00:00Z');
  END LOOP;
END $$;
