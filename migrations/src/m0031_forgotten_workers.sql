-- Workers that are long gone are deleted, except those that a run references.
CREATE INDEX run_by_worker ON run (worker_id) WHERE worker_id IS NOT NULL;

COMMENT ON TABLE import_report IS
  'What each import brought, of people and of Gantry itself where something was new. Nothing is changed; of each barclamp the newest 100 are kept.';
