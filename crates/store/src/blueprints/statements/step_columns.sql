unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::int[],
  $8::text[], $9::bool[], $10::bool[], $11::bool[], $12::text[], $13::text[], $14::bytea[],
  $15::bool[], $16::int[], $17::int[], $18::int[], $19::text[], $20::int[], $21::text[],
  $22::bool[], $24::int[])
  AS d (id, noderole_id, node_id, action, deployment_id, lane, rank, jig, exclusive, destructive,
    immediate, needs, place, content_hash, freezes_node, retries, backoff_s, timeout_s, join_kind,
    join_n, join_after, again, priority)
JOIN concurrency_group l ON l.deployment_id = d.deployment_id AND l.name = d.lane
JOIN node n ON n.id = d.node_id
