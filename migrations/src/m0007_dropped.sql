-- Undone edits that redo skips because another edit followed. They stay: a person who made or undid
-- an edit remains an author, and the history remains readable.

ALTER TABLE edit ADD COLUMN dropped boolean NOT NULL DEFAULT false;
ALTER TABLE edit ADD CONSTRAINT edit_dropped_is_undone CHECK (undone OR NOT dropped);
COMMENT ON COLUMN edit.dropped IS
  'Another edit was made after this one was undone. Redo skips it.';
