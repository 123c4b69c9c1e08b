// The page that decides: comments on single changes keep the gate shut, and what is new since the last look is said.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertQuiet, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { propose, putRoleData, signIn, submit } from './lib/console.mjs';

let browser;
let gantry;
let ada;
let bo;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'review' });
  ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

test('a thread on a single change keeps the gate shut until it is resolved', { timeout: 240_000 }, async (t) => {
  let review;
  await t.test('the author proposes data and submits', async () => {
    await visit(ada, '/deployments/web');
    await propose(ada);
    await putRoleData(ada, 'app-check', { check: { expect: 'well' } });
    review = await submit(ada, 'Another answer');
  });

  await t.test('the reviewer comments on one value', async () => {
    await visit(bo, `/reviews/${review}`);
    await bo.getByRole('link', { name: /^Comment on app-check, / }).first().click();
    await bo.waitForURL(/tab=discussion&about=/);
    await bo.getByLabel(/^Open a thread on app-check in web, /).fill('Why this answer?');
    await bo.getByRole('button', { name: 'Open thread' }).click();
    await bo.locator('.thread.open').getByText('Why this answer?').waitFor();
    await bo.getByRole('link', { name: 'Discussion 1 open' }).waitFor();
    await assertAccessible(bo);
    await screenshot(bo, 'review-discussion-open');
  });

  await t.test('approved it still can not be committed, and the checks say why', async () => {
    await bo.getByRole('button', { name: 'Approve' }).click();
    await bo.getByText('1 of 1 approvals').first().waitFor();
    assert.ok(await bo.getByRole('button', { name: 'Commit' }).isDisabled());
    await bo.getByRole('link', { name: /^Checks 1/ }).click();
    await bo.getByRole('row', { name: /Threads/ }).getByText('One thread is open').waitFor();
    await assertAccessible(bo);
  });

  await t.test('the author sees it at once, answers, and may not wave it away', async () => {
    await ada.getByRole('link', { name: 'Discussion 1 open' }).click();
    const thread = ada.locator('.thread.open');
    await thread.getByText('Why this answer?').waitFor();
    assert.ok(await thread.getByRole('button', { name: 'Resolve' }).isDisabled());
    await thread.getByText('whoever opened this thread resolves it').waitFor();
    await thread.getByLabel('Reply').fill('The old one was a lie.');
    await thread.getByRole('button', { name: 'Reply' }).click();
    await thread.getByText('The old one was a lie.').waitFor();
  });

  await t.test('resolved, the gate opens', async () => {
    await bo.getByRole('link', { name: /^Discussion/ }).click();
    await bo.getByText('The old one was a lie.').waitFor();
    await bo.getByRole('button', { name: 'Resolve' }).click();
    await bo.locator('.thread').getByText('resolved').waitFor();
    await bo.getByRole('button', { name: 'Commit' }).and(bo.locator(':enabled')).waitFor();
  });

  await t.test('the next version says what is new since the last look', async () => {
    await visit(ada, '/deployments/web');
    await putRoleData(ada, 'app-check', { check: { expect: 'fine' } });
    const next = await submit(ada, 'Another answer, again');
    await visit(bo, `/reviews/${next}`);
    await bo.getByText(`You looked at review ${review} of this change before`).waitFor();
    await bo.getByRole('link', { name: 'What differs' }).click();
    await bo.waitForURL(/tab=since/);
    await bo.getByText('"well"').first().waitFor();
    await bo.getByText('"fine"').first().waitFor();
    await assertAccessible(bo);
    await screenshot(bo, 'review-since');
  });

  assertQuiet(ada);
  assertQuiet(bo);
});
