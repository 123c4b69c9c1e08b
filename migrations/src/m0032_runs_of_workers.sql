-- The runs of a worker, newest first; whoever asks whether it ever had one is served by the same index.
CREATE INDEX run_of_worker ON run (worker_id, id DESC) WHERE worker_id IS NOT NULL;
DROP INDEX run_by_worker;
