WITH this AS (SELECT date_bin('1 hour', now(), 'epoch'::timestamptz) AS hour),
seen AS MATERIALIZED (SELECT queued_at, outcome FROM run
  WHERE queued_at >= (SELECT hour - interval '23 hours' FROM this) ORDER BY queued_at DESC LIMIT $1),
whole AS (SELECT CASE WHEN count(*) < $1 THEN '-infinity'::timestamptz ELSE min(queued_at) END AS since FROM seen),
counted AS (SELECT date_bin('1 hour', queued_at, 'epoch'::timestamptz) AS hour, count(*) AS runs,
  count(*) FILTER (WHERE outcome IN ('failed', 'lost')) AS failed FROM seen GROUP BY 1)
SELECT h.hour, coalesce(c.runs, 0) AS runs, coalesce(c.failed, 0) AS failed
FROM this, whole, generate_series(this.hour - interval '23 hours', this.hour, interval '1 hour') AS h(hour)
LEFT JOIN counted c ON c.hour = h.hour WHERE h.hour > whole.since ORDER BY h.hour
