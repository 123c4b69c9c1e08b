-- Removed deployments are still looked up by name, because their target history is permanent.

CREATE INDEX deployment_removed ON deployment (name, removed_in DESC) WHERE removed_in IS NOT NULL;
