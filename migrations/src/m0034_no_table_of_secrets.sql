-- Secrets are files on workers and not in the database. Nothing ever used this table.
DROP TABLE secret;
