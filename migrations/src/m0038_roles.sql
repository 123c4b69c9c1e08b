-- The database roles that the latest migration granted rights to. A program reads here whether it connects as its own role.
CREATE TABLE database_role (
  purpose  text PRIMARY KEY CHECK (purpose IN ('server', 'worker', 'metrics')),
  name     name NOT NULL UNIQUE
);
