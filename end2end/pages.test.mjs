// Every page alone: a direct visit hydrates, the page fits in every width, and it is accessible.
//
// Gantry has data: the demo's pending change is approved, committed and rolled out first.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { signIn } from './lib/console.mjs';

let browser;
let gantry;
let page;
const places = [];
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'pages' });
  page = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  const review = await theWaitingReview();
  const board = await committed(review);
  const [run, noderole] = await somethingThatRan(board);
  places.push(
    ['overview', '/', 'Overview'],
    ['workers', '/workers', 'Workers'],
    ['audit', '/audit?actor=bo', 'Audit'],
    ['search', '/search?q=edge', 'Search'],
    ['deployments', '/deployments', 'Deployments'],
    ['board', board, null],
    ['board-system', '/deployments/system', null],
    ['board-panel', `${board}?noderole=${noderole}`, null],
    ['noderole', `/noderoles/${noderole}`, null],
    ['noderole-data', `/noderoles/${noderole}/data`, null],
    ['nodes', '/nodes', 'Nodes'],
    ['node', '/nodes/n1.demo.gantry.internal', null],
    ['node-health-checks', '/nodes/n1.demo.gantry.internal/health-checks', null],
    ['node-noderoles', '/nodes/n1.demo.gantry.internal/noderoles', null],
    ['node-results', '/nodes/n1.demo.gantry.internal/results', null],
    ['pending', '/pending', 'Pending'],
    ['pending-empty', '/pending?deployment=edge', 'Pending'],
    ['reviews', '/reviews?state=any', 'Reviews'],
    ['reviews-empty', '/reviews?involvement=mine&deployment=edge&filter=nothing', 'Reviews'],
    ['proposals', '/reviews?state=drafts', 'Reviews'],
    ['review', review, null],
    ['review-waves', `${review}?tab=waves`, null],
    ['review-checks', `${review}?tab=checks`, null],
    ['review-discussion', `${review}?tab=discussion`, null],
    ['review-graph', `${review}?tab=graph`, null],
    ['graphs', '/graphs', 'Graphs'],
    ['graph-cluster', '/graph', 'Graph of the cluster'],
    ['graph', '/graph/edge', 'Graph of edge'],
    ['graph-table', '/graph/edge?as=table', 'Graph of edge'],
    ['runs', '/runs', 'Runs'],
    ['run', run, null],
    ['run-data', `${run}/data`, null],
    ['blueprints', '/blueprints', 'Blueprints'],
    ['blueprints-compared', '/blueprints?from=1&to=2', 'Blueprints'],
    ['blueprints-restore', '/blueprints?deployment=edge&from=2&to=1', 'Blueprints'],
    ['catalog', '/catalog', 'Catalog'],
    ['roles', '/catalog/roles', 'Roles'],
    ['role', '/catalog/roles/app', null],
    ['role-graph', '/catalog/graph', 'Dependencies of roles'],
    ['imports', '/catalog/imports', 'Imports'],
    ['policy', '/settings/policy', 'Policy'],
  );
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

test('every page hydrates without errors', { timeout: 240_000 }, async () => {
  for (const [name, path, heading] of places) {
    // Three times, to notice pages that hydrate only by chance.
    for (let time = 0; time < 3; time += 1) {
      const response = await visit(page, path);
      assert.equal(response.status(), 200, name);
      await page.getByRole('heading', { level: 1 }).first().waitFor();
      if (heading) await page.getByRole('heading', { level: 1, name: heading }).waitFor();
      await answers(page);
      assertNoProblems(page);
    }
  }
});

test('every response completes', { timeout: 240_000 }, async () => {
  // The server renders with several threads. A page that never finished was one in two hundred.
  for (let time = 0; time < 25; time += 1) {
    for (const [name, path] of places) {
      const answer = await page.request.get(path, { timeout: 15_000 });
      assert.equal(answer.status(), 200, name);
      await answer.dispose();
    }
  }
});

test('every page is accessible on every screen width', { timeout: 480_000 }, async (t) => {
  for (const [name, path] of places) {
    await t.test(name, async () => {
      await visit(page, path);
      await page.waitForLoadState('load');
      await inEachVariant(page, () => assertFits(page));
      await assertAccessible(page);
      await screenshot(page, `page-${name}`);
      assertNoProblems(page);
    });
  }
});

test('error and sign-in pages are accessible', { timeout: 120_000 }, async () => {
  const stranger = await openPage(browser, gantry);
  // The browser logs every rejected page.
  const refused = /Failed to load resource/;
  const cases = [
    [stranger, '/sign-in', 200],
    [page, '/elsewhere', 404],
    [page, '/runs/999999999', 404],
    [page, '/runs?state=sleeping', 400],
    [page, '/settings/people', 403],
  ];
  for (const [who, path, status] of cases) {
    assert.equal((await visit(who, path)).status(), status, path);
    await who.getByRole('heading', { level: 1 }).first().waitFor();
    await inEachVariant(who, () => assertFits(who));
    await assertAccessible(who);
    assertNoProblems(who, refused);
    who.problems.length = 0;
  }
  await stranger.context().close();
});

test('narrow screens reach every page without JavaScript', { timeout: 120_000 }, async () => {
  for (const scripts of [true, false]) {
    const narrow = await openPage(browser, { address: gantry.address, width: 390, scripts });
    await narrow.context().addCookies(await page.context().cookies());
    await narrow.goto('/nodes');
    const rail = narrow.getByRole('navigation', { name: 'Pages' });
    const seen = await rail.getByRole('link').all();
    for (const link of seen) {
      const { x, width } = await link.boundingBox();
      assert.ok(x >= 0 && x + width <= 390, `link ${await link.innerText()} is at ${x} with a width of ${width}`);
    }
    await rail.getByRole('button', { name: 'More' }).focus();
    await narrow.keyboard.press('Enter');
    const rest = narrow.locator('#rail-more');
    await rest.getByRole('link', { name: 'Audit' }).waitFor();
    assert.equal(seen.length + await rest.getByRole('link').count(), 12);
    await rest.getByRole('link', { name: 'Settings' }).focus();
    await narrow.keyboard.press('Enter');
    await narrow.waitForURL(/\/settings$/);
    await rest.waitFor({ state: 'hidden' });
    // A browser without scripts logs each script that it did not load.
    if (scripts) assertNoProblems(narrow);
    await narrow.context().close();
  }
});

/** Checks that the page is interactive: the color scheme switch of every page works. */
async function answers(page) {
  await page.getByRole('button', { name: /^Account of/ }).click();
  const choice = page.getByRole('group', { name: 'Theme' });
  for (const word of ['Dark', 'System']) {
    await choice.getByRole('button', { name: word }).click();
    await choice.getByRole('button', { name: word, pressed: true }).waitFor();
  }
  await page.keyboard.press('Escape');
}

test('a slow response shows a loading message', { timeout: 60_000 }, async () => {
  await visit(page, '/');
  let letGo;
  const released = new Promise((resolve) => { letGo = resolve; });
  const hold = async (route) => { await released; await route.continue(); };
  await page.route('**/call/nodes', hold);
  const busy = page.locator('main [aria-busy="true"]');
  try {
    await page.getByRole('navigation').getByRole('link', { name: 'Nodes' }).first().click();
    await page.getByRole('heading', { name: 'Nodes', level: 1 }).waitFor();
    await busy.waitFor();
    assert.equal(await busy.getByRole('status').textContent(), 'Loading');
    assert.equal(await page.locator('main tbody tr').count(), 0, 'rows must not appear before they are loaded');
    await assertAccessible(page);
  } finally {
    letGo();
  }
  await page.locator('main tbody tr').first().waitFor();
  assert.equal(await busy.count(), 0);
  await page.unroute('**/call/nodes', hold);
  assertNoProblems(page);
});

async function theWaitingReview() {
  await visit(page, '/reviews');
  const link = page.locator('main a[href^="/reviews/"]').first();
  await link.waitFor();
  return link.getAttribute('href');
}

async function committed(review) {
  await visit(page, review);
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('button', { name: 'Commit' }).click();
  await page.waitForURL(/\/blueprints\/\d+$/);
  return page.locator('main .head a[href^="/deployments/"]').getAttribute('href');
}

async function somethingThatRan(board) {
  await visit(page, board);
  await page.locator('[data-noderole][data-state=active]').first().waitFor({ timeout: 60_000 });
  const noderole = await page.locator('[data-noderole][data-state=active]').first().getAttribute('data-noderole');
  await visit(page, '/runs?state=succeeded');
  const run = page.locator('main td a[href^="/runs/"]').first();
  await run.waitFor();
  return [await run.getAttribute('href'), noderole];
}
