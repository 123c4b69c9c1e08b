-- Every server reads the catalog's objects anew after an import: without an index that costs a look at all objects there ever were.

CREATE INDEX object_of_catalog ON object (hash) WHERE kind IN ('barclamp', 'role');
