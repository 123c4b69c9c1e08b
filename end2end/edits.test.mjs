// What a proposal can say beside binding, each by its own way on the board, and each taken back by its name.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertQuiet, openBrowser, openPage, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { chip, commit, propose, row, signIn, submit } from './lib/console.mjs';

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'edits' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
  await visit(page, '/deployments/web');
  await propose(page);
  // A node that is web's own, not only its proposal's.
  await page.locator('.tray').getByRole('button', { name: 'n6', exact: true }).dragTo(row(page, 'metrics').locator('.cell'));
  await chip(page, 'metrics', 'n6').waitFor();
  const review = await submit(page, 'A node of its own');
  const reviewer = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  await commit(reviewer, review);
  await reviewer.context().close();
  await visit(page, '/deployments/web');
  await propose(page);
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const undo = (what) => page.getByRole('button', { name: what });

test('a chip is unbound by Delete, and what needs it refuses', { timeout: 90_000 }, async () => {
  await page.locator('.tray').getByRole('button', { name: 'n1', exact: true }).dragTo(row(page, 'app').locator('.cell'));
  await chip(page, 'app', 'n1').waitFor();
  await undo(/^Undo “bind n1 to app”/).waitFor();
  // A chip that only the proposal has is no link: it takes the focus all the same.
  await chip(page, 'app', 'n1').focus();
  await page.keyboard.press('Delete');
  await chip(page, 'app', 'n1').waitFor({ state: 'detached' });
  await undo(/^Undo “unbind app from n1/).click();
  await chip(page, 'app', 'n1').waitFor();
  assertQuiet(page);
});

test('a role without nodes goes and comes back', { timeout: 60_000 }, async () => {
  assert.ok(await page.getByRole('button', { name: 'Remove role app', exact: true }).isDisabled(), 'nodes carry it');
  await page.getByRole('button', { name: 'Remove role proxy' }).click();
  await undo(/^Undo “remove role proxy/).waitFor();
  await undo(/^Undo “remove role proxy/).click();
  await row(page, 'proxy').waitFor();
  assertQuiet(page);
});

test('a machine and a deployment go only by their names', { timeout: 90_000 }, async () => {
  await page.locator('.tray').getByRole('button', { name: 'n5', exact: true }).click();
  assert.ok(await page.getByRole('button', { name: 'Give up…' }).isDisabled(), 'it is not of this deployment');
  await page.locator('.tray').getByRole('button', { name: 'Clear' }).click();
  await page.locator('.tray').getByRole('button', { name: 'n6', exact: true }).click();
  await page.getByRole('button', { name: 'Give up…' }).click();
  const giveUp = page.getByRole('dialog', { name: 'Give n6 up?' });
  await giveUp.getByLabel('Reason').fill('It burnt down');
  assert.ok(await giveUp.getByRole('button', { name: 'Put into the proposal' }).isDisabled());
  await giveUp.getByLabel(/^Type n6/).fill('n6');
  await giveUp.getByRole('button', { name: 'Put into the proposal' }).click();
  await undo(/^Undo “give up n6/).click();
  await undo(/^Redo “give up n6/).waitFor();

  await page.getByRole('button', { name: 'Child deployment' }).click();
  const child = page.getByRole('dialog', { name: 'Child deployment' });
  await child.getByLabel('Name').fill('web-canary');
  await assertAccessible(page);
  await child.getByRole('button', { name: 'Put into the proposal' }).click();
  await undo(/^Undo “create web-canary below web/).waitFor();

  await page.getByRole('button', { name: 'Remove deployment' }).click();
  const remove = page.getByRole('dialog', { name: 'Remove web?' });
  assert.ok(await remove.getByRole('button', { name: 'Put into the proposal' }).isDisabled());
  await page.keyboard.press('Escape');
  assertQuiet(page);
});
