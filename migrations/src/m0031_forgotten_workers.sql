-- Workers that are long gone are deleted, except those that a run references.
CREATE INDEX run_by_worker ON run (worker_id) WHERE worker_id IS NOT NULL;

COMMENT ON TABLE import_report IS
  'Reports of imports by people, and by Gantry itself if it added something. Rows never '
  'change. The newest 100 of each barclamp are retained.';
