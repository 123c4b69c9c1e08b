// drain.mjs URL JOBS CONCURRENCY [batched]: prints the seconds that graphile-worker takes for empty
// jobs, from its start until no job is left. `MODULES` names the folder of its npm packages.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MODULES}/`);
const { makeWorkerUtils, run } = require("graphile-worker");
const { Pool } = require("pg");

const [connectionString, count, concurrency, mode] = process.argv.slice(2);
const concurrentJobs = Number(concurrency);
const batched = mode === "batched";
const schema = batched ? "graphile_batched" : "graphile_plain";
const quiet = new (require("graphile-worker").Logger)(() => () => {});

// A private PostgreSQL has no TLS. This client treats `prefer` in the URL as `require`.
const url = new URL(connectionString);
url.searchParams.delete("sslmode");
const pool = new Pool({ connectionString: url.href, max: concurrentJobs + 5 });
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
const utils = await makeWorkerUtils({ pgPool: pool, schema, logger: quiet });
await utils.migrate();
await utils.withPgClient((client) =>
  client.query(
    `SELECT FROM ${schema}.add_jobs(ARRAY(SELECT ROW('noop', '{}', NULL, NULL, NULL, NULL, NULL, NULL)::${schema}.job_spec
                                          FROM generate_series(1, $1)))`,
    [count],
  ),
);
await pool.query("ANALYZE");

let left = Number(count);
const drained = new Promise((done) => {
  globalThis.noop = () => {
    left -= 1;
    if (left === 0) done();
  };
});
const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const worker = { schema, concurrentJobs, ...(batched ? batching : {}) };
const began = performance.now();
const runner = await run({
  pgPool: pool,
  logger: quiet,
  noHandleSignals: true,
  preset: { worker },
  taskList: { noop: () => globalThis.noop() },
});
await drained;
// A finished job has no row.
for (;;) {
  const { rows } = await pool.query(`SELECT count(*)::int AS n FROM ${schema}._private_jobs`);
  if (rows[0].n === 0) break;
  await new Promise((resume) => setTimeout(resume, 5));
}
const seconds = (performance.now() - began) / 1000;
await runner.stop();
await pool.end();
console.log(seconds.toFixed(3));
