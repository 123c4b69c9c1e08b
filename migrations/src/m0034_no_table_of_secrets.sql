-- Secrets are files that workers have and the database has not. Nothing ever wrote to this table or read it.
DROP TABLE secret;
