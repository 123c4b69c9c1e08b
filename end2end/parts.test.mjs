// The module comes in parts, one for each page: what is loaded when, and what happens while a part is on its way or can't be had.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertQuiet, hydrated, openBrowser, openPage, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
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
/** A page of somebody who is signed in, with nothing loaded yet; `page.modules` are the module's files that it asked for. */
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

test('a visit loads its own part, named in the head, and another page loads that page\'s', async (t) => {
  const page = await fresh(t);
  const answer = await visit(page, '/nodes');
  const head = (await answer.text()).split('</head>')[0];
  const preloaded = [...head.matchAll(/rel="preload" href="\/pkg\/[^/]+\/([^"]*\.wasm)"/g)].map(([, file]) => file);
  assert.ok(page.modules.includes('split_nodes.wasm'), page.modules.join(' '));
  for (const file of new Set(page.modules)) assert.ok(head.includes(`/${file}"`), `${file} is not in the head: ${preloaded}`);
  assert.deepEqual(page.modules.toSorted(), [...new Set(page.modules)].toSorted(), 'each is asked for once');
  assert.ok(!page.modules.some((file) => /split_(board|catalog|runs)/.test(file)), page.modules.join(' '));

  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await page.getByRole('heading', { name: 'Catalog', level: 1 }).waitFor();
  assert.equal(page.documents, 1, 'no page was loaded anew');
  assert.ok(page.modules.includes('split_catalog.wasm'), page.modules.join(' '));
  assertQuiet(page);
});

test('what a build made is kept for good', async (t) => {
  const page = await fresh(t);
  const kept = [];
  page.on('response', (answer) => {
    if (answer.url().includes('/pkg/')) kept.push([answer.url(), answer.headers()['cache-control']]);
  });
  await visit(page, '/nodes');
  assert.ok(kept.length > 4, kept.join('\n'));
  for (const [url, cache] of kept) assert.equal(cache, 'public, max-age=31536000, immutable', url);
});

test('while a part is on its way, links are the browser\'s own', async (t) => {
  const page = await fresh(t);
  let release;
  const held = new Promise((done) => (release = done));
  await page.route(own('nodes'), async (route) => {
    await held;
    await route.abort().catch(() => {});
  });
  await page.goto('/nodes', { waitUntil: 'domcontentloaded' });
  // The main file has started: it listens, and the part isn't there.
  await page.waitForFunction(() => performance.getEntriesByName('gantry: started').length > 0);
  assert.equal(await page.locator('html[data-hydrated]').count(), 0);
  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await hydrated(page);
  assert.equal(page.documents, 2, 'the browser went there');
  release();
});

test('a part that is gone: the browser goes to the address by itself', async (t) => {
  const page = await fresh(t);
  await visit(page, '/nodes');
  await page.route(own('catalog'), (route) => route.fulfill({ status: 404, body: '' }), { times: 1 });
  await rail(page, 'Catalog').click();
  await page.waitForURL(/\/catalog$/);
  await hydrated(page);
  await page.getByRole('heading', { name: 'Catalog', level: 1 }).waitFor();
  assert.equal(page.documents, 2);
});

test('a page whose own part can\'t be had is loaded once more, and then stays readable', async (t) => {
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
  assert.equal(await page.evaluate(() => sessionStorage.getItem('gantry-reloaded')), null, 'it is forgotten where all went well');
});
