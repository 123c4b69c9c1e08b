// Nothing jumps: a proposal that opens moves nothing on its board, Back and Forward restore the
// scroll position, and a slow navigation shows its progress.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { discard, propose, signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'steady' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

/** The positions and sizes of everything on a board that a pointer can rest on. */
const boxes = () => page.evaluate(() => {
  const named = {
    bar: '.proposal',
    board: '.board',
    grid: '.grid',
    tray: '.board > .tray',
    pending: '.head a[href^="/pending"]',
  };
  const rows = [...document.querySelectorAll('.row')].map((row) => [`row ${row.dataset.role}`, row]);
  const noderoles = [...document.querySelectorAll('.grid [data-noderole]')].map((element) => [`noderole ${element.dataset.noderole}`, element]);
  const all = [...Object.entries(named).map(([name, selector]) => [name, document.querySelector(selector)]), ...rows, ...noderoles];
  return Object.fromEntries(all.map(([name, element]) => {
    const { x, y, width, height } = element.getBoundingClientRect();
    return [name, name === 'tray' || name === 'board' ? [x, y, width] : [x, y, width, height]];
  }));
});

test('a proposal that opens or closes moves nothing', { timeout: 120_000 }, async () => {
  for (const [width, height] of [[1440, 900], [1200, 800], [1024, 768]]) {
    await page.setViewportSize({ width, height });
    await visit(page, '/deployments/web');
    await page.evaluate(() => document.fonts.ready);
    const before = await boxes();
    assert.ok(Object.keys(before).length > 8, 'the board must have rows');
    const button = await page.getByRole('button', { name: 'Propose changes' }).boundingBox();
    const [x, y] = [button.x + button.width / 2, button.y + button.height / 2];
    await propose(page);
    assert.deepEqual(await boxes(), before, `layout after opening a proposal at width ${width}`);
    // The pointer rests on the button of the next step, which is disabled until there are changes.
    const under = await page.evaluate(([x, y]) => document.elementFromPoint(x, y)?.closest('button')?.textContent.trim() ?? '', [x, y]);
    assert.ok(under === '' || under === 'Review changes', `button under the pointer at width ${width}: ${under}`);
    if (width === 1440) await screenshot(page, 'steady-open');
    await discard(page);
    assert.deepEqual(await boxes(), before, `layout after closing the proposal at width ${width}`);
    if (width === 1440) await screenshot(page, 'steady-closed');
  }
  await page.setViewportSize({ width: 1440, height: 900 });
  await inEachVariant(page, () => assertFits(page));
  await assertAccessible(page);
  assertNoProblems(page);
});

test('the proposal bar has one height for all edits', { timeout: 120_000 }, async () => {
  for (const [width, height] of [[1440, 900], [1024, 768], [390, 844]]) {
    await page.setViewportSize({ width, height });
    await visit(page, '/deployments/web');
    const tall = () => page.locator('.proposal').evaluate((bar) => bar.getBoundingClientRect().height);
    const before = await tall();
    await propose(page);
    assert.equal(await tall(), before, `layout after opening a proposal at width ${width}`);
    await page.locator('.head').getByRole('button', { name: 'Add role' }).click();
    const dialog = page.getByRole('dialog', { name: 'Add role' });
    await dialog.getByRole('listitem').getByRole('button').first().click();
    await page.getByRole('button', { name: /^Undo “/ }).waitFor();
    assert.equal(await tall(), before, `layout with an edit at width ${width}`);
    const bar = await page.locator('.proposal').boundingBox();
    for (const name of [/^Undo/, 'Discard', 'Review changes']) {
      const found = await page.locator('.proposal').getByRole('button', { name }).boundingBox();
      assert.ok(found.x >= bar.x && found.x + found.width <= bar.x + bar.width, `${name} at width ${width}`);
      assert.ok(found.height >= 24 && found.width >= 24, `${name} at width ${width}`);
    }
    if (width === 390) {
      await assertFits(page);
      await screenshot(page, 'steady-edit');
    }
    await discard(page);
  }
  await page.setViewportSize({ width: 1440, height: 900 });
  assertNoProblems(page);
});

test('Back and Forward restore the scroll position', { timeout: 120_000 }, async () => {
  await page.setViewportSize({ width: 1440, height: 420 });
  await visit(page, '/nodes');
  await page.getByRole('table').waitFor();
  const top = () => page.evaluate(() => Math.round(window.scrollY));
  const max = await page.evaluate(() => document.documentElement.scrollHeight - window.innerHeight);
  assert.ok(max > 150, `${max}`);
  const nodes = Math.min(220, max);
  await page.evaluate((top) => window.scrollTo(0, top), nodes);
  await page.waitForTimeout(200);
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Catalog' }).click();
  await page.getByRole('heading', { name: 'Catalog' }).waitFor();
  await page.waitForURL(/\/catalog$/);
  await page.waitForFunction(() => window.scrollY === 0);
  await page.getByRole('table').waitFor();
  await page.evaluate(() => window.scrollTo(0, 60));
  await page.waitForTimeout(400);
  const catalog = await top();
  // The list arrives late, long after the address changed.
  await page.route('**/call/nodes', async (route) => {
    await new Promise((done) => setTimeout(done, 1_200));
    await route.continue();
  });
  await page.goBack();
  await page.waitForURL(/\/nodes$/);
  await page.getByRole('table').waitFor();
  await page.waitForFunction((nodes) => Math.abs(window.scrollY - nodes) <= 1, nodes, { timeout: 5_000 });
  await page.waitForTimeout(600);
  assert.equal(await top(), nodes, 'the scroll position must stay');
  await page.unroute('**/call/nodes');
  await page.goForward();
  await page.getByRole('heading', { name: 'Catalog' }).waitFor();
  await page.waitForFunction((catalog) => Math.abs(window.scrollY - catalog) <= 1, catalog, { timeout: 5_000 });
  // A new visit begins at the top.
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Nodes' }).click();
  await page.getByRole('table').waitFor();
  await page.waitForTimeout(400);
  assert.equal(await top(), 0);
  await page.setViewportSize({ width: 1440, height: 900 });
  assertNoProblems(page);
});

test('a slow navigation shows a progress line', { timeout: 60_000 }, async () => {
  await visit(page, '/catalog');
  const line = page.getByRole('progressbar', { name: 'Loading the page' });
  let answer;
  await page.route('**/call/nodes', async (route) => {
    await new Promise((done) => (answer = done));
    await route.continue();
  });
  // Measured in the page, because a busy machine delays this test.
  await page.evaluate(() => addEventListener('click', () => {
    const start = performance.now();
    new MutationObserver((_, observer) => {
      if (!document.querySelector('[role=progressbar]:not([hidden])')) return;
      window.progressDelay = performance.now() - start;
      observer.disconnect();
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
  }, { once: true, capture: true }));
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Nodes' }).click();
  await line.waitFor();
  const delay = await page.evaluate(() => window.progressDelay);
  assert.ok(delay >= 60, `the progress line must not appear at once, but it did after ${delay} ms`);
  await page.locator('main[aria-busy=true]').waitFor();
  await assertAccessible(page);
  await screenshot(page, 'steady-progress');
  assert.equal(await line.evaluate((line) => getComputedStyle(line, '::after').animationName), 'none', 'the progress line must not move with reduced motion');
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  assert.equal(await line.evaluate((line) => getComputedStyle(line, '::after').animationName), 'progress');
  await page.emulateMedia({ reducedMotion: 'reduce' });
  answer();
  await line.waitFor({ state: 'hidden' });
  assert.equal(await page.locator('main[aria-busy]').count(), 0);
  await page.unroute('**/call/nodes');

  // A list that stays visible while its next page loads, too.
  await page.route('**/call/nodes', async (route) => {
    await new Promise((done) => (answer = done));
    await route.continue();
  });
  await page.getByRole('columnheader').getByRole('link').first().click();
  await line.waitFor();
  assert.ok(await page.getByRole('table').isVisible());
  answer();
  await line.waitFor({ state: 'hidden' });
  await page.unroute('**/call/nodes');
  assertNoProblems(page);
});
