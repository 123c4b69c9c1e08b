// The main job from end to end, as two people do it: drag a node onto a role, review, commit, watch it run; then break it and
// mend it by a reviewed change.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertQuiet, openBrowser, openPage, signIn, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';

let browser, gantry, ada, bo;
before(async () => {
  [browser, gantry] = await Promise.all([openBrowser(), start({ name: 'story' })]);
  ada = await openPage(browser, gantry);
  bo = await openPage(browser, gantry);
  await signIn(ada, gantry, 'author');
  await signIn(bo, gantry, 'reviewer');
});
after(async () => {
  await browser?.close();
  await gantry?.stop();
});

const row = (page, role) => page.locator(`[data-role="${role}"]`);
const chip = (page, role, node) => row(page, role).locator('[data-noderole]').filter({ hasText: node });
const tray = (page, node) => page.locator('[data-tray]').filter({ hasText: node });

/** Waits until a role's chip on a node has a state, without a reload. */
const becomes = (page, role, node, state, timeout = 60_000) =>
  row(page, role).locator(`[data-noderole][data-state="${state}"]`).filter({ hasText: node }).waitFor({ timeout });

/** Submits the open proposal; gives the review's address. */
async function submit(page, title) {
  await page.getByRole('button', { name: 'Review changes' }).click();
  await page.getByLabel('Title').fill(title);
  await page.getByRole('button', { name: 'Submit for review' }).click();
  await page.waitForURL(/\/reviews\/\d+/);
  return new URL(page.url()).pathname;
}

/** bo reads and approves, ada commits. */
async function pass(review) {
  await visit(bo, review);
  await bo.getByRole('button', { name: 'Approve' }).click();
  await bo.getByText('1 of 1 approvals').waitFor();
  const commit = ada.getByRole('button', { name: 'Commit', exact: true });
  await ada.locator('button:not([disabled])', { hasText: /^Commit$/ }).waitFor(); // it opens live
  await commit.click();
  await ada.getByText(/It is target/).waitFor();
}

test('a node is dragged onto a role, and what comes along is told before it is dropped', async () => {
  await visit(ada, '/deployments/web');
  await ada.getByRole('button', { name: 'Propose changes' }).click();
  await ada.getByRole('region', { name: 'Open proposal' }).waitFor();
  await tray(ada, 'n1').hover();
  await ada.mouse.down();
  await row(ada, 'app-check').hover();
  await row(ada, 'app-check').hover();
  await row(ada, 'app-check').getByText(/brought by|brings/i).first().waitFor();
  await ada.mouse.up();
  await chip(ada, 'app-check', 'n1').waitFor();
  assert.equal(await chip(ada, 'app-check', 'n1').getAttribute('data-state'), 'proposed');
  assert.match(await ada.getByRole('region', { name: 'Open proposal' }).innerText(), /\+7 noderoles/);
  assertQuiet(ada);
});

test('by the keyboard and by the menu, the same', async () => {
  await tray(ada, 'n1').focus();
  await ada.keyboard.press('Space');
  for (let i = 0; i < 12; i++) {
    if (await row(ada, 'proxy').evaluate((found) => found.className.includes('over') || found.hasAttribute('data-over'))) break;
    await ada.keyboard.press('ArrowDown');
  }
  await ada.keyboard.press('Enter');
  await chip(ada, 'proxy', 'n1').waitFor();
  await row(ada, 'web-ready').getByRole('button', { name: 'Bind nodes to web-ready' }).click();
  const dialog = ada.locator('dialog[open]');
  await dialog.getByText('n1', { exact: false }).first().click();
  await dialog.getByRole('button', { name: /bind/i }).last().click();
  await chip(ada, 'web-ready', 'n1').waitFor();
  assertQuiet(ada);
});

test('the author is refused, the reviewer is not, and it runs to ACTIVE while the board is watched', async () => {
  const review = await submit(ada, 'The web on n1');
  assert.ok(await ada.getByRole('button', { name: 'Approve' }).isDisabled());
  await ada.getByText('You wrote part of this change, so somebody else has to review it.').waitFor();
  assert.ok(await ada.getByRole('button', { name: 'Commit', exact: true }).isDisabled());

  await visit(bo, review);
  await bo.getByText('brought by runtime, implicit').first().waitFor();
  await pass(review);

  await visit(bo, '/deployments/web');
  await visit(ada, '/deployments/web');
  await becomes(ada, 'web-ready', 'n1', 'active');
  await becomes(bo, 'web-ready', 'n1', 'active');
  assertQuiet(ada);
  assertQuiet(bo);
});

test('a run shows its log and what it added', async () => {
  await visit(ada, '/runs');
  await ada.getByRole('row').filter({ hasText: 'runtime' }).getByRole('link').first().click();
  await ada.waitForURL(/\/runs\/\d+/);
  await ada.getByText('unpacking, which takes 1 s').waitFor();
  await ada.getByText('"version": "1"').first().waitFor(); // its wall
  await visit(ada, new URL(ada.url()).pathname); // and when it is asked for by its address
  await ada.getByText('unpacking, which takes 1 s').waitFor();
  assertQuiet(ada);
});

test('a role that fails says why and blocks what depends on it; a reviewed change mends it', async () => {
  const setCheck = async (fail, title) => {
    await visit(ada, '/deployments/web');
    await ada.getByRole('button', { name: 'Propose changes' }).click();
    await ada.getByRole('button', { name: 'Data of app-check' }).click();
    const dialog = ada.locator('dialog[open]');
    await dialog.getByLabel('As JSON').fill(JSON.stringify({ check: { fail } }));
    await dialog.getByRole('button', { name: 'Put into the proposal' }).click();
    await ada.getByText('1 edit', { exact: false }).first().waitFor();
    await pass(await submit(ada, title));
    await visit(ada, '/deployments/web');
  };
  await setCheck(true, 'Let the check fail');
  await becomes(ada, 'app-check', 'n1', 'error');
  await becomes(ada, 'proxy', 'n1', 'blocked');
  await becomes(ada, 'web-ready', 'n1', 'blocked');
  await chip(ada, 'app-check', 'n1').click();
  await ada.getByText(/check\.fail|on purpose|fail/).first().waitFor();

  await setCheck(false, 'Let the check pass');
  await becomes(ada, 'app-check', 'n1', 'active');
  await becomes(ada, 'web-ready', 'n1', 'active');
  assertQuiet(ada);
});
