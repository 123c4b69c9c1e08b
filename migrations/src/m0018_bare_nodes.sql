-- Every plan reads the bare nodes, and usually there are none. Without an index, that scans all
-- nodes.
CREATE INDEX node_bare ON node (fqdn) WHERE doc IS NULL AND removed_in IS NULL;
