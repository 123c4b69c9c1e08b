-- The runs of a worker, newest first. The same index tells whether a worker ever had a run.
CREATE INDEX run_of_worker ON run (worker_id, id DESC) WHERE worker_id IS NOT NULL;
DROP INDEX run_by_worker;
