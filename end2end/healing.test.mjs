// Pages heal by themselves: failed loads run again, panels close whatever they show, and the page
// of a run names the run that replaced it. No page is reloaded here.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { findNoderole, commit, propose, putRoleData, signIn, submit, waitForState } from './lib/console.mjs';
import { commitPendingChange } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';

let browser;
let gantry;
let ada;
let bo;
let board;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'healing' });
  ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  ({ board } = await commitPendingChange(bo));
}, { timeout: 300_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const problem = (status, title) => ({
  status,
  contentType: 'application/json',
  body: JSON.stringify({ type: 'about:blank', status, code: 'test', title, detail: 'For a test.', errors: [] }),
});
const rail = (name) => ada.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true });
const again = () => ada.getByRole('main').getByRole('link', { name: 'Try again' });
const never = () => ada.evaluate(() => (window.neverReloaded = true));
const reloaded = async () => !(await ada.evaluate(() => window.neverReloaded === true));
const forget = () => (ada.problems.length = 0);

test('a page loads when the browser is online again', { timeout: 60_000 }, async () => {
  // The code of the page is loaded, but not its data.
  await visit(ada, '/runs');
  await rail('Nodes').click();
  await ada.getByRole('heading', { name: 'Nodes', exact: true }).waitFor();
  await never();
  await ada.context().setOffline(true);
  await rail('Runs').click();
  await ada.getByRole('heading', { name: 'Cannot reach the server' }).waitFor();
  await again().waitFor();
  await assertAccessible(ada);
  await ada.context().setOffline(false);
  // Faster than the timer of a retry that has already failed several times.
  await ada.getByRole('table').waitFor({ timeout: 10_000 });
  assert.equal(await again().count(), 0);
  assert.equal(await reloaded(), false);
  await ada.locator('[data-live]').filter({ hasText: 'live' }).waitFor({ timeout: 30_000 });

  // The code of the page is not loaded either. With a module in one file, it is.
  await ada.context().setOffline(true);
  await rail('Audit').click();
  await ada.getByRole('heading', { name: 'Cannot reach the server' }).waitFor();
  await ada.context().setOffline(false);
  await ada.getByRole('heading', { name: 'Audit', exact: true }).waitFor({ timeout: 30_000 });
  forget();
});

test('a failed load runs again by itself and on request', { timeout: 60_000 }, async () => {
  let requests = 0;
  await visit(ada, '/nodes');
  await never();
  await ada.route('**/call/runs', (route) => {
    requests += 1;
    return route.fulfill(problem(503, 'Busy'));
  });
  await rail('Runs').click();
  await ada.getByRole('heading', { name: 'Busy' }).waitFor();
  assert.equal(requests, 1);
  await again().click();
  for (let n = 0; n < 50 && requests < 2; n += 1) await ada.waitForTimeout(50);
  assert.equal(requests, 2, 'a click must retry without waiting for the timer');
  await ada.unroute('**/call/runs');
  await ada.getByRole('table').waitFor({ timeout: 15_000 });
  assert.equal(await reloaded(), false);
  forget();
});

test('a refusal is not repeated', { timeout: 60_000 }, async () => {
  for (const [status, title] of [[403, 'Not allowed'], [404, 'Not there'], [422, 'Not valid']]) {
    let requests = 0;
    await visit(ada, '/nodes');
    await ada.route('**/call/runs', (route) => {
      requests += 1;
      return route.fulfill(problem(status, title));
    });
    await rail('Runs').click();
    await ada.getByRole('heading', { name: title }).waitFor();
    await ada.waitForTimeout(3_000);
    assert.equal(requests, 1, `${status}`);
    assert.equal(await again().count(), 0, `${status}`);
    await ada.unroute('**/call/runs');
  }
  forget();
});

test('a panel closes while it loads and after it failed', { timeout: 120_000 }, async () => {
  const panel = ada.locator('aside.panel');
  const first = () => ada.locator('[data-noderole]').first();
  const closes = [
    () => panel.getByRole('link', { name: 'Close' }).click(),
    () => ada.keyboard.press('Escape'),
    () => ada.goBack(),
  ];
  const hung = [];
  const answers = [
    ['loading', (route) => void hung.push(route), () => panel.getByText('Loading').first().waitFor()],
    ['failed', (route) => route.fulfill(problem(503, 'Busy')), () => panel.getByText('Busy').waitFor()],
    ['refused', (route) => route.fulfill(problem(404, 'Not there')), () => panel.getByText('Not there').waitFor()],
    ['offline', (route) => route.abort('internetdisconnected'), () => panel.getByText('Cannot reach the server').waitFor()],
  ];
  await visit(ada, board);
  await never();
  for (const [name, answer, shown] of answers) {
    await ada.route('**/call/noderole', answer);
    for (const close of closes) {
      await first().click();
      await panel.waitFor();
      await shown();
      await close();
      await panel.waitFor({ state: 'detached' });
      assert.ok(!ada.url().includes('noderole='), `${name}: ${ada.url()}`);
    }
    // Otherwise their late responses would be those of the next panel, which is of the same
    // noderole.
    for (const route of hung.splice(0)) await route.abort();
    await ada.unroute('**/call/noderole');
  }
  // A panel that failed loads as soon as it can.
  await ada.route('**/call/noderole', (route) => route.fulfill(problem(503, 'Busy')));
  await first().click();
  await panel.getByText('Busy').waitFor();
  await panel.getByRole('link', { name: 'Try again' }).waitFor();
  await ada.unroute('**/call/noderole');
  await panel.getByRole('heading', { name: 'Dependencies' }).waitFor({ timeout: 15_000 });
  await ada.keyboard.press('Escape');
  await panel.waitFor({ state: 'detached' });
  assert.equal(await reloaded(), false);
  forget();
});

test('a dialog closes while it loads, and with Back', { timeout: 120_000 }, async () => {
  await visit(ada, '/deployments/web');
  await propose(ada);
  const dialog = ada.getByRole('dialog', { name: /^Propose changes on / });
  for (const close of [
    () => dialog.getByRole('button', { name: 'Close' }).click(),
    () => ada.keyboard.press('Escape'),
  ]) {
    await ada.locator('.head').getByRole('button', { name: 'More…' }).click();
    await dialog.waitFor();
    await close();
    await dialog.waitFor({ state: 'hidden' });
  }
  // Back also changes the address, here to the same board.
  await ada.getByRole('list', { name: 'Steps by state' }).getByRole('link', { name: 'Only noderoles that have not converged' }).click();
  await ada.waitForURL(/state=not-active/);
  await ada.locator('.head').getByRole('button', { name: 'More…' }).click();
  await dialog.waitFor();
  await ada.goBack();
  await dialog.waitFor({ state: 'hidden' });
  assertNoProblems(ada);
});

/** The filter of a board hides the ACTIVE noderoles and keeps all others. */
async function filtersActive(page) {
  const states = page.getByRole('list', { name: 'Steps by state' });
  const active = page.locator('.grid [data-noderole][data-state=active]');
  const others = page.locator('.grid [data-noderole]:not([data-state=active])');
  await active.first().waitFor();
  const shown = [await active.count(), await others.count()];
  await states.getByRole('link', { name: 'Only noderoles that have not converged' }).click();
  await page.waitForURL(/[?&]state=not-active/);
  await active.first().waitFor({ state: 'detached' });
  assert.equal(await others.count(), shown[1], 'all others stay');
  await states.getByRole('link', { name: 'Show all noderoles' }).click();
  await page.waitForURL((url) => !url.searchParams.has('state'));
  await active.first().waitFor();
  assert.deepEqual([await active.count(), await others.count()], shown);
}

test('the page of a run names the run that replaced it', { timeout: 300_000 }, async () => {
  await visit(ada, '/deployments/web');
  await ada.getByRole('button', { name: 'Bind nodes to app-check' }).click();
  await ada.getByRole('checkbox', { name: /^n1/ }).check();
  await ada.getByRole('button', { name: 'Bind 1 node' }).click();
  await findNoderole(ada, 'app-check', 'n1').waitFor();
  await putRoleData(ada, 'app-check', { check: { fail: true } });
  await commit(bo, await submit(ada, 'A step that fails'));
  await visit(ada, '/deployments/web');
  await waitForState(ada, 'app-check', 'n1', 'error');
  await filtersActive(ada);
  const noderole = await findNoderole(ada, 'app-check', 'n1').getAttribute('data-noderole');
  const runs = async () => (await (await ada.request.get(`/api/v1/noderoles/${noderole}`)).json()).runs;
  const [old] = await runs();
  await visit(ada, `/runs/${old.id}`);
  await never();
  const newer = ada.getByRole('main').locator('a.to-newest');
  assert.equal(await newer.count(), 0);
  await ada.locator('[data-live]').filter({ hasText: 'live' }).waitFor();
  const answer = await ada.request.post(`/api/v1/noderoles/${noderole}/retry`, {
    headers: { 'X-Gantry': '1' },
    data: { reason: 'a test of the page of a run' },
  });
  assert.ok(answer.ok(), await answer.text());
  await newer.waitFor({ timeout: 8_000 });
  await ada.getByText('replaced this run').waitFor();
  await inEachVariant(ada, () => assertFits(ada));
  await assertAccessible(ada);
  await screenshot(ada, 'run-replaced');
  assert.equal(await reloaded(), false);
  await newer.click();
  await ada.waitForFunction((old) => location.pathname !== `/runs/${old}`, old.id);
  assert.ok(Number(new URL(ada.url()).pathname.split('/')[2]) > old.id);
  assertNoProblems(ada);
});
