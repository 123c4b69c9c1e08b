// People: an admin adds a person and sends a link. The person sets a password, signs in, creates a
// token for an API client, and is disabled. Approvals of a new reviewer count after a second admin
// confirms the access.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, hydrated, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { commitApproved, propose, row, signIn, submit } from './lib/console.mjs';
import { binary, start } from './lib/gantry.mjs';

const password = 'vague otter lamp';
let browser;
let gantry;
let admin;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'settings' });
  admin = await signIn(await openPage(browser, gantry), gantry, 'author');
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

/** Signs in with name and password. */
async function comeIn(page) {
  await page.goto('/sign-in');
  await page.getByLabel('Name', { exact: true }).fill('dee');
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.waitForURL((url) => url.pathname === '/');
}

/**
 * Checks that an error page asks for nothing else and has no link to a page with the same error.
 */
async function assertAlone(page) {
  const main = page.getByRole('main');
  for (const role of ['search', 'form', 'group', 'table']) assert.equal(await main.getByRole(role).count(), 0, role);
  assert.equal(await main.getByRole('button').count(), 0);
  assert.equal(await main.getByRole('link', { name: 'All accounts' }).count(), 0);
}

test('a new account is created, used and disabled', { timeout: 600_000 }, async (t) => {
  const dee = await openPage(browser, gantry);
  let link;

  await t.test('an admin adds a person and gets a link', async () => {
    await admin.getByRole('link', { name: 'Settings' }).click();
    await admin.waitForURL(/\/settings$/);
    await admin.getByRole('link', { name: 'People', exact: true }).click();
    await admin.waitForURL(/\/settings\/people$/);
    await admin.getByRole('link', { name: 'ada' }).waitFor();
    const form = admin.getByRole('region', { name: 'Add a person' });
    await form.getByLabel('Name').fill('dee');
    await form.getByLabel('In single deployments').fill('operator web');
    await form.getByRole('button', { name: 'Add' }).click();
    link = (await form.getByRole('group', { name: 'Link' }).innerText()).trim();
    assert.match(link, /^http:\/\/.*\/sign-in#token=[0-9a-f]{64}$/);
    await admin.getByRole('link', { name: 'dee' }).waitFor();
    assert.equal(await form.getByLabel('Name').inputValue(), '', 'the form must be empty after the account is added');
    assert.equal(await form.getByLabel('In single deployments').inputValue(), '');
    await form.getByLabel('Name').fill('No Name');
    await form.getByRole('button', { name: 'Add' }).click();
    await form.getByRole('alert').waitFor();
    assert.equal(await form.getByLabel('Name').inputValue(), 'No Name', 'rejected input must stay');
    assert.equal((await form.getByRole('group', { name: 'Link' }).innerText()).trim(), link, 'the link must stay');
    await form.getByLabel('Name').fill('eve');
    await form.getByRole('button', { name: 'Add' }).click();
    await form.getByText('No permissions yet').waitFor();
    assert.match(await form.getByRole('link', { name: 'Permissions' }).getAttribute('href'), /\/settings\/people\/eve#may$/);
    await visit(admin, '/settings/people?filter=de');
    await admin.getByRole('cell', { name: 'operator in web' }).waitFor();
    assert.equal(await admin.getByRole('link', { name: 'ada' }).count(), 0);
    assert.doesNotMatch(await admin.content(), /token=[0-9a-f]{64}/, 'the link must be shown only once');
  });

  await t.test('the link signs in and asks for a password', async () => {
    await dee.goto(link);
    assert.doesNotMatch(dee.url(), /token/, 'the address must not contain the token');
    await dee.getByRole('button', { name: 'Sign in with the link' }).click();
    await dee.waitForURL(/\/settings\/account\?set=1$/);
    await hydrated(dee);
    await dee.getByText('Set a password first').waitFor();
    await dee.goto('/nodes');
    await dee.waitForURL(/\/settings\/account\?set=1$/);
    await hydrated(dee);
    const card = dee.getByRole('region', { name: 'Password' });
    await card.getByLabel('New password').fill('dee dee dee dee');
    await card.getByLabel('Repeat password').fill('dee dee dee dee');
    await card.getByRole('button', { name: 'Set password' }).click();
    await card.getByText('choose another', { exact: false }).waitFor();
    await card.getByLabel('New password').fill(password);
    await card.getByLabel('Repeat password').fill(password);
    await card.getByRole('button', { name: 'Set password' }).click();
    await card.getByText('The password is set').waitFor();
    await dee.getByText('A password was set with a sign-in link').waitFor();
    await dee.getByRole('button', { name: 'Dismiss' }).click();
    await dee.getByText('A password was set with a sign-in link').waitFor({ state: 'detached' });
    await visit(dee, '/settings/account');
    await dee.getByRole('cell', { name: /this session/ }).waitFor();
  });

  await t.test('other sessions end without JavaScript', async () => {
    const plain = await openPage(browser, { address: gantry.address, scripts: false });
    await comeIn(plain);
    await plain.goto('/settings/account');
    assert.equal(await plain.getByRole('row').count(), 3, 'the table must have a header and two sessions');
    await plain.getByText('To create a token without JavaScript, use POST /api/v1/tokens').waitFor();
    for (const name of ['Create token', 'Copy the command for the CLI', 'Dark']) {
      assert.equal(await plain.getByRole('button', { name }).count(), 0, `${name} needs JavaScript and must not be shown`);
    }
    await plain.getByRole('button', { name: 'End all other sessions' }).click();
    await plain.goto('/settings/account');
    assert.equal(await plain.getByRole('row').count(), 2);
    await dee.goto('/deployments');
    await dee.waitForURL(/\/sign-in/);
    await dee.getByLabel('Name', { exact: true }).fill('dee');
    await dee.getByLabel('Password').fill('not this one');
    await dee.getByRole('button', { name: 'Sign in', exact: true }).click();
    await dee.getByText('Wrong name or password').waitFor();
    assert.equal(await dee.getByLabel('Name', { exact: true }).inputValue(), 'dee', 'the name must stay');
    assert.equal(await dee.getByLabel('Password').inputValue(), '');
    await plain.context().close();
    await comeIn(dee);
  });

  await t.test('an API token has the permissions of its account', async () => {
    await visit(dee, '/settings/account');
    const card = dee.getByRole('region', { name: 'Tokens' });
    await card.getByLabel('New token').fill('nightly');
    await card.getByRole('checkbox', { name: /operator/ }).check();
    await card.getByRole('button', { name: 'Create token' }).click();
    const token = (await card.getByRole('group', { name: 'Token' }).innerText()).trim();
    assert.match(token, /^gantry_[0-9a-f]{64}$/);
    assert.equal(await card.getByLabel('New token').inputValue(), '');
    assert.equal(await card.getByRole('checkbox', { name: /operator/ }).isChecked(), false);
    const request = (path, method = 'POST', body = {}) =>
      fetch(`${gantry.address}/api/v1/${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: method === 'POST' ? JSON.stringify(body) : undefined,
      });
    assert.equal((await request('people/me', 'GET')).status, 200);
    assert.equal((await request('deployments/web/proposals')).status, 201);
    assert.equal((await request('deployments/edge/proposals')).status, 403);
    const { proposal } = await (await request('deployments/web/board', 'GET')).json();
    assert.equal((await request(`proposals/${proposal.id}/discard`, 'POST', { version: proposal.version })).status, 200);
    await visit(dee, '/settings/account');
    await dee.getByText(/used (just now|now|\d)/).first().waitFor();
    await dee.getByRole('button', { name: 'Revoke token nightly' }).click();
    await dee.getByText(/^revoked/).waitFor();
    assert.equal((await request('people/me', 'GET')).status, 401);
    await visit(dee, '/deployments/edge');
    assert.equal(await dee.getByRole('button', { name: 'Propose changes' }).count(), 0, 'dee has no permission on edge');
  });

  await t.test('settings are accessible on every screen width', async () => {
    for (const [page, path, name] of [
      [admin, '/settings/people', 'people'],
      [admin, '/settings/services', 'services'],
      [dee, '/settings/account', 'account'],
    ]) {
      await visit(page, path);
      await inEachVariant(page, async () => {
        await assertFits(page);
        await assertAccessible(page);
      });
      await screenshot(page, `settings-${name}`);
      assertNoProblems(page, /status of 40[03]|status of 401/);
    }
    await visit(dee, '/settings/people');
    await dee.getByText('does not have the permission admin').waitFor();
    await assertAlone(dee);
    await visit(dee, '/settings/services?filter=a&columns=name');
    await dee.getByText('does not have the permission admin').waitFor();
    await assertAlone(dee);
  });

  await t.test('a disabled account is signed out', async () => {
    await visit(admin, '/settings/people?filter=dee');
    await admin.getByRole('link', { name: 'dee' }).click();
    await admin.waitForURL(/\/settings\/people\/dee$/);
    await admin.waitForFunction(() => document.title !== '');
    await inEachVariant(admin, async () => {
      await assertFits(admin);
      await assertAccessible(admin);
    });
    await admin.getByRole('button', { name: 'Disable account' }).click();
    await admin.getByText('disabled', { exact: true }).waitFor();
    await dee.goto('/deployments');
    await dee.waitForURL(/\/sign-in/);
  });
});

/** Signs in with a link of an admin and sets a password. */
async function setPassword(page, link) {
  await page.goto(link);
  await page.getByRole('button', { name: 'Sign in with the link' }).click();
  await page.waitForURL(/\/settings\/account\?set=1$/);
  await hydrated(page);
  const card = page.getByRole('region', { name: 'Password' });
  for (const label of ['New password', 'Repeat password']) await card.getByLabel(label).fill(password);
  await card.getByRole('button', { name: 'Set password' }).click();
  await card.getByText('The password is set').waitFor();
}

/** A sign-in link for a new admin, from the owner of the database. */
async function adminOfOwner(name) {
  const root = join(gantry.data, 'gantry', 'postgres');
  const socket = await readFile(join(root, 'socket-folder'), 'utf8').catch(() => join(root, 'socket'));
  const url = `postgres://gantry_owner@localhost/gantry?host=${encodeURIComponent(socket)}`;
  const { stdout } = await promisify(execFile)(binary, ['admin', name], { env: { ...process.env, GANTRY_OWNER_URL: url } });
  const token = stdout.match(/#token=[0-9a-f]{64}/)[0];
  return `${gantry.address}/sign-in${token}`;
}

test('approvals of a new reviewer count after a second admin confirms the access', { timeout: 300_000 }, async () => {
  const ada = admin;
  await visit(ada, '/settings/people');
  const form = ada.getByRole('region', { name: 'Add a person' });
  await form.getByLabel('Name').fill('cy');
  await form.getByLabel('In single deployments').fill('reviewer web');
  await form.getByRole('button', { name: 'Add' }).click();
  const cy = await openPage(browser, gantry);
  await setPassword(cy, (await form.getByRole('group', { name: 'Link' }).innerText()).trim());

  await visit(ada, '/deployments/web');
  await propose(ada);
  await ada.locator('[data-tray]').first().dragTo(row(ada, 'app').locator('.cell'));
  await row(ada, 'app').locator('.chip').first().waitFor();
  const review = await submit(ada, 'Approved by a friend');
  await visit(cy, `/reviews/${review}`);
  await cy.getByRole('button', { name: 'Approve' }).click();
  await cy.getByText('0 of 1 approval').first().waitFor();
  await cy.getByText(/Approvals by cy count from .*, or when another admin confirms the access of cy/).first().waitFor();
  await cy.getByRole('link', { name: /^Discussion/ }).click();
  await cy.getByRole('region', { name: 'Verdicts' }).getByText('does not count').waitFor();
  assert.equal(await cy.getByRole('button', { name: 'Commit' }).isEnabled().catch(() => false), false);

  const zed = await openPage(browser, gantry);
  await setPassword(zed, await adminOfOwner('zed'));
  for (const person of [ada, zed]) {
    await visit(person, '/settings/people?filter=cy');
    await person.getByRole('link', { name: 'cy', exact: true }).click();
    await person.waitForURL(/\/settings\/people\/cy$/);
    const access = person.getByRole('region', { name: 'Access' });
    await access.getByText(/^Access from ada: until .*, neither person's approvals count/).waitFor();
    await inEachVariant(person, async () => {
      await assertFits(person);
      await assertAccessible(person);
    });
    await screenshot(person, 'settings-access');
    await access.getByRole('button', { name: 'Confirm access' }).click();
    if (person === ada) await access.getByRole('alert').waitFor();
    else await access.getByText('confirmed by zed').first().waitFor();
  }
  await visit(ada, `/reviews/${review}`);
  await ada.getByText('1 of 1 approval').first().waitFor();
  await commitApproved(ada, review);
});
