-- Read with every plan, and mostly none: without it the nodes that have documents were all looked at.
CREATE INDEX node_bare ON node (fqdn) WHERE doc IS NULL AND removed_in IS NULL;
