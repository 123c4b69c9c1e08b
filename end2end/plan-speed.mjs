// Measures planning in the page on a large cluster: `node end2end/plan-speed.mjs` after `cargo
// build --release` and `cargo xtask site` (`make bench` does both).
//
// All data is real: 1,000 nodes with 20 roles each are bound, reviewed and committed. Then a person
// drags one more node with the keyboard and drops it on the last role. It prints the times that the
// page records while it computes the possible drops and the effect. `GANTRY_BENCH_NODES` sets a
// smaller size. Not a test, because the results depend on the machine.

import assert from 'node:assert/strict';
import { callApi } from './lib/api.mjs';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { propose, row, signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const NODES = Number(process.env.GANTRY_BENCH_NODES ?? 1_000);
const ROLES = 20;
const DROPS = 12;
const GOAL = 16; // milliseconds: one frame

const role = (n) => `bench-${n}`;
const last = role(ROLES - 1);

/** Adds a node and returns its id. */
async function register(page, name) {
  return (await callApi(page, '/nodes', { fqdn: `${name}.bench.example.com`, root: `/srv/bench/${name}` })).node;
}

/** A barclamp's version in the catalog. */
async function versionOf(page, barclamp, version) {
  for (let after = ''; after !== null;) {
    const { versions, next } = await callApi(page, `/barclamps${after && `?after=${after}`}`);
    const found = versions.find((one) => one.barclamp === barclamp && one.version === version);
    if (found) return found;
    after = next;
  }
  return assert.fail(`${barclamp} ${version} is not in the catalog`);
}

const median = (some) => some.toSorted((a, b) => a - b)[Math.floor(some.length / 2)];

const gantry = await start({ name: 'plan-speed' });
const browser = await openBrowser();
try {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  const bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  const lines = Array.from({ length: ROLES }, (_, n) =>
    `  - {name: ${role(n)}, jig: noop, flags: [implicit]${n ? `, requires: [${role(n - 1)}]` : ''}}`);
  const file = `barclamp: {name: bench, version: '1', description: what is measured}\nroles:\n${lines.join('\n')}\n`;
  await callApi(ada, '/barclamps', { files: { 'bench/bench.yml': file } });
  const { hash } = await versionOf(ada, 'bench', '1');
  const system = (await callApi(ada, '/deployments')).deployments.find((deployment) => deployment.name === 'system').id;
  const nodes = [];
  for (let n = 0; n < NODES; n += 1) nodes.push(await register(ada, `n${n}`));

  const { proposal } = await callApi(ada, '/deployments/system/proposals', {});
  let { proposal: { version } } = await callApi(ada, '/deployments/system/board');
  const edits = [
    { edit: 'use_barclamp', deployment: system, barclamp: 'bench', version: hash },
    { edit: 'add_role', deployment: system, role: last },
    ...nodes.map((node) => ({ edit: 'bind', deployment: system, node, role: last })),
  ];
  for (let at = 0; at < edits.length; at += 1_000) {
    ({ version } = await callApi(ada, `/proposals/${proposal}/edits`, { version, edits: edits.slice(at, at + 1_000) }));
  }
  const { review: submission } = await callApi(ada, `/proposals/${proposal}/submit`, { version, title: 'What is measured' });
  await callApi(bo, `/reviews/${submission}/verdicts`, { kind: 'approve', reason: '' });
  await callApi(bo, '/execution/off', { reason: 'only planning is measured' });
  await callApi(bo, `/reviews/${submission}/commit`, {});

  for (let n = 0; n < DROPS; n += 1) await register(ada, `more${n}`);
  await visit(ada, '/deployments/system');
  await propose(ada);
  await ada.getByLabel('Filter nodes by name or deployment').fill('more');
  for (let n = 0; n < DROPS; n += 1) {
    await ada.locator('[data-tray]').filter({ hasText: new RegExp(`more${n}\\b`) }).press(' ');
    await ada.locator('[data-over]').waitFor();
    while (await ada.locator('[data-over]').getAttribute('data-role') !== last) await ada.keyboard.press('ArrowDown');
    await ada.keyboard.press('Enter');
    await row(ada, last).locator('.chip', { hasText: new RegExp(`more${n}\\b`) }).waitFor();
  }
  const took = await ada.evaluate(() =>
    performance.getEntriesByType('measure').map(({ name, duration }) => [name, duration]));
  const of = (name) => took.filter(([measured]) => measured === name).map(([, duration]) => duration);
  for (const [name, description] of [['gantry: drop preview', 'the preview of one node'], ['gantry: plan', 'one more bind']]) {
    const some = of(name);
    const word = median(some) <= GOAL ? 'within' : 'ABOVE';
    console.log(`in the browser, on ${NODES} nodes x ${ROLES} roles, ${description}: median ${median(some).toFixed(1)} ms, `
      + `slowest ${Math.max(...some).toFixed(1)} ms of ${some.length}; goal ${GOAL} ms: ${word}`);
  }
} finally {
  await browser.close();
  await gantry.stop();
}
