-- Node records: folders do not overlap, and removed nodes stay removed.

-- The folder of a local node as text, for comparison. Byte collation makes the subfolders of a
-- folder a range.
ALTER TABLE node ADD COLUMN root text COLLATE "C" GENERATED ALWAYS AS (
  CASE WHEN transport = 'local' THEN nullif(rtrim(regexp_replace(connection ->> 'root', '/+', '/', 'g'), '/'), '') END) STORED;
CREATE INDEX node_root ON node (root) WHERE root IS NOT NULL AND removed_in IS NULL;
COMMENT ON COLUMN node.root IS
  'The root folder of a local node. Folders of nodes may not overlap, because these would share '
  'locks, ledgers and services.';
COMMENT ON COLUMN node.removed_in IS
  'The target that removed the node. For a bare record: the target in force when it was '
  'removed.';
