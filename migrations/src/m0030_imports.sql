-- Reports of imports: added and replaced versions, and findings.

CREATE TABLE import_report (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL DEFAULT now(),
  by      uuid REFERENCES person,
  -- The format is api::catalog::Findings.
  report  jsonb NOT NULL CHECK (jsonb_typeof(report->'barclamps') = 'array')
);
CREATE INDEX import_report_barclamps ON import_report USING gin ((report->'barclamps') jsonb_path_ops);
COMMENT ON TABLE import_report IS
  'Reports of imports by people, and by Gantry itself if it added something. Append-only.';
COMMENT ON COLUMN import_report.by IS 'NULL: Gantry itself imported a barclamp that it ships.';

-- Reports for earlier imports. Their findings were shown to the importer and not stored.
INSERT INTO import_report (at, by, report)
SELECT b.imported_at, b.imported_by,
  jsonb_build_object('barclamps', jsonb_agg(
    jsonb_build_object('name', b.name, 'version', b.version, 'hash', encode(b.hash, 'hex'), 'new', true) ORDER BY b.name, b.version))
FROM barclamp b GROUP BY b.imported_at, b.imported_by ORDER BY b.imported_at, b.imported_by;
