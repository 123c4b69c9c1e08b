-- Every server reloads the catalog's objects after an import. Without an index, that scans all
-- objects.

CREATE INDEX object_of_catalog ON object (hash) WHERE kind IN ('barclamp', 'role');
