-- A deployment that is gone is still asked for by its name: its targets are there for ever.

CREATE INDEX deployment_removed ON deployment (name, removed_in DESC) WHERE removed_in IS NOT NULL;
