// Nodes over SSH: added with the form, checked, and deployed to. The nodes are real servers of a
// testbed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { binary, start } from './lib/gantry.mjs';
import { commit, commitApproved, propose, row, signIn, submit, waitForState } from './lib/console.mjs';

let browser;
let gantry;
let page;
let testbed;
let bo;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'nodes' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
}, { timeout: 180_000 });
after(async () => {
  await testbed?.stop();
  await browser.close();
  await gantry.stop();
});

/** Starts a testbed for the Gantry, and waits until Gantry has its nodes. */
async function bed(nodes) {
  const { DATABASE_URL, GANTRY_SECRETS, ...env } = process.env;
  const child = spawn(binary, ['testbed', String(nodes), '--data', join(gantry.data, 'gantry')], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((done) => child.on('close', done));
  const known = [];
  const lines = createInterface({ input: child.stdout });
  for await (const line of lines) {
    if (line.startsWith(`${nodes} nodes are running and registered`)) break;
    known.push(line.split(/\s+/));
  }
  const stop = async () => {
    child.kill('SIGINT');
    assert.equal(await ended, 0);
  };
  return { known, stop };
}

/** A public host key that no machine has, in the format of ssh-keyscan. */
function hostKey() {
  const part = (bytes) => Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]);
  const raw = generateKeyPairSync('ed25519').publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  return `ssh-ed25519 ${Buffer.concat([part(Buffer.from('ssh-ed25519')), part(raw)]).toString('base64')}`;
}

const line = (name) => page.locator('tr').filter({ hasText: name });

test('an incomplete connection is rejected and the input stays', { timeout: 60_000 }, async () => {
  await visit(page, '/nodes');
  await page.getByRole('button', { name: 'Add node' }).click();
  const dialog = page.getByRole('dialog', { name: 'Add node' });
  await dialog.getByText('SSH connection', { exact: true }).click();
  await dialog.getByLabel('Name', { exact: true }).fill('gone.rack9.example.com');
  await dialog.getByLabel('Addresses', { exact: true }).fill('127.99.1.1');
  await dialog.getByLabel('Key', { exact: true }).fill('nobody/has');
  await dialog.getByRole('button', { name: 'Add node', exact: true }).click();
  await dialog.getByRole('alert').filter({ hasText: "host_key: Give the host's public key" }).waitFor();
  await assertAccessible(page);
  await inEachVariant(page, () => assertFits(page));
  await screenshot(page, 'nodes-add');
  await dialog.getByLabel('Host key').fill(`${hostKey()} a comment`);
  await dialog.getByRole('button', { name: 'Add node', exact: true }).click();
  await line('gone.rack9.example.com').waitFor();
  await page.getByRole('button', { name: 'Add node' }).click();
  for (const label of ['Name', 'Addresses', 'Key', 'Host key']) {
    assert.equal(await dialog.getByLabel(label, { exact: true }).inputValue(), '', `${label}: the form for the next node must be empty`);
  }
  await page.keyboard.press('Escape');
  assertNoProblems(page, /400/);
  page.problems.length = 0;
});

test('pasted nodes are added all or none', { timeout: 60_000 }, async () => {
  await visit(page, '/nodes');
  await page.getByRole('button', { name: 'Paste nodes' }).click();
  const dialog = page.getByRole('dialog', { name: 'Paste nodes' });
  const lines = dialog.getByLabel('Nodes, one per line');
  const all = dialog.getByRole('button', { name: 'Add nodes' });
  const wrong = '# rack 8\np1.rack8.example.com root=/srv/rack8/p1\np2 root=/srv/rack8/p2\np3.rack8.example.com rot=/srv/rack8/p3';
  await lines.fill(wrong);
  await all.click();
  const alert = dialog.getByRole('alert');
  await alert.filter({ hasText: '2 lines of 3 cannot be used' }).waitFor();
  assert.deepEqual((await alert.getByRole('listitem').allInnerTexts()).map((text) => text.split(':')[0]), ['line 3', 'line 4']);
  assert.equal(await lines.inputValue(), wrong);
  await assertAccessible(page);
  await inEachVariant(page, () => assertFits(page));
  await screenshot(page, 'nodes-paste');
  await lines.fill('p1.rack8.example.com root=/srv/rack8/p1\np2.rack8.example.com root=/srv/rack8/p2');
  await all.click();
  await dialog.getByRole('status').filter({ hasText: '2 nodes added' }).waitFor();
  assert.equal(await lines.inputValue(), '');
  await dialog.getByRole('button', { name: 'Close' }).click();
  for (const name of ['p1', 'p2']) await line(`${name}.rack8.example.com`).waitFor();
  assertNoProblems(page, /400/);
  page.problems.length = 0;
});

test('a rejected paste keeps its text without JavaScript', { timeout: 60_000 }, async () => {
  const plain = await openPage(browser, { ...gantry, scripts: false });
  await plain.context().addCookies(await page.context().cookies());
  await plain.goto('/nodes');
  await plain.getByRole('button', { name: 'Paste nodes' }).click();
  const dialog = plain.getByRole('dialog', { name: 'Paste nodes' });
  const lines = dialog.getByLabel('Nodes, one per line');
  const taken = 'p4.rack8.example.com root=/srv/rack8/p4\np1.rack8.example.com root=/srv/rack8/other';
  await lines.fill(taken);
  await dialog.getByRole('button', { name: 'Add nodes' }).click();
  await plain.waitForURL(/__err=/);
  await dialog.getByRole('alert').filter({ hasText: 'line 2: Node p1.rack8.example.com already exists' }).waitFor();
  assert.equal(await lines.inputValue(), taken);
  await lines.fill('p4.rack8.example.com root=/srv/rack8/p4');
  await dialog.getByRole('button', { name: 'Add nodes' }).click();
  await plain.locator('tr').filter({ hasText: 'p4.rack8.example.com' }).waitFor();
  assert.ok(!plain.url().includes('__err='));
  await plain.context().close();
});

test('an unreachable node shows the error', { timeout: 120_000 }, async () => {
  testbed = await bed(2);
  assert.deepEqual(testbed.known.map(([name]) => name), ['n1.testbed.gantry.internal', 'n2.testbed.gantry.internal']);
  await visit(page, '/nodes?filter=testbed');
  for (const n of [1, 2]) await line(`n${n}.testbed`).getByText('alive').waitFor({ timeout: 60_000 });
  await visit(page, '/nodes?filter=rack9');
  await line('gone.rack9.example.com').getByText(/[Ss]ecret nobody\/has version 1 can.t be used: .* does not exist/).waitFor({ timeout: 60_000 });
  await line('gone.rack9.example.com').getByText('dead').waitFor();
  await assertAccessible(page);
  await inEachVariant(page, () => assertFits(page));
  await screenshot(page, 'nodes-unreached');
});

test('roles run on SSH nodes', { timeout: 180_000 }, async () => {
  await visit(page, '/deployments/web');
  await propose(page);
  const filter = page.getByLabel('Filter nodes by name or deployment');
  await filter.fill('testbed');
  for (const n of [1, 2]) {
    const node = page.locator(`[data-tray]`).and(page.locator(`[title^="n${n}.testbed"]`));
    await node.dragTo(row(page, 'app').locator('.cell'));
    await row(page, 'app').locator('.chip').nth(n - 1).waitFor();
  }
  const review = await submit(page, 'On machines');
  bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  await commit(bo, review);
  await visit(page, '/deployments/web');
  for (const n of [1, 2]) await waitForState(page, 'app', `n${n}`, 'active');
  for (const [, , root] of testbed.known) {
    assert.match(await readFile(join(root, 'etc/hostname'), 'utf8'), /testbed\.gantry\.internal/);
  }
  // The board may request another plan for a proposal that is already committed.
  assertNoProblems(page, /409/);
});

test('the node page controls maintenance and tokens', { timeout: 120_000 }, async () => {
  const name = 'n1.testbed.gantry.internal';
  await visit(page, '/nodes?filter=testbed');
  await page.getByRole('link', { name }).click();
  await page.getByRole('heading', { name, level: 1 }).waitFor();
  const life = page.getByRole('region', { name: 'State' });
  await life.getByText('yes: a worker has checked for running processes').waitFor();
  await page.getByRole('region', { name: 'Health checks' }).getByText('reached', { exact: true }).first().waitFor();
  await page.getByRole('region', { name: 'Connection', exact: true }).getByText(/^SHA256:/).waitFor();
  await page.getByRole('region', { name: 'Noderoles' }).getByRole('link', { name: /^app in web/ }).waitFor();
  await assertAccessible(page);
  await inEachVariant(page, () => assertFits(page));
  await screenshot(page, 'node');

  // Another person's page updates too.
  await visit(bo, `/nodes/${name}`);
  await life.getByLabel('Reason for maintenance').fill('new disks');
  await life.getByRole('button', { name: 'Start maintenance' }).click();
  for (const one of [page, bo]) await one.getByText(/In maintenance, set by .*: new disks/).waitFor();
  await life.getByLabel('Reason for the end of maintenance').fill('they are in');
  await life.getByRole('button', { name: 'End maintenance' }).click();
  await bo.getByRole('region', { name: 'State' }).getByText('alive', { exact: true }).waitFor();

  const speaks = page.getByRole('region', { name: 'Reports and tokens' });
  await speaks.getByLabel('New token').fill('a unit of the system');
  await speaks.getByRole('button', { name: 'Create token' }).click();
  const token = await speaks.getByRole('group', { name: 'Token' }).innerText();
  assert.match(token, /^[0-9a-f]{64}$/);
  const say = (path, method, body) => fetch(`${gantry.address}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, 'x-gantry': '1', 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  assert.equal((await say('/self/facts', 'PUT', { rack: 'seven' })).status, 200);
  await page.getByRole('region', { name: 'Facts' }).getByText('"seven"').waitFor();
  assert.equal((await say('/nodes', 'GET')).status, 401);
  await speaks.getByRole('button', { name: 'Revoke token a unit of the system' }).click();
  await speaks.getByText(/revoked/).waitFor();
  assert.equal((await say('/self/shutdown', 'POST')).status, 401);
  assertNoProblems(page);
});

test('the connection of a node in a blueprint changes only after a review', { timeout: 120_000 }, async () => {
  const name = 'n1.testbed.gantry.internal';
  await visit(page, `/nodes/${name}`);
  assert.equal(await page.getByRole('button', { name: 'Save' }).count(), 0, 'no form may change the connection directly');
  const id = await page.locator('input[name=node]').first().getAttribute('value');
  const patch = () => page.evaluate(async (id) => {
    const path = `/api/v1/nodes/${id}`;
    const etag = (await fetch(path)).headers.get('etag');
    const headers = { 'content-type': 'application/json', 'if-match': etag, 'x-gantry': '1' };
    const answer = await fetch(path, { method: 'PATCH', headers, body: JSON.stringify({ connection: { addresses: ['127.99.1.9'] } }) });
    return [answer.status, (await answer.json()).detail];
  }, id);
  const refused = async () => {
    const [status, detail] = await patch();
    assert.equal(status, 409, detail);
    assert.match(detail, /blueprint/);
  };
  await refused();

  await page.getByText('Propose a new connection', { exact: true }).click();
  const addresses = page.getByLabel('Addresses', { exact: true });
  const before = await addresses.inputValue();
  await addresses.fill(`127.99.1.4 ${before}`);
  await page.getByRole('button', { name: 'Propose the change' }).click();
  await page.waitForURL(/\/proposals\/\d+$/);
  await page.getByLabel('Title').fill('A second address');
  await page.getByRole('button', { name: 'Submit for review' }).click();
  await page.waitForURL(/\/reviews\/\d+$/);
  const review = page.url().match(/(\d+)$/)[1];
  await page.getByText('changes a connection').first().waitFor();
  await page.getByText('connection, addresses').filter({ visible: true }).first().waitFor();
  await page.getByText('127.99.1.4').filter({ visible: true }).first().waitFor();
  await assertAccessible(page);
  await inEachVariant(page, () => assertFits(page));
  await visit(bo, `/reviews/${review}`);
  await bo.getByRole('button', { name: 'Approve' }).click();
  await bo.getByText('1 of 1 approval').waitFor();
  await refused();
  await visit(page, `/nodes/${name}`);
  const shown = page.getByRole('region', { name: 'Connection', exact: true });
  assert.equal(await shown.getByText('127.99.1.4').count(), 0, 'the connection must not change before the commit');
  await commitApproved(bo, review);
  await shown.getByText('127.99.1.4', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Health checks' }).getByText(before, { exact: true }).first().waitFor({ timeout: 60_000 });
  assertNoProblems(page, /409/);
  page.problems.length = 0;
});

test('a concurrent change of a connection is rejected', { timeout: 120_000 }, async () => {
  await visit(page, '/nodes/gone.rack9.example.com');
  const late = await page.context().newPage();
  await visit(late, '/nodes/gone.rack9.example.com');
  for (const one of [page, late]) await one.getByText('Edit node', { exact: true }).click();
  await page.getByLabel('Addresses', { exact: true }).fill('127.99.1.2 127.99.1.3');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  await page.getByRole('region', { name: 'Connection', exact: true }).getByText('127.99.1.3', { exact: true }).waitFor();
  await late.getByLabel('Description').fill('mine');
  await late.getByRole('button', { name: 'Save' }).click();
  await late.getByRole('alert').filter({ hasText: 'was changed after you loaded it' }).waitFor();
  await page.getByText('Delete node…').click();
  await page.getByRole('button', { name: 'Delete node', exact: true }).click();
  await page.waitForURL('**/nodes');
  await line('n1.testbed').waitFor();
  assert.equal(await line('gone.rack9').count(), 0);
});

test('a rejected dialog stays open without JavaScript', { timeout: 60_000 }, async () => {
  const plain = await openPage(browser, { ...gantry, scripts: false });
  await plain.context().addCookies(await page.context().cookies());
  await plain.goto('/nodes');
  await plain.getByRole('button', { name: 'Add node' }).click();
  const dialog = plain.getByRole('dialog', { name: 'Add node' });
  await dialog.getByLabel('Name', { exact: true }).fill('not a valid name');
  await dialog.getByLabel('Root folder').fill('/srv/nodes/new');
  await dialog.getByRole('button', { name: 'Add node', exact: true }).click();
  await plain.waitForURL(/__err=/);
  await dialog.getByRole('alert').waitFor();
  assert.equal(await dialog.getByLabel('Name', { exact: true }).inputValue(), 'not a valid name');
  assert.equal(await dialog.getByLabel('Root folder').inputValue(), '/srv/nodes/new');
  assert.ok(await dialog.getByRole('button', { name: 'Add node', exact: true }).isEnabled());
  assert.equal((await dialog.boundingBox()).y >= 0, true);
  await plain.context().close();
});
