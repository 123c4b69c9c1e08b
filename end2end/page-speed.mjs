// Measures pages with much data: `node end2end/page-speed.mjs` after `cargo build --release` and
// `cargo xtask site` (`make bench` does both).
//
// All data is real: a board of 200 nodes with five roles each, and lists with 10,000 nodes and
// 10,000 finished runs. The lists are requested at their start, at their end, sorted and filtered.
// It prints a Markdown table with one row per page: time to first byte (1,000 sequential requests
// of a signed-in person; ten are slower than the p99), size of the page as sent, size of everything
// that a first visit loads, and time until hydration with an empty cache. `GANTRY_BENCH_NODES` sets
// shorter lists. Not a test, because the results depend on the machine.
//
// A session has a rate limit per minute (docs/limits.md). Creating the data waits when it must, and
// each page is measured in a minute of its own.

import assert from 'node:assert/strict';
import { get } from 'node:http';
import { callApi } from './lib/api.mjs';
import { hydrated, openBrowser, openPage } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const NODES = Number(process.env.GANTRY_BENCH_NODES ?? 10_000);
const ON_BOARD = Math.min(200, NODES);
const ROLES = 5;
const REQUESTS = 1_000;
const VISITS = 9;
const AT_ONCE = 8;
const EDITS = 1_000; // maximum edits per request
const MINUTE = 60_000; // milliseconds per page, because the rate limit counts per minute
const SETTLED = 20 * 60_000; // milliseconds until every run has ended

/** The pages by name. Lists include their last page. */
async function pages(ada) {
  const { nodes } = await callApi(ada, '/nodes?sort=-name');
  const { runs } = await callApi(ada, '/runs?sort=queued');
  const some = `n${ON_BOARD - 1}.bench.example.com`;
  return {
    'Board of 200 nodes': '/deployments/system',
    [`Nodes, ${NODES}`]: '/nodes',
    'Nodes, the last page': `/nodes?after=${nodes.at(-1).fqdn}`,
    'Nodes by state': '/nodes?sort=-state',
    'Nodes with 99 in the name': '/nodes?filter=99',
    [`Runs, ${NODES}`]: '/runs',
    'Runs, the last page': `/runs?before=${runs.at(-1).id}`,
    'Runs by how long they took': '/runs?sort=-duration',
    'Runs that failed': '/runs?state=failed',
    'Runs on one node': `/runs?node=${some}`,
    Deployments: '/deployments',
    Reviews: '/reviews?state=any',
    Pending: '/pending',
    Catalog: '/catalog',
  };
}

/** Does something for each element of a list, some concurrently. Returns the results in order. */
async function each(list, act) {
  const answers = [];
  let next = 0;
  const one = async () => {
    while (next < list.length) {
      const at = next;
      next += 1;
      answers[at] = await act(list[at]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return answers;
}

/** The hash of a barclamp's version in the catalog. */
async function hashOf(page, barclamp) {
  for (let after = ''; after !== null;) {
    const { versions, next } = await callApi(page, `/barclamps${after && `?after=${after}`}`);
    const found = versions.find((one) => one.barclamp === barclamp);
    if (found) return found.hash;
    after = next;
  }
  return assert.fail(`${barclamp} is not in the catalog`);
}

async function deployment(page, name) {
  const { deployments } = await callApi(page, `/deployments?filter=${name}&sort=name`);
  return deployments.find((one) => one.name === name);
}

/** One person proposes, the other approves and commits. */
async function approve(bo, submission) {
  await callApi(bo, `/reviews/${submission}/verdicts`, { kind: 'approve', reason: '' });
  await callApi(bo, `/reviews/${submission}/commit`, {});
}

/** Binds a role to nodes of a deployment and commits. */
async function bind(ada, bo, name, hash, role, nodes) {
  const { id, review: open } = await deployment(ada, name);
  if (open) await approve(bo, open); // one at a time
  const { proposal } = await callApi(ada, `/deployments/${name}/proposals`, {});
  let { proposal: { version } } = await callApi(ada, `/deployments/${name}/board`);
  const edits = [
    { edit: 'use_barclamp', deployment: id, barclamp: 'bench', version: hash },
    { edit: 'add_role', deployment: id, role },
    ...nodes.map((node) => ({ edit: 'bind', deployment: id, node, role })),
  ];
  for (let at = 0; at < edits.length; at += EDITS) {
    ({ version } = await callApi(ada, `/proposals/${proposal}/edits`, { version, edits: edits.slice(at, at + EDITS) }));
  }
  const { review: submission } = await callApi(ada, `/proposals/${proposal}/submit`, { version, title: `${role} on ${nodes.length} nodes` });
  await approve(bo, submission);
}

/** Waits until no run is queued or running. */
async function settled(page) {
  const until = Date.now() + SETTLED;
  for (let quiet = 0; quiet < 3; await new Promise((done) => setTimeout(done, 1_000))) {
    assert.ok(Date.now() < until, 'the runs did not end in time');
    const open = await Promise.all(['queued', 'running'].map((state) => callApi(page, `/runs?state=${state}`)));
    quiet = open.every(({ runs }) => runs.length === 0) ? quiet + 1 : 0;
  }
}

async function fill(ada, bo) {
  const role = (n) => `bench-${n}`;
  const lines = Array.from({ length: ROLES }, (_, n) =>
    `  - {name: ${role(n)}, jig: noop, flags: [implicit]${n ? `, requires: [${role(n - 1)}]` : ''}}`);
  const file = `barclamp: {name: bench, version: '1', description: what is measured}\nroles:\n${lines.join('\n')}\n`;
  await callApi(ada, '/barclamps', { files: { 'bench/bench.yml': file } });
  const hash = await hashOf(ada, 'bench');
  const names = Array.from({ length: NODES }, (_, n) => `n${n}`);
  const nodes = await each(names, async (name) =>
    (await callApi(ada, '/nodes', { fqdn: `${name}.bench.example.com`, root: `/srv/bench/${name}` })).node);
  await bind(ada, bo, 'system', hash, role(ROLES - 1), nodes.slice(0, ON_BOARD));
  // The remaining runs are in another deployment. Otherwise, the board would have too many nodes.
  const rest = nodes.slice(ON_BOARD, ON_BOARD + Math.max(0, NODES - ON_BOARD * ROLES));
  if (rest.length > 0) await bind(ada, bo, 'edge', hash, role(0), rest);
  await settled(ada);
}

/** One request: milliseconds until the first byte, and bytes as sent. */
function request(url, cookie) {
  return new Promise((done, failed) => {
    const began = performance.now();
    const headers = { cookie, accept: 'text/html', 'accept-encoding': 'br, gzip' };
    get(url, { headers, agent: false }, (answer) => {
      const first = performance.now() - began;
      let bytes = 0;
      if (answer.statusCode !== 200) failed(new Error(`${url}: ${answer.statusCode}`));
      answer.on('data', (chunk) => (bytes += chunk.length));
      answer.on('end', () => done({ first, bytes }));
      answer.on('error', failed);
    }).on('error', failed);
  });
}

/** A first visit with an empty cache: milliseconds until hydration, and bytes received. */
async function firstVisit(browser, gantry, cookies, path) {
  const page = await openPage(browser, gantry);
  await page.context().addCookies(cookies);
  const wire = await page.context().newCDPSession(page);
  await wire.send('Network.enable');
  let bytes = 0;
  wire.on('Network.loadingFinished', ({ encodedDataLength }) => (bytes += encodedDataLength));
  // Recorded in the page, because a query from outside would add its own time.
  await page.addInitScript(() => {
    new MutationObserver(() => {
      if (document.documentElement?.hasAttribute('data-hydrated')) window.usable ??= performance.now();
    }).observe(document, { attributes: true, subtree: true, attributeFilter: ['data-hydrated'] });
  });
  await page.goto(path, { waitUntil: 'load' });
  await hydrated(page);
  const usable = await page.evaluate(() => window.usable);
  await page.context().close();
  return { usable, bytes };
}

const at = (some, share) => some.toSorted((a, b) => a - b)[Math.min(some.length - 1, Math.floor(some.length * share))];

const gantry = await start({ name: 'page-speed' });
const browser = await openBrowser();
try {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  const bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  const began = Date.now();
  await fill(ada, bo);
  console.log(`Filled in ${Math.round((Date.now() - began) / 1_000)} s.\n`);
  const cookies = await ada.context().cookies();
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
  const paths = await pages(ada);
  await ada.context().close();
  await bo.context().close();

  console.log('| Page | First byte p50 | p99 | Page, bytes | First visit, bytes | Usable p50 |');
  console.log('|---|---|---|---|---|---|');
  for (const [name, path] of Object.entries(paths)) {
    await new Promise((later) => setTimeout(later, MINUTE));
    const answers = [];
    for (let n = 0; n < REQUESTS; n += 1) answers.push(await request(gantry.address + path, cookie));
    const visits = [];
    for (let n = 0; n < VISITS; n += 1) visits.push(await firstVisit(browser, gantry, cookies, path));
    const first = answers.map(({ first }) => first);
    const [usable, loaded] = ['usable', 'bytes'].map((of) => at(visits.map((visit) => visit[of]), 0.5));
    console.log(`| ${name} | ${at(first, 0.5).toFixed(1)} ms | ${at(first, 0.99).toFixed(1)} ms | ${answers.at(-1).bytes} | `
      + `${loaded} | ${usable.toFixed(0)} ms |`);
  }
} finally {
  await browser.close();
  await gantry.stop();
}
