-- Addresses and MAC addresses are unique: no two records are of one machine (guard_node_machine).
-- Older duplicates stay.

-- MAC addresses get one spelling and no duplicates, so that they can be compared.
UPDATE node SET macs = ARRAY(
  SELECT mac FROM (
    SELECT CASE WHEN digits ~ '^[0-9a-f]{12}$' THEN regexp_replace(digits, '(..)(?=.)', '\1:', 'g') ELSE said END AS mac, place
    FROM unnest(macs) WITH ORDINALITY AS given (said, place),
      LATERAL (SELECT lower(regexp_replace(said, '[-:. ]', '', 'g')) AS digits) plain) spelled
  GROUP BY mac ORDER BY min(place))
WHERE macs <> '{}';

-- Host names are case-insensitive. Older records have both cases.
CREATE INDEX node_address ON node USING gin ((lower(address::text)::jsonb)) WHERE transport = 'ssh' AND removed_in IS NULL;
CREATE INDEX node_macs ON node USING gin (macs) WHERE macs <> '{}' AND removed_in IS NULL;
COMMENT ON COLUMN node.macs IS
  'The MAC addresses of the node in the form 00:25:90:aa:00:01 (engine::cluster::mac_address).';

COMMENT ON COLUMN node.look_against IS
  'The number of consecutive health checks that contradict alive. A report counts as all but '
  'the last of them (engine::alive).';

-- An error about a missing permission names some admins.
CREATE INDEX person_admins ON person (name) WHERE kind = 'human' AND NOT disabled AND 'admin' = ANY (permissions);
