-- Imported barclamps and the jigs that they use.

CREATE TABLE barclamp (
  name         text        NOT NULL,
  version      text        NOT NULL,
  hash         bytea       NOT NULL REFERENCES object,
  imported_by  uuid REFERENCES person,
  imported_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (name, version)
);
CREATE INDEX barclamp_hash ON barclamp (hash);
COMMENT ON TABLE barclamp IS
  'All imported versions. The content of a version never changes. Append-only.';

CREATE TABLE import_report (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL DEFAULT now(),
  by      uuid REFERENCES person,
  report  jsonb       NOT NULL CHECK (jsonb_typeof(report -> 'barclamps') = 'array')
);
CREATE INDEX import_report_barclamps ON import_report
  USING gin ((report -> 'barclamps') jsonb_path_ops);
COMMENT ON TABLE import_report IS
  'Reports of imports by people, and by Gantry itself if it added something. Rows never change. '
  'The newest 100 of each barclamp are retained.';
COMMENT ON COLUMN import_report.by IS 'NULL: Gantry itself imported a barclamp that it ships.';
COMMENT ON COLUMN import_report.report IS 'In the format api::catalog::Findings.';

CREATE TABLE jig (
  name         text    PRIMARY KEY CHECK (name <> '' AND octet_length(name) <= 96),
  class        text    NOT NULL,
  description  text    NOT NULL DEFAULT '',
  client_role  text,
  active       boolean NOT NULL DEFAULT true
);
COMMENT ON TABLE jig IS 'The jigs that roles of the catalog use. A jig runs the actions of roles.';
COMMENT ON COLUMN jig.class IS 'The implementation in the worker.';
COMMENT ON COLUMN jig.client_role IS 'The role that a node needs for the jig.';
COMMENT ON COLUMN jig.active IS 'False: no step of this jig is claimed.';
