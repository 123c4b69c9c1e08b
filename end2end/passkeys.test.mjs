// Passkeys and signed verdicts with Chromium's virtual authenticator: register, confirm, approve
// and sign, commit.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { assertAccessible, assertFits, assertNoProblems, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const run = promisify(execFile);
let browser;
let gantry;
let ada;
let bo;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'passkeys' });
  ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  // A passkey needs a host name, so the reviewer opens the console at localhost.
  const address = gantry.address.replace('127.0.0.1', 'localhost');
  const local = { address, signIn: (who) => gantry.signIn(who).replace('127.0.0.1', 'localhost') };
  bo = await signIn(await openPage(browser, local), local, 'reviewer');
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

/** Calls the API as the user of the page. */
async function callApi(page, path, body) {
  const [status, answer] = await page.evaluate(async ([path, body]) => {
    const how = body ? { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json', 'x-gantry': '1' } } : {};
    const response = await fetch(`/api/v1${path}`, how);
    return [response.status, await response.json()];
  }, [path, body]);
  assert.ok(status < 300, `${path}: ${status} ${JSON.stringify(answer)}`);
  return answer;
}

/** Adds a virtual authenticator with user verification to the page's browser. */
async function authenticator(page) {
  const session = await page.context().newCDPSession(page);
  await session.send('WebAuthn.enable');
  await session.send('WebAuthn.addVirtualAuthenticator', {
    options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true },
  });
}

/** Runs SQL as the owner of the database. */
async function sql(statement) {
  const root = join(gantry.data, 'gantry', 'postgres');
  const socket = await readFile(join(root, 'socket-folder'), 'utf8').catch(() => join(root, 'socket'));
  await run('psql', ['-v', 'ON_ERROR_STOP=1', '-h', socket, '-U', 'gantry_owner', '-d', 'gantry', '-c', statement]);
}

/** Submits edits on web and returns the review's number. */
async function proposed(page, title, edits) {
  const { proposal } = await callApi(page, '/deployments/web/proposals', {});
  const { proposal: { version } } = await callApi(page, '/deployments/web/board');
  const { version: edited } = await callApi(page, `/proposals/${proposal}/edits`, { version, edits });
  const { review: submission } = await callApi(page, `/proposals/${proposal}/submit`, { version: edited, title });
  return submission;
}

test('a reviewer signs an approval with a passkey', async (t) => {
  const policy = { approvals: 1, signed: [{}] };
  const review = await proposed(ada, 'Demand signatures', [{ edit: 'set_policy', policy }]);

  await t.test('a page at an IP address names the host name', async () => {
    await visit(ada, '/settings/account');
    const card = ada.getByRole('region', { name: 'Passkeys' });
    await card.getByLabel('Name').fill('Laptop');
    await card.getByRole('button', { name: 'Register a passkey' }).click();
    await card.getByText('http://localhost', { exact: false }).first().waitFor();
  });

  await t.test('a reviewer without a passkey gets a link', async () => {
    await visit(bo, `/reviews/${review}`);
    assert.ok(await bo.getByRole('button', { name: 'Approve', exact: true }).isDisabled());
    await bo.getByText('you have no confirmed passkey', { exact: false }).waitFor();
    await screenshot(bo, 'passkeys-review-without');
    await bo.getByRole('main').getByRole('link', { name: 'My account' }).click();
    await bo.waitForURL(/\/settings\/account#passkeys$/);
  });

  await t.test('the passkey is registered and waits for its confirmation', async () => {
    await authenticator(bo);
    await visit(bo, '/settings/account');
    const card = bo.getByRole('region', { name: 'Passkeys' });
    await card.getByText('No passkeys yet.').waitFor();
    await card.getByLabel('Name').fill('Laptop');
    await card.getByLabel('Name').press('Enter');
    await card.getByRole('cell', { name: 'not confirmed' }).waitFor();
    assert.equal(await card.getByLabel('Name').inputValue(), '');
    await assertAccessible(bo);
    await assertFits(bo);
    await screenshot(bo, 'passkeys-account');
    await sql('INSERT INTO passkey_confirmation (passkey_id) SELECT id FROM passkey');
    await visit(bo, '/settings/account');
    await card.getByRole('cell', { name: /^confirmed/ }).waitFor();
  });

  await t.test('the signed approval passes the gate', async () => {
    await visit(bo, `/reviews/${review}`);
    await bo.getByLabel('Your verdict').fill('Compared with the plan.');
    await screenshot(bo, 'passkeys-review');
    await bo.getByRole('button', { name: 'Approve and sign' }).click();
    await bo.getByText('1 of 1 signed approval').waitFor();
    await visit(bo, `/reviews/${review}?tab=discussion`);
    await bo.getByText('signed with Laptop').waitFor();
    await assertAccessible(bo);
    await bo.getByRole('button', { name: 'Commit' }).click();
    await bo.waitForURL(/\/blueprints\/\d+$/);
    await visit(bo, '/settings/policy');
    await bo.getByRole('row', { name: /Approvals signed with a passkey every change/ }).waitFor();
    await screenshot(bo, 'passkeys-policy');
  });

  await t.test('a revoked passkey is gone', async () => {
    await visit(bo, '/settings/account');
    await bo.getByRole('button', { name: 'Revoke passkey Laptop' }).click();
    await bo.getByRole('region', { name: 'Passkeys' }).getByText('No passkeys yet.').waitFor();
    assertNoProblems(bo);
  });
});
