-- The database roles that the latest migration granted privileges to. A process checks here that it
-- connects with its own role.
CREATE TABLE database_role (
  purpose  text PRIMARY KEY CHECK (purpose IN ('server', 'worker', 'metrics')),
  name     name NOT NULL UNIQUE
);
