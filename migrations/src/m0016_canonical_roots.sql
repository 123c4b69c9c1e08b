-- Gantry has only written canonical roots. This detects a root that another program wrote, before a
-- guard relies on the rule.
DO $$
DECLARE
  body text;
  entries text[];
BEGIN
  SELECT convert_from(o.body, 'UTF8') INTO body
  FROM head h JOIN target t ON t.number = h.number JOIN object o ON o.hash = t.root;
  IF body IS NULL THEN
    RETURN;
  END IF;
  SELECT array_agg(k.entries ORDER BY k.kind) INTO entries FROM (
    SELECT kind, (SELECT coalesce(string_agg(format('"%s":"%s"', d.key::uuid, encode(decode(d.value, 'hex'), 'hex')), ','
                                             ORDER BY d.key::uuid), '')
                  FROM jsonb_each_text(body::jsonb -> kind) d) AS entries
    FROM unnest(ARRAY['deployments', 'nodes']) AS kind) k;
  IF body <> format('{"deployments":{%s},"nodes":{%s}}', VARIADIC entries) THEN
    RAISE EXCEPTION 'The root of the newest target is not in canonical form'
      USING HINT = 'Gantry never writes such a root. Find the other program that writes to this database, and restore an earlier backup.';
  END IF;
END $$;
