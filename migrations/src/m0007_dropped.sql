-- Edits that redo no longer brings back, because another edit was made after they were taken back. They stay: who made or took back
-- an edit stays an author, and what people tried stays to be read.

ALTER TABLE edit ADD COLUMN dropped boolean NOT NULL DEFAULT false;
ALTER TABLE edit ADD CONSTRAINT edit_dropped_is_undone CHECK (undone OR NOT dropped);
COMMENT ON COLUMN edit.dropped IS 'Another edit was made after this one was taken back: redo passes it by.';
