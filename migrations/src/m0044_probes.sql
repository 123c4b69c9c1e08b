-- The connection that a health check used.
--
-- Details about an address are shown once the address accepted a worker with the node's present
-- connection.

ALTER TABLE node_look ADD COLUMN way_no int NOT NULL DEFAULT 0 CHECK (way_no >= 0);
COMMENT ON COLUMN node_look.way_no IS
  'node.way_no at the time of the health check, set by guard_look_connection.';
UPDATE node_look l SET way_no = n.way_no FROM node n WHERE n.id = l.node_id;
