// The graph of a deployment: folded first, unfolded on demand, by pointer and by keyboard, as a picture and as a table.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertQuiet, eachLook, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { signIn } from './lib/console.mjs';

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'graph' });
  page = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const box = (name) => page.getByRole('link', { name, exact: false }).and(page.locator('a.box'));

test('a review shows what changes and what is around it', { timeout: 60_000 }, async () => {
  await visit(page, '/reviews');
  const review = await page.locator('main a[href^="/reviews/"]').first().getAttribute('href');
  await visit(page, review);
  await page.getByRole('link', { name: 'Graph', exact: true }).and(page.locator('.tabs a')).click();
  await page.locator('a.box[data-state=proposed]').first().waitFor();
  assert.match(page.url(), /tab=graph/);
  const label = await page.locator('a.box[data-state=proposed]').first().getAttribute('aria-label');
  assert.match(label, /added/);
  await assertAccessible(page);
  await screenshot(page, 'review-graph');
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('button', { name: 'Commit' }).click();
  await page.getByRole('link', { name: 'Watch it run' }).waitFor();
});

test('folded by role, then one by one, and only what belongs to one', { timeout: 120_000 }, async () => {
  await visit(page, '/graph');
  await page.getByRole('main').getByRole('link', { name: 'edge' }).click();
  await page.waitForURL(/\/graph\/edge$/);
  await page.locator('a.box').first().waitFor();
  const folded = await page.locator('a.box').count();
  assert.ok(folded >= 3, `${folded} boxes`);

  // A box tells about itself and links on.
  await box(/^runtime .*, in edge$/).click();
  await page.waitForURL(/at=edge%3Aruntime/);
  const about = page.getByRole('complementary', { name: 'runtime' });
  await about.getByRole('heading', { name: 'Waits for', exact: true }).waitFor();
  await screenshot(page, 'graph');

  await about.getByRole('link', { name: /one by one$/ }).click();
  await page.waitForURL(/roles=runtime/);
  await box(/^n\d+ · runtime .*, in edge/).first().waitFor();
  await page.goBack();
  await page.waitForFunction((folded) => document.querySelectorAll('a.box').length === folded, folded);

  await page.getByRole('link', { name: 'Only this and around it' }).click();
  await page.waitForURL(/focus=/);
  await page.getByRole('group', { name: 'What is shown around it' }).getByRole('link', { name: 'Before it' }).click();
  await page.waitForFunction((folded) => document.querySelectorAll('a.box').length < folded, folded);
  await page.getByRole('link', { name: 'Show all, folded' }).click();
  await page.waitForFunction((folded) => document.querySelectorAll('a.box').length === folded, folded);

  await eachLook(page, () => assertFits(page));
  await assertAccessible(page);
  assertQuiet(page);
});

test('the keyboard walks along the edges', { timeout: 60_000 }, async () => {
  await visit(page, '/graph/edge');
  await page.locator('a.box[tabindex="0"]').focus();
  const layer = () => page.evaluate(() => document.activeElement.parentElement.getAttribute('transform'));
  const x = async () => Number((await layer()).match(/translate\((\d+)/)[1]);
  const from = await x();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((from) => Number(document.activeElement.parentElement.getAttribute('transform')?.match(/\((\d+)/)?.[1]) > from, from);
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction((from) => Number(document.activeElement.parentElement.getAttribute('transform')?.match(/\((\d+)/)?.[1]) === from, from);
  await page.keyboard.press('Enter');
  await page.waitForURL(/at=/);
  await page.keyboard.press('u');
  await page.waitForURL(/roles=/);
  assertQuiet(page);
});

test('it finds, and the table says the same', { timeout: 60_000 }, async () => {
  await visit(page, '/graph/edge');
  await page.getByRole('searchbox', { name: 'Find a role or a node' }).fill('runtime');
  await page.getByText(/^1 found/).waitFor();
  assert.equal(await page.locator('a.box.found').count(), 1);
  await page.keyboard.press('Enter');
  await page.waitForURL(/at=edge%3Aruntime/);
  await page.getByRole('searchbox', { name: 'Find a role or a node' }).fill('');

  const boxes = await page.locator('a.box').count();
  await page.getByRole('link', { name: 'Table', exact: true }).click();
  await page.waitForURL(/as=table/);
  assert.equal(await page.locator('tbody tr[data-key]').count(), boxes);
  await assertAccessible(page);
  assertQuiet(page);

  // And without scripts, from the address alone.
  const plain = await openPage(browser, { address: gantry.address, scripts: false });
  await plain.context().addCookies(await page.context().cookies());
  await plain.goto('/graph/edge?roles=runtime');
  assert.ok((await plain.locator('a.box').count()) > 0);
  await plain.context().close();
});
