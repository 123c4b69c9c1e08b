-- Sessions that began with an admin's link, before their person sets a password.

ALTER TABLE acting ADD COLUMN needs_password boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN acting.needs_password IS
  'The session began with a link from an admin and has no password yet. The transaction may '
  'only set one.';
