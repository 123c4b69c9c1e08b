// A board with many nodes: filtering and sorting the tray, binding a part of a selection, and the
// list of a full cell.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { propose, row, signIn } from './lib/console.mjs';

const MANY = 40;
const ROLE = 'metrics';
const name = (n) => `many-${String(n).padStart(2, '0')}`;

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'board' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
  for (let n = 1; n <= MANY; n += 1) {
    const answer = await page.request.post('/api/v1/nodes', {
      headers: { 'X-Gantry': '1' },
      data: { fqdn: `${name(n)}.example.com`, root: `/srv/nodes/${name(n)}` },
    });
    assert.equal(answer.status(), 201, await answer.text());
  }
  await visit(page, '/deployments/web');
  await propose(page);
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const tray = () => page.locator('[data-tray]').allInnerTexts();
const inTray = (n) => page.locator('[data-tray]').filter({ hasText: name(n) });
const added = () => page.getByRole('region', { name: 'Open proposal' });

test('tray filters appear in the address', { timeout: 60_000 }, async () => {
  const filter = page.getByLabel('Filter nodes by name or deployment');
  await filter.fill('many-1');
  await page.waitForFunction(() => document.querySelectorAll('[data-tray]').length === 10);
  await filter.press('Enter');
  await page.waitForURL(/nodes=many-1/);
  await page.getByLabel('Nodes to show').selectOption('Without roles');
  await page.waitForURL(/nodes=many-1&show=free/);
  await page.reload();
  await page.locator('html[data-hydrated]').waitFor({ state: 'attached' });
  assert.equal(await filter.inputValue(), 'many-1');
  assert.equal((await tray()).length, 10);
  await page.getByLabel('Nodes to show').selectOption('Dead');
  await page.waitForURL(/show=dead/);
  await page.getByLabel('Nodes to show').selectOption('All nodes');
  await filter.fill('');
  await filter.press('Enter');
  await page.waitForURL(/web$/);
  assert.ok((await tray()).length >= MANY);
  await assertAccessible(page);
});

test('commands run in order', { timeout: 90_000 }, async () => {
  const noderoles = () => row(page, ROLE).locator('.chip').filter({ hasText: /many-2[01]/ });
  const count = (n) => page.waitForFunction(
    ([role, n]) => [...document.querySelectorAll(`[data-bindable][data-role="${role}"] .chip`)].filter((noderole) => /many-2[01]/.test(noderole.textContent)).length === n,
    [ROLE, n],
  );
  await page.route('**/call/edit', async (route) => {
    await new Promise((done) => setTimeout(done, 2_000));
    await route.continue();
  }, { times: 1 });
  await inTray(20).dragTo(row(page, ROLE).locator('.cell'));
  await inTray(21).dragTo(row(page, ROLE).locator('.cell'));
  assert.equal(await noderoles().count(), 0, 'the first command is still running');
  await count(2);
  // As fast as a user can press: each undoes or redoes one edit.
  for (const [keys, left] of [['Control+z', 0], ['Control+Shift+Z', 2], ['Control+z', 0]]) {
    await page.keyboard.press(keys);
    await page.keyboard.press(keys);
    await count(left);
  }
  assertNoProblems(page);
});

test('undo is rejected if the board does not load', { timeout: 60_000 }, async () => {
  const bound = row(page, ROLE).locator('.chip').filter({ hasText: name(22) });
  const problem = { type: 'about:blank', status: 503, code: 'unavailable', title: 'Away', detail: 'Not now.', errors: [] };
  const alert = page.getByRole('alert').filter({ hasText: 'Pending commands were not executed (1 command)' });
  const away = (route) => route.fulfill({ status: 503, contentType: 'application/json', body: JSON.stringify(problem) });
  await page.route('**/call/board', away);
  try {
    const given = page.waitForRequest('**/call/edit');
    await inTray(22).dragTo(row(page, ROLE).locator('.cell'));
    // Undo also cancels a drop that was not sent yet, without waiting for the board.
    await given;
    await page.keyboard.press('Control+z');
    await alert.waitFor();
  } finally {
    await page.unroute('**/call/board', away);
  }
  // The committed change appears without a reload. The undone one does not.
  await bound.waitFor();
  await page.waitForTimeout(1_000);
  assert.equal(await bound.count(), 1);
  await page.keyboard.press('Control+z');
  await bound.waitFor({ state: 'detached' });
  assert.equal(await alert.count(), 0);
  assertNoProblems(page, /503/);
  page.problems.length = 0;
});

test('a pending drop is reverted by undo and by refusal', { timeout: 60_000 }, async () => {
  const bound = row(page, ROLE).locator('.chip').filter({ hasText: name(23) });
  // A page that can't plan asks the server for each drag. The response arrives after the drop.
  await page.route('**/call/planner', (route) => route.fulfill({ status: 503, body: '' }));
  await page.route('**/call/bind-options', async (route) => {
    await new Promise((done) => setTimeout(done, 1_500));
    await route.continue();
  });
  try {
    await visit(page, page.url());
    const drop = () => inTray(23).dragTo(row(page, ROLE).locator('.cell'));
    let answer = page.waitForResponse('**/call/bind-options');
    await drop();
    await page.keyboard.press('Control+z');
    await page.locator('[role=status][aria-live=assertive]').filter({ hasText: 'Canceled. Nothing was changed.' }).waitFor({ state: 'attached' });
    await answer;
    await page.waitForTimeout(500);
    assert.equal(await bound.count(), 0);

    await drop();
    await bound.waitFor();
    answer = page.waitForResponse('**/call/bind-options');
    await drop();
    await answer;
    await page.getByRole('alert').filter({ hasText: `${ROLE}: not possible. ${name(23)}` }).waitFor();
    // The board is frozen only while something is dragged.
    await page.keyboard.press('Control+z');
    await bound.waitFor({ state: 'detached' });

    // Keys pressed before the response are handled after it, in order.
    const hear = (words) => page.locator('[role=status][aria-live=assertive]').filter({ hasText: words }).waitFor({ state: 'attached' });
    await inTray(23).focus();
    answer = page.waitForResponse('**/call/bind-options');
    for (const key of ['Space', 'End', ROLE[0], 'Enter']) await page.keyboard.press(key);
    assert.equal(await bound.count(), 0, 'the result of the drop is not known yet');
    await answer;
    await hear(`binds ${name(23)} to ${ROLE}`);
    await bound.waitFor();
    await page.keyboard.press('Control+z');
    await bound.waitFor({ state: 'detached' });
  } finally {
    await page.unroute('**/call/planner');
    await page.unroute('**/call/bind-options');
  }
  assertNoProblems(page, /503/);
  page.problems.length = 0;
  await visit(page, page.url());
});

test('valid nodes of a selection are bound by keyboard', { timeout: 90_000 }, async () => {
  const before = await tray();
  // Three nodes via the menu.
  for (const n of [1, 2, 3]) await inTray(n).click();
  await page.keyboard.press('b');
  const menu = page.getByRole('dialog', { name: 'Bind 3 nodes to' });
  await menu.getByRole('radio', { name: new RegExp(`^${ROLE}\\b`) }).check();
  await menu.getByRole('button', { name: 'Bind 3 nodes' }).click();
  await row(page, ROLE).locator('.chip', { hasText: name(3) }).waitFor();
  assert.deepEqual(await tray(), before, 'the tray is sorted by name, whether or not a node is bound');

  // Then ten nodes, of which seven can be bound.
  await inTray(1).click();
  await inTray(10).click({ modifiers: ['Shift'] });
  await inTray(10).press(' ');
  await page.locator('[data-over]').waitFor();
  await page.keyboard.press('Home');
  const over = () => page.locator('[data-over]').getAttribute('data-role');
  for (let n = 0; n < 20 && (await over()) !== ROLE; n += 1) await page.keyboard.press('ArrowDown');
  assert.equal(await row(page, ROLE).getAttribute('data-drop'), 'mixed');
  const announcement = page.locator('[role=status][aria-live=assertive]');
  assert.match(await announcement.innerText(), /7 of 10 can be bound\. Cannot bind .* Press Enter to confirm\./);
  await page.keyboard.press('Enter');
  const ask = page.getByRole('dialog', { name: `Bind 7 of 10 nodes to ${ROLE}?` });
  await ask.getByText('many-01').first().waitFor();
  await screenshot(page, 'board-part');
  await ask.getByRole('button', { name: 'Bind valid nodes (7)' }).click();
  await row(page, ROLE).locator('.chip', { hasText: name(10) }).waitFor();
  await page.waitForFunction(() => /The proposal binds .* to metrics/.test(document.querySelector('[role=status][aria-live=assertive]').textContent));
  assert.deepEqual(await tray(), before);
});

test('changes by others do not move a dragged node', { timeout: 60_000 }, async () => {
  const before = await tray();
  await inTray(20).focus();
  await page.keyboard.press(' ');
  await page.locator('[data-over]').waitFor();
  const answer = await page.request.post('/api/v1/nodes', {
    headers: { 'X-Gantry': '1' },
    data: { fqdn: 'aaa.example.com', root: '/srv/nodes/aaa' },
  });
  assert.equal(answer.status(), 201);
  await page.waitForTimeout(1_500);
  assert.deepEqual(await tray(), before);
  await page.keyboard.press('Escape');
  await page.waitForFunction((n) => document.querySelectorAll('[data-tray]').length === n + 1, before.length);
  assert.match((await tray())[0], /aaa/);
});

test('a full cell opens its list', { timeout: 90_000 }, async () => {
  await inTray(11).click();
  await inTray(MANY).click({ modifiers: ['Shift'] });
  await page.keyboard.press('b');
  const menu = page.getByRole('dialog', { name: 'Bind 30 nodes to' });
  await menu.getByRole('radio', { name: new RegExp(`^${ROLE}\\b`) }).check();
  await menu.getByRole('button', { name: 'Bind 30 nodes' }).click();
  const more = row(page, ROLE).getByRole('link', { name: /more with metrics, show all$/ });
  await more.waitFor();
  assert.equal(await row(page, ROLE).locator('[data-noderole]').count(), 24);
  await screenshot(page, 'board-many');
  await more.click();
  const list = page.getByRole('dialog', { name: `Nodes with ${ROLE}` });
  await list.locator(`[data-noderole]`, { hasText: name(MANY) }).waitFor();
  const all = await list.locator('[data-noderole]').count();
  assert.ok(all >= MANY, `${all}`);
  await list.getByLabel('Filter by name').fill('many-4');
  await page.waitForFunction(() => document.querySelectorAll('dialog[open] [data-noderole]').length === 1);
  await assertAccessible(page);
  await screenshot(page, 'board-list');
  await page.keyboard.press('Escape');
  await added().getByRole('button', { name: /^Undo/ }).waitFor();
  await inEachVariant(page, () => assertFits(page));
  assertNoProblems(page);
});
