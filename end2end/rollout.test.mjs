// The rollout of a blueprint: a commit leads to it, it shows failed steps and retries them, and the
// overview links to it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { findNoderole, commit, propose, putRoleData, row, signIn, submit } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

let browser;
let gantry;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'rollout' });
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

test('a rollout fails, is retried and converges', { timeout: 600_000 }, async (t) => {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  const bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  const failed = ada.getByRole('region', { name: 'Failed steps' });
  let page;

  await t.test('a commit leads to the page, which shows the failure', async () => {
    await visit(ada, '/deployments/web');
    await propose(ada);
    await ada.getByRole('button', { name: 'Bind nodes to app-check' }).click();
    await ada.getByRole('checkbox', { name: /^n1/ }).check();
    await ada.getByRole('button', { name: 'Bind 1 node' }).click();
    await findNoderole(ada, 'app-check', 'n1').waitFor();
    await putRoleData(ada, 'app-check', { check: { fail: true } });
    await commit(bo, await submit(ada, 'A rollout that fails'));
    page = new URL(bo.url()).pathname;
    assert.match(page, /^\/blueprints\/\d+$/);
    await bo.getByRole('heading', { name: /A rollout that fails/ }).waitFor();
    await visit(ada, page);
    await failed.getByRole('link', { name: /^app-check on n1/ }).waitFor({ timeout: 120_000 });
    await failed.getByText('told to fail').first().waitFor();
    await ada.getByText(/^\d+ of \d+ steps.*, 1 failed$/).waitFor();
    const timeline = ada.getByRole('region', { name: 'Timeline' });
    await timeline.getByRole('group', { name: /^\d+ runs?, the newest failed$/ }).first().waitFor();
    assert.ok(await timeline.locator('svg a[href^="/runs/"]').count() > 0);
    assert.ok(await ada.getByRole('region', { name: 'Waves' }).locator('li').count() > 1);
  });

  await t.test('the board counts the failure', async () => {
    await visit(bo, '/deployments/web?state=not-active');
    const states = row(bo, 'app-check').locator('.role-states');
    await states.getByText(/1 error/).waitFor();
    await states.locator('rect[data-state=error]').waitFor();
    await findNoderole(bo, 'app-check', 'n1').waitFor();
    assert.equal(await findNoderole(bo, 'app', 'n1').count(), 0, 'the ACTIVE noderole must not be listed');
  });

  await t.test('the page fits every window and is accessible', async () => {
    await inEachVariant(ada, () => assertFits(ada));
    await assertAccessible(ada);
    await screenshot(ada, 'rollout');
  });

  await t.test('the overview links to the rollout', async () => {
    await visit(bo, '/');
    const rollouts = bo.getByRole('region', { name: 'Rollouts' });
    await rollouts.getByRole('link', { name: /A rollout that fails/ }).waitFor();
    assert.equal(await rollouts.getByRole('link').first().getAttribute('href'), page);
    assert.equal(await bo.getByText('no problems').count(), 0);
    await assertAccessible(bo);
  });

  await t.test('failed steps are retried', async () => {
    await failed.getByLabel('Reason for the retry').fill('Perhaps it was the weather');
    await failed.getByRole('button', { name: 'Retry failed' }).click();
    await ada.getByText('1 step runs again.').first().waitFor();
    const run = ada.locator('.timeline a[data-state=error]');
    await run.nth(1).waitFor({ timeout: 120_000 });
    const answer = await ada.request.get(`/api/v1${page}/progress`);
    assert.equal((await answer.json()).failed[0].role, 'app-check');
  });

  await t.test('the page works without JavaScript', async () => {
    const plain = await openPage(browser, { address: gantry.address, scripts: false });
    await plain.context().addCookies(await ada.context().cookies());
    await plain.goto(page);
    await plain.getByRole('region', { name: 'Failed steps' }).getByText('told to fail').first().waitFor();
    await plain.getByLabel('Reason for the retry').fill('Once more');
    await plain.getByRole('button', { name: 'Retry failed' }).click();
    await plain.waitForURL(new RegExp(page));
    await plain.getByRole('region', { name: 'Progress' }).waitFor();
    await plain.context().close();
  });

  await t.test('a repaired rollout converges without a reload', async () => {
    await visit(ada, '/deployments/web');
    await propose(ada);
    await putRoleData(ada, 'app-check', { check: { fail: false } });
    await commit(bo, await submit(ada, 'A repaired rollout'));
    await bo.getByText('converged', { exact: true }).waitFor({ timeout: 120_000 });
    await bo.getByText(/^(\d+) of \1 steps?$/).waitFor();
    assert.equal(await bo.getByRole('button', { name: 'Retry failed' }).count(), 0);
    await visit(ada, '/blueprints');
    await ada.getByRole('link', { name: page.split('/')[2], exact: true }).click();
    await ada.waitForURL(new RegExp(`${page}$`));
  });

  await t.test('an unknown blueprint is reported', async () => {
    await visit(bo, '/blueprints/999999');
    await bo.getByText('Blueprint 999999 does not exist').first().waitFor();
  });

  assertNoProblems(ada);
  assertNoProblems(bo, /404/);
});
