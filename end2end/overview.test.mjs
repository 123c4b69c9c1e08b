// Overview, workers, audit, and the command palette, which finds everything by name.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { signIn } from './lib/console.mjs';

let browser;
let gantry;
let ada;
let bo;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'overview' });
  ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

test('overview counts link to their lists', { timeout: 120_000 }, async () => {
  await visit(ada, '/');
  await ada.getByRole('heading', { level: 1, name: /^Overview/ }).waitFor();
  await ada.getByRole('region', { name: 'Steps', exact: true }).getByRole('link', { name: /ACTIVE/ }).click();
  await ada.waitForURL(/\/deployments$/);
  await ada.goBack();
  const machinery = ada.getByRole('region', { name: 'System status' });
  await machinery.getByRole('link', { name: /alive$/ }).click();
  await ada.waitForURL(/\/workers\?alive=true$/);
  await visit(bo, '/');
  await bo.getByRole('region', { name: 'Reviews' }).getByRole('link', { name: 'Waiting for you' }).click();
  await bo.waitForURL(/\/reviews\?involvement=for_me$/);
  assertNoProblems(bo);

  await visit(ada, '/');
  await inEachVariant(ada, () => assertFits(ada));
  await assertAccessible(ada);
  await screenshot(ada, 'overview');
  assertNoProblems(ada);
});

test('first steps track progress and can be dismissed', { timeout: 120_000 }, async () => {
  await visit(ada, '/');
  const list = ada.getByRole('region', { name: 'First steps' });
  // Proposals of the demo itself don't count as first steps.
  await list.getByText('0 of 5 done', { exact: true }).waitFor();
  assert.equal(await list.getByRole('listitem').count(), 5);
  const next = list.locator('[aria-current=step] a');
  assert.match(await next.getAttribute('href'), /^\/deployments/);
  assert.equal(await list.getByText(/\bbo\b|\bada\b|app-check/).count(), 0, 'the list must name no person and no role of the demo');
  await list.getByRole('button', { name: 'Hide first steps' }).click();
  await ada.getByRole('button', { name: 'Show first steps' }).waitFor();
  await visit(ada, '/');
  assert.equal(await list.count(), 0);
  await ada.getByRole('button', { name: 'Show first steps' }).click();
  await list.waitFor();
  assertNoProblems(ada);

  const plain = await openPage(browser, { ...gantry, address: gantry.address, scripts: false });
  await plain.context().addCookies(await ada.context().cookies());
  await plain.goto('/');
  await plain.getByRole('button', { name: 'Hide first steps' }).click();
  await plain.getByRole('button', { name: 'Show first steps' }).waitFor();
  await plain.context().close();
});

test('workers are filtered and have pages', { timeout: 120_000 }, async () => {
  await visit(ada, '/workers');
  await ada.locator('main thead').getByRole('link', { name: 'Worker' }).click();
  await ada.waitForURL(/sort=name/);
  await ada.locator('tbody').getByText('confirmed').first().waitFor();
  await inEachVariant(ada, () => assertFits(ada));
  await assertAccessible(ada);
  await screenshot(ada, 'overview-workers');
  await ada.locator('main a[href^="/workers/"]').first().click();
  await ada.getByRole('heading', { level: 1, name: /^Worker / }).waitFor();
  await assertAccessible(ada);
  await screenshot(ada, 'overview-worker');
  assertNoProblems(ada);
});

test('the audit is filtered, verified and exported', { timeout: 120_000 }, async () => {
  await visit(bo, '/audit');
  await bo.getByRole('textbox', { name: 'Actor', exact: true }).fill('ada');
  await bo.getByRole('textbox', { name: 'Action' }).fill('sign_in');
  await bo.getByRole('button', { name: 'Filter' }).click();
  await bo.waitForURL(/actor=ada/);
  await bo.waitForURL(/action=sign_in/);
  const rows = bo.locator('main tbody tr');
  // The old rows stay until the new ones arrive.
  await rows.filter({ hasNotText: 'ada' }).first().waitFor({ state: 'detached' });
  await rows.first().waitFor();
  for (const row of await rows.all()) assert.match(await row.innerText(), /ada\s+sign_in/);
  await bo.locator('main tbody details summary').first().click();
  await bo.locator('main tbody details[open] pre').first().waitFor();
  await inEachVariant(bo, () => assertFits(bo));
  await assertAccessible(bo);
  await screenshot(bo, 'overview-audit');

  await bo.getByRole('link', { name: 'Verify the chain' }).click();
  await bo.getByRole('region', { name: 'Verification result' }).or(bo.getByRole('status', { name: 'Verification result' })).waitFor();
  await bo.getByText(/The chain is valid up to (its end at entry \d+|entry \d+ of \d+)|No sealed entries yet/).waitFor();
  const download = bo.waitForEvent('download');
  await bo.getByRole('link', { name: 'Export sealed entries' }).click();
  assert.match((await download).suggestedFilename(), /\.jsonl$/);
  assertNoProblems(bo);
});

test('the palette opens a node by keyboard', { timeout: 120_000 }, async () => {
  await visit(ada, '/runs');
  const dialog = ada.getByRole('dialog', { name: 'Search and commands' });
  const field = dialog.getByRole('combobox');
  await ada.keyboard.press('Control+k');
  await field.waitFor();
  await active(ada, field, 'Overview');
  await ada.keyboard.press('ArrowDown');
  await active(ada, field, 'Deployments');
  await ada.keyboard.press('End');
  await active(ada, field, 'Sign out');
  await ada.keyboard.press('Home');
  await active(ada, field, 'Overview');
  await assertAccessible(ada);
  await screenshot(ada, 'overview-palette');

  // After Escape, the focus returns to the previous element.
  await ada.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  const opener = ada.getByRole('link', { name: /^Search/ });
  await opener.focus();
  await ada.keyboard.press('Enter');
  await field.waitFor();
  await ada.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  assert.ok(await opener.evaluate((link) => link === document.activeElement));

  await ada.keyboard.press('Control+k');
  await field.waitFor();
  await ada.keyboard.type('n2.demo');
  await active(ada, field, 'n2.demo.gantry.internal');
  await ada.keyboard.press('Enter');
  await ada.waitForURL(/\/nodes\/n2\.demo\.gantry\.internal$/);
  await dialog.waitFor({ state: 'hidden' });
  assertNoProblems(ada);
});

test('the palette runs a command', { timeout: 120_000 }, async () => {
  const field = ada.getByRole('dialog', { name: 'Search and commands' }).getByRole('combobox');
  await visit(ada, '/nodes');
  await ada.keyboard.press('Control+k');
  await field.fill('dark');
  await ada.keyboard.press('Enter');
  await ada.waitForSelector('html[data-theme=dark]', { state: 'attached' });
  await ada.keyboard.press('Control+k');
  await field.fill('theme: system');
  await ada.keyboard.press('Enter');
  await ada.waitForSelector('html:not([data-theme])', { state: 'attached' });
  await ada.keyboard.press('Control+k');
  await field.fill('propose web');
  await active(ada, field, 'Propose changes on web');
  await ada.keyboard.press('Enter');
  await ada.waitForURL(/\/deployments\/web$/);
  await ada.getByRole('region', { name: 'Open proposal' }).waitFor();
  assertNoProblems(ada);
});

test('search works without JavaScript', { timeout: 120_000 }, async () => {
  const plain = await openPage(browser, { ...gantry, address: gantry.address, scripts: false });
  await plain.context().addCookies(await ada.context().cookies());
  await plain.goto('/nodes');
  await plain.getByRole('link', { name: /^Search/ }).click();
  await plain.getByLabel('Part of a name or title, or a number').fill('web');
  await plain.getByRole('button', { name: 'Search' }).click();
  await plain.getByRole('region', { name: 'Deployments' }).getByRole('link', { name: 'web' }).click();
  await plain.getByRole('heading', { level: 1 }).first().waitFor();
  assert.match(plain.url(), /\/deployments\/web$/);
  await plain.context().close();
  await visit(ada, '/search?q=web');
  await inEachVariant(ada, () => assertFits(ada));
  await assertAccessible(ada);
  await screenshot(ada, 'overview-search');
  assertNoProblems(ada);
});

/** Waits until the active option of the field has this name. */
async function active(page, field, name) {
  await page.waitForFunction(
    ([input, name]) => document.getElementById(input.getAttribute('aria-activedescendant') ?? '')?.innerText.startsWith(name),
    [await field.elementHandle(), name],
  );
}
