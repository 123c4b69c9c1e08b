// The WebAssembly module has one part per page: when each is loaded, and what happens while a part
// is loading or unavailable.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertNoProblems, hydrated, openBrowser, openPage, visit } from './lib/browser.mjs';
import { findNoderole, discard, propose, row, signIn } from './lib/console.mjs';
import { commitPendingChange, exampleIds } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';

let browser;
let gantry;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'parts' });
});
after(async () => {
  await browser.close();
  await gantry.stop();
});

let cookies;
/**
 * Opens a signed-in page with an empty cache. `page.modules` lists the module files that it
 * requested.
 */
async function fresh(t) {
  if (!cookies) {
    const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
    cookies = await ada.context().cookies();
    await ada.context().close();
  }
  const page = await openPage(browser, gantry);
  t.after(() => page.context().close());
  await page.context().addCookies(cookies);
  page.modules = [];
  page.documents = 0;
  page.on('request', (request) => {
    const file = new URL(request.url()).pathname.match(/^\/pkg\/[^/]+\/(.*\.wasm)$/);
    if (file) page.modules.push(file[1]);
    if (request.isNavigationRequest()) page.documents += 1;
  });
  return page;
}

const own = (name) => `**/split_${name}.wasm`;
const rail = (page, name) => page.getByRole('navigation').getByRole('link', { name }).first();

test('each page loads its own chunk', async (t) => {
  const page = await fresh(t);
  const answer = await visit(page, '/nodes');
  const head = (await answer.text()).split('</head>')[0];
  const preloaded = [...head.matchAll(/rel="preload" href="\/pkg\/[^/]+\/([^"]*\.wasm)"/g)].map(([, file]) => file);
  assert.ok(page.modules.includes('split_nodes.wasm'), page.modules.join(' '));
  for (const file of new Set(page.modules)) assert.ok(head.includes(`/${file}"`), `the head must preload ${file}: ${preloaded}`);
  assert.deepEqual(page.modules.toSorted(), [...new Set(page.modules)].toSorted(), 'each chunk must be requested once');
  assert.ok(!page.modules.some((file) => /split_(board|catalog|runs)/.test(file)), page.modules.join(' '));

  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await page.getByRole('heading', { name: 'Catalog', level: 1 }).waitFor();
  assert.equal(page.documents, 1, 'the page must not reload');
  assert.ok(page.modules.includes('split_catalog.wasm'), page.modules.join(' '));
  assertNoProblems(page);
});

test('build files are cached permanently', async (t) => {
  const page = await fresh(t);
  const cached = [];
  page.on('response', (answer) => {
    if (answer.url().includes('/pkg/')) cached.push([answer.url(), answer.headers()['cache-control']]);
  });
  await visit(page, '/nodes');
  assert.ok(cached.length > 4, cached.join('\n'));
  for (const [url, cache] of cached) assert.equal(cache, 'public, max-age=31536000, immutable', url);
});

test('links work while a chunk loads', async (t) => {
  const page = await fresh(t);
  let release;
  const released = new Promise((done) => (release = done));
  await page.route(own('nodes'), async (route) => {
    await released;
    await route.abort().catch(() => {});
  });
  await page.goto('/nodes', { waitUntil: 'domcontentloaded' });
  // The main file has started and listens, but the part is still missing.
  await page.waitForFunction(() => performance.getEntriesByName('gantry: started').length > 0);
  assert.equal(await page.locator('html[data-hydrated]').count(), 0);
  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await hydrated(page);
  assert.equal(page.documents, 2, 'the link must load the page');
  release();
});

test('a missing chunk causes a full page load', async (t) => {
  const page = await fresh(t);
  await visit(page, '/nodes');
  await page.route(own('catalog'), (route) => route.fulfill({ status: 404, body: '' }), { times: 1 });
  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await hydrated(page);
  await page.getByRole('heading', { name: 'Catalog', level: 1 }).waitFor();
  assert.equal(page.documents, 2);
});

test('the console recovers after the server was unreachable', async (t) => {
  const page = await fresh(t);
  await visit(page, '/nodes');
  const gone = (route) => route.abort();
  await page.route(own('catalog'), gone);
  await page.route('**/call/frame', gone);
  await rail(page, 'Catalog').click();
  await page.getByRole('heading', { name: 'Cannot reach the server' }).waitFor();
  assert.equal(page.documents, 1, 'the page must not reload');
  await page.unroute(own('catalog'), gone);
  await page.unroute('**/call/frame', gone);
  await rail(page, 'Nodes').click();
  await page.getByRole('heading', { name: 'Nodes', level: 1 }).waitFor();
  await rail(page, 'Catalog').click();
  await page.getByRole('heading', { name: 'Catalog', level: 1 }).waitFor();
});

test('a page without its chunk reloads once', async (t) => {
  const page = await fresh(t);
  await page.route(own('nodes'), (route) => route.fulfill({ status: 404, body: '' }));
  await page.goto('/nodes');
  await page.waitForFunction(() => sessionStorage.getItem('gantry-reloaded') === '/nodes');
  await page.waitForLoadState('networkidle');
  assert.equal(page.documents, 2);
  assert.equal(await page.locator('html[data-hydrated]').count(), 0);
  await page.getByRole('heading', { name: 'Nodes', level: 1 }).waitFor();
  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await hydrated(page);
  assert.equal(await page.evaluate(() => sessionStorage.getItem('gantry-reloaded')), null, 'the mark of a reload must be removed after a success');
});

// Pieces are parts that a page loads on demand. A missing piece must affect only the feature that
// needs it.

const gone = (page, name) => page.route(own(name), (route) => route.fulfill({ status: 404, body: '' }));
const back = (page, name) => page.unroute(own(name));
const notice = (where) => where.getByRole('alert').filter({ hasText: 'This part of the page could not be loaded' });
const requests = (page, name) => page.modules.filter((file) => file === `split_${name}.wasm`).length;
// The loader logs to the console what it could not load, as intended here.
const MISSING = /404|TypeError: Failed to execute 'compile|instantiateStreaming/;

let live;
/** Opens a board with an applied noderole and returns that noderole's id. */
async function lively() {
  if (!live) {
    const bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
    const { board } = await commitPendingChange(bo);
    live = { board, ...(await exampleIds(bo, board)) };
    await bo.context().close();
  }
  return live;
}

test('the board works without the panel chunk', { timeout: 240_000 }, async (t) => {
  const { board, noderole } = await lively();
  const page = await fresh(t);
  await visit(page, board);
  await gone(page, 'noderole_panel');
  await page.locator(`[data-noderole="${noderole}"]`).click();
  await page.waitForURL(/\?noderole=/);
  const panel = page.getByRole('complementary').filter({ has: page.getByRole('link', { name: 'Open as a page' }) });
  await notice(panel).waitFor();
  assert.equal(page.documents, 1, 'the page must not reload');
  assert.ok(await panel.getByRole('link', { name: 'Open as a page' }).getAttribute('href'));
  await panel.getByRole('link', { name: 'Close' }).click();
  await panel.waitFor({ state: 'detached' });

  // After a failure, the piece is requested again.
  await back(page, 'noderole_panel');
  await page.locator(`[data-noderole="${noderole}"]`).click();
  await panel.getByRole('region', { name: 'State' }).waitFor();
  assert.equal(await notice(panel).count(), 0);
  assert.equal(requests(page, 'noderole_panel'), 2);
  assert.equal(page.documents, 1);
  assertNoProblems(page, MISSING);
});

test('a missing panel chunk shows the server rendering', { timeout: 240_000 }, async (t) => {
  const { board, noderole } = await lively();
  const page = await fresh(t);
  await gone(page, 'noderole_panel');
  const address = `${board}?noderole=${noderole}`;
  await page.goto(address);
  await page.waitForFunction((address) => sessionStorage.getItem('gantry-reloaded') === address, address);
  await page.waitForLoadState('networkidle');
  await page.getByRole('region', { name: 'State' }).waitFor();
  assert.equal(page.documents, 2, 'the page must reload exactly once');
  assert.equal(await page.locator('html[data-hydrated]').count(), 0);
  assert.equal(await notice(page).count(), 0);
});

test('a review works without the graph chunk', async (t) => {
  const page = await fresh(t);
  const { reviews } = await (await page.request.get('/api/v1/reviews?state=any')).json();
  const address = `/reviews/${reviews[0].review}`;
  await visit(page, address);
  await gone(page, 'review_graph');
  const tabs = page.getByRole('navigation', { name: 'Review sections' });
  await tabs.getByRole('link', { name: 'Graph' }).click();
  await notice(page).waitFor();
  await tabs.getByRole('link', { name: /^Waves/ }).click();
  await page.waitForURL(/tab=waves/);
  await notice(page).waitFor({ state: 'detached' });
  await back(page, 'review_graph');
  await tabs.getByRole('link', { name: 'Graph' }).click();
  await page.getByRole('group', { name: 'Color by' }).waitFor();
  assert.equal(await notice(page).count(), 0);
  assert.equal(page.documents, 1, 'the page must not reload');
  assertNoProblems(page, MISSING);
});

test('a dialog reports missing forms and recovers', async (t) => {
  const page = await fresh(t);
  await gone(page, 'board_forms');
  await visit(page, '/deployments/web');
  await propose(page);
  await page.locator('.head').getByRole('button', { name: 'More…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Propose changes on web' });
  await notice(dialog).waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  await back(page, 'board_forms');
  await page.locator('.head').getByRole('button', { name: 'More…' }).click();
  await dialog.getByRole('button', { name: /^Create child deployment/ }).waitFor();
  assert.equal(await notice(dialog).count(), 0);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  await discard(page);
  assert.equal(page.documents, 1);
  assertNoProblems(page, MISSING);
});

test('the board plans drops on the server', async (t) => {
  const page = await fresh(t);
  await gone(page, 'planner');
  await visit(page, '/deployments/web');
  await propose(page);
  await page.waitForFunction(() => performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/split_planner.wasm')));
  const board = page.locator('.board');
  assert.equal(await board.getAttribute('data-planner'), 'server');
  const [answer] = await Promise.all([
    page.waitForResponse('**/call/bind-options'),
    page.locator('[data-tray]').filter({ hasText: 'n6' }).dragTo(row(page, 'metrics').locator('.cell')),
  ]);
  assert.equal(answer.status(), 200);
  await findNoderole(page, 'metrics', 'n6').waitFor();
  assert.equal(await notice(page).count(), 0, 'no notice may appear');
  assert.equal(await board.getAttribute('data-planner'), 'server');

  // The next fetch of the board requests it again.
  await back(page, 'planner');
  await page.keyboard.press('Control+z');
  await findNoderole(page, 'metrics', 'n6').waitFor({ state: 'detached' });
  await page.locator('.board[data-planner=here], .board[data-planner=agreed]').waitFor();
  await discard(page);
  assert.equal(page.documents, 1);
  assertNoProblems(page, MISSING);
});
