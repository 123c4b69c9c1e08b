-- The connection and hints of a node are part of its document.
COMMENT ON COLUMN node.transport IS 'How a worker reaches it. With a document: what that says (guard_node_record).';
COMMENT ON COLUMN node.address IS 'Where a worker reaches it. With a document: what that says (guard_node_record).';
COMMENT ON COLUMN node.connection IS 'Root folder of a local node; root, port, user, key reference and host key for SSH. With a document: what that says (guard_node_record).';
COMMENT ON COLUMN node.hints IS 'What a role may want to know before it first runs here. With a document: what that says (guard_node_record).';
