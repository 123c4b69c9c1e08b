-- The connection and hints of a node are part of its document.
COMMENT ON COLUMN node.transport IS
  'How a worker reaches the node. If the node has a document, this is a copy (guard_node_record).';
COMMENT ON COLUMN node.address IS
  'The addresses at which a worker reaches the node. If the node has a document, this is a '
  'copy (guard_node_record).';
COMMENT ON COLUMN node.connection IS
  'The root folder of a local node, or root, port, user, key reference and host key for SSH. '
  'If the node has a document, this is a copy (guard_node_record).';
COMMENT ON COLUMN node.hints IS
  'Input for roles before their first run. If the node has a document, this is a copy '
  '(guard_node_record).';
