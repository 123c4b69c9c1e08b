UPDATE node n SET fqdn = d.fqdn, deployment_id = d.place, doc = d.doc,
  transport = CASE WHEN d.moved THEN d.written ->> 'transport' ELSE n.transport END,
  address = CASE WHEN d.moved THEN d.written -> 'address' ELSE n.address END,
  connection = CASE WHEN d.moved THEN d.written -> 'connection' ELSE n.connection END,
  hints = CASE WHEN d.known THEN d.hints ELSE n.hints END,
  version = n.version + (d.moved OR d.known AND d.hints <> n.hints)::int,
  health_checked_at = CASE WHEN d.moved THEN NULL ELSE n.health_checked_at END,
  contradicting_checks = CASE WHEN d.moved THEN 0 ELSE n.contradicting_checks END, connection_no = n.connection_no + d.moved::int
FROM (SELECT u.*, o.doc IS NOT NULL AND u.written IS NOT NULL AS known,
        o.doc IS NOT NULL AND u.written IS NOT NULL AND node_connection(o.transport, o.address, o.connection)
          IS DISTINCT FROM node_connection(u.written ->> 'transport', u.written -> 'address', u.written -> 'connection') AS moved
      FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bytea[], $5::jsonb[], $6::jsonb[])
        AS u (id, fqdn, place, doc, written, hints) JOIN node o ON o.id = u.id) d
WHERE n.id = d.id
