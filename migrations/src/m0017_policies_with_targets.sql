-- Every policy has the target that introduced it. m0013 filled in the column by counting. A policy
-- without a target would never be in force, and no one would notice. So this migration fails
-- instead and leaves the schema unchanged.

ALTER TABLE policy ALTER COLUMN target SET NOT NULL;
