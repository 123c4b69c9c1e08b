-- No policy without the target that brought it. m0013 filled them in by counting; one that it found no target for would be in force at
-- none from then on, without a word. It stops here instead, and the schema stays as it was.

ALTER TABLE policy ALTER COLUMN target SET NOT NULL;
