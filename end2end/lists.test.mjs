// Lists: the URL has sort order, filter and cursor. So back and forward, bookmarks, and browsers
// without scripts show the same.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, openBrowser, openPage, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { signIn } from './lib/console.mjs';

const NODES = 60;

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'lists' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
  for (let n = 1; n <= NODES; n += 1) {
    const fqdn = `list${String(n).padStart(2, '0')}.rack.example.com`;
    const made = await page.request.post('/api/v1/nodes', {
      headers: { 'X-Gantry': '1' },
      data: { fqdn, root: `/srv/gantry-lists/${n}` },
    });
    assert.equal(made.status(), 201, await made.text());
  }
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

/** The names in the first column, from top to bottom. */
function names(on = page) {
  return on.locator('tbody tr td:first-child a').allInnerTexts();
}

/** Waits until the page has this URL. */
async function at(path, on = page) {
  await on.waitForURL((url) => `${url.pathname}${url.search}` === path);
}

test('headers sort a list and Back reverts the order', { timeout: 60_000 }, async () => {
  await visit(page, '/nodes');
  const first = await names();
  await page.getByRole('columnheader', { name: 'Node' }).getByRole('link').click();
  await at('/nodes?sort=-name');
  await page.locator('th[aria-sort="descending"]').waitFor();
  const turned = await names();
  assert.deepEqual(turned, [...turned].sort().reverse());
  assert.notDeepEqual(turned, first);
  await page.goBack();
  await page.locator('th[aria-sort="ascending"]').waitFor();
  assert.deepEqual(await names(), first);
  assertNoProblems(page);
});

test('pagination returns each row once', { timeout: 60_000 }, async () => {
  await visit(page, '/nodes?filter=list&sort=-name');
  const seen = await names();
  assert.equal(seen.length, 50);
  await page.getByRole('link', { name: 'Next' }).click();
  await page.getByRole('link', { name: 'First' }).waitFor();
  seen.push(...(await names()));
  assert.equal(new Set(seen).size, NODES);
  assert.deepEqual(seen, [...seen].sort().reverse());
  await page.getByRole('link', { name: 'First' }).click();
  await at('/nodes?filter=list&sort=-name');
  assertNoProblems(page);
});

test('a filter keeps order and columns', { timeout: 60_000 }, async () => {
  await visit(page, '/nodes?sort=-name&columns=name,state');
  assert.equal(await page.getByRole('columnheader', { name: 'Steps' }).count(), 0);
  await page.getByLabel('Name contains').fill('nothing-is-called-this');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByText('No node matches').waitFor();
  const parameters = new URL(page.url()).searchParams;
  assert.deepEqual([parameters.get('sort'), parameters.get('columns')], ['-name', 'name,state']);
  await page.getByRole('link', { name: 'Clear' }).click();
  await at('/nodes?sort=-name&columns=name%2Cstate');
  await page.goBack();
  assert.equal(await page.getByLabel('Name contains').inputValue(), 'nothing-is-called-this');
  assertNoProblems(page);
});

test('a form selects the columns', { timeout: 60_000 }, async () => {
  await visit(page, '/nodes?filter=list');
  await page.getByText('Columns', { exact: true }).first().click();
  await page.getByRole('checkbox', { name: 'Steps' }).uncheck();
  await page.getByRole('button', { name: 'Show columns' }).click();
  await page.getByRole('columnheader', { name: 'Steps' }).waitFor({ state: 'detached' });
  assert.equal(await page.getByRole('columnheader', { name: 'State' }).count(), 1);
  assert.equal(await page.getByLabel('Name contains').inputValue(), 'list');
  assertNoProblems(page);
});

test('an unknown filter value is reported', { timeout: 60_000 }, async () => {
  const answer = await page.goto('/nodes?state=purple&filter=list');
  assert.equal(answer.status(), 400);
  await page.getByText('Use one of: alive, dead, maintenance, record_only.').waitFor();
  assert.equal(await page.getByLabel('Name contains').inputValue(), 'list');
  // The browser logs every response with this status as an error.
  assertNoProblems(page, /status of 400/);
  page.problems.length = 0;
});

test('an unknown parameter is reported with a link', { timeout: 60_000 }, async () => {
  const answer = await page.goto('/nodes?filter=list&color=blue');
  assert.equal(answer.status(), 400);
  await page.getByText('Unknown parameter "color".').waitFor();
  await page.getByRole('link', { name: 'Remove the invalid parameters' }).click();
  await at('/nodes?filter=list');
  await page.locator('table tbody tr').first().waitFor();
  assertNoProblems(page, /status of 400/);
  page.problems.length = 0;
});

test('numbers are aligned and long breadcrumbs are truncated', { timeout: 60_000 }, async () => {
  await visit(page, '/deployments');
  const align = (of) => of.evaluate((cell) => getComputedStyle(cell).textAlign);
  assert.equal(await align(page.getByRole('columnheader', { name: 'Nodes' })), 'right');
  assert.equal(await align(page.locator('td[data-label="Nodes"]').first()), 'right');
  await visit(page, '/nodes?filter=list');
  const [name] = await names();
  await visit(page, `/nodes/${name}`);
  await page.setViewportSize({ width: 390, height: 844 });
  const crumbs = page.getByRole('navigation', { name: 'Breadcrumbs' });
  const last = crumbs.locator('li').last().locator('.clip');
  assert.equal(await last.getAttribute('title'), name);
  const [box, all] = [await last.boundingBox(), await crumbs.boundingBox()];
  assert.ok(box.x + box.width <= all.x + all.width + 1, 'the breadcrumb must end within its container');
  assert.ok(box.width > 30, 'the breadcrumb must be readable');
  await page.setViewportSize({ width: 1440, height: 900 });
  assertNoProblems(page);
});

test('lists work without JavaScript', { timeout: 60_000 }, async () => {
  const plain = await openPage(browser, { ...gantry, scripts: false });
  await plain.context().addCookies(await page.context().cookies());
  await plain.goto('/nodes');
  await plain.getByLabel('Name contains').fill('list');
  await plain.getByRole('button', { name: 'Filter' }).click();
  await plain.getByRole('columnheader', { name: 'Node' }).getByRole('link').click();
  await at('/nodes?filter=list&sort=-name', plain);
  await plain.getByRole('link', { name: 'Next' }).click();
  assert.equal((await names(plain)).length, NODES - 50);
  await plain.context().close();
});

test('lists are accessible on every screen width', { timeout: 120_000 }, async () => {
  for (const path of ['/nodes?sort=state', '/runs?sort=-duration', '/reviews?state=any&sort=title', '/deployments?sort=-nodes', '/catalog?sort=-roles',
    '/catalog/roles?sort=barclamp', '/catalog/roles/app', '/catalog/graph', '/catalog/imports']) {
    await visit(page, path);
    await assertAccessible(page);
    await page.setViewportSize({ width: 390, height: 844 });
    await assertFits(page);
    await assertAccessible(page);
    if (path.includes('sort')) assert.ok(await page.getByLabel('Sort by').isVisible(), path);
    await page.setViewportSize({ width: 1440, height: 900 });
    assertNoProblems(page);
  }
});
