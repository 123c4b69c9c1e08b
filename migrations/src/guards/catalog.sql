-- Barclamp versions: each version has one spelling.
--
-- Reviewers identify a barclamp by name and version. A version is visible ASCII text, so versions
-- that look the same are the same. Two spellings of one version (`1`, `01`, `v1`) cannot both be
-- stored. `engine::catalog::version` has the same rules.

-- The canonical form of a version, equal for all spellings that `version::order` treats as equal.
-- E'' has the same meaning for every value of standard_conforming_strings.
CREATE OR REPLACE FUNCTION version_key(version text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
  WITH lowered AS (SELECT regexp_replace(lower(version), '^v(?=[0-9])', '') AS v),
  -- A word after a hyphen is a pre-release, so that hyphen counts. All other separators are
  -- equivalent.
  marked AS (SELECT regexp_replace(v, '[._+-]*-(?=[a-z])', '~', 'g') AS v FROM lowered),
  parted AS (SELECT regexp_replace(v, '(?<=[0-9])(?=[a-z])|(?<=[a-z])(?=[0-9])', '.', 'g') AS v
    FROM marked),
  separated AS (SELECT regexp_replace(v, '[._+-]+', '.', 'g') AS v FROM parted)
  SELECT regexp_replace(v, '(^|[^0-9])0+(?=[0-9])', E'\\1', 'g') FROM separated
$$;

CREATE OR REPLACE FUNCTION guard_barclamp_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE stored text;
BEGIN
  IF NEW.version COLLATE "C" !~ '^[0-9A-Za-z]([0-9A-Za-z._+-]{0,62}[0-9A-Za-z])?$' THEN
    RAISE EXCEPTION 'Invalid version % of barclamp %', to_json(NEW.version), NEW.name
      USING ERRCODE = 'GY056',
        HINT =
          'Use up to 64 ASCII letters, digits, ".", "_", "+" and "-". Begin and end with a letter '
          'or digit.';
  END IF;
  SELECT b.version INTO stored FROM barclamp b
  WHERE b.name = NEW.name AND b.version <> NEW.version
    AND version_key(b.version) = version_key(NEW.version);
  IF FOUND THEN
    RAISE EXCEPTION 'Version % of barclamp % is already stored as %', NEW.version, NEW.name, stored
      USING ERRCODE = 'GY056', HINT = 'Use the stored spelling of the version.';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER guard_barclamp_version BEFORE INSERT ON barclamp
  FOR EACH ROW EXECUTE FUNCTION guard_barclamp_version();
