-- A run that changed after the end of the export is exported in the form of its last sealed entry.
SELECT id, row FROM (
  SELECT r.id, CASE
    WHEN audited_after('run.start', r.id::text, $3) OR audited_after('run.end', r.id::text, $3)
      THEN (SELECT a.detail FROM audit a JOIN seal s ON s.audit_id = a.id
            WHERE a.subject = r.id::text AND a.action IN ('run.start', 'run.end')
              AND a.source = 'database' AND s.seq <= $3
            ORDER BY s.seq DESC LIMIT 1)
    ELSE audit_run(r) END AS row
  FROM run r WHERE r.blueprint_number = $1 AND r.id > $2 AND r.state <> 'queued'
  ORDER BY r.id LIMIT $4) x
