// A board with more nodes than its tray lists: each node is found, and can be bound.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertNoProblems, openBrowser, openPage, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { findNoderole, propose, row, signIn } from './lib/console.mjs';

const MANY = 1_100;
const LAST = 'z-1100';

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'many-nodes' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
  // At most 500 nodes in one request.
  for (let first = 1; first <= MANY; first += 500) {
    const count = Math.min(500, MANY - first + 1);
    const lines = Array.from({ length: count }, (_, n) => `z-${String(first + n).padStart(4, '0')}.example.com root=/srv/z/${first + n}`);
    const answer = await page.request.post('/api/v1/nodes/bulk', { headers: { 'X-Gantry': '1' }, data: { text: lines.join('\n') } });
    assert.equal(answer.status(), 201, await answer.text());
  }
  await visit(page, '/deployments/web');
  await propose(page);
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const tray = () => page.locator('[data-tray]');
const count = () => page.locator('.tray header').getByRole('status');

test('filter of the tray finds nodes that are not listed', { timeout: 60_000 }, async () => {
  const filter = page.getByLabel('Filter nodes by name or deployment');
  const all = Number(await count().innerText());
  assert.ok(all >= MANY, `${all}`);
  await filter.fill(LAST);
  await page.waitForFunction(() => document.querySelectorAll('[data-tray]').length === 1);
  assert.deepEqual(await tray().allInnerTexts(), [LAST]);
  assert.equal(await count().innerText(), `1 of ${all}`);
  await filter.fill('no-such-node');
  await page.getByText('No node matches.').waitFor();
  await filter.fill('z-0');
  await page.waitForFunction((all) => document.querySelector('.tray header [role=status]').textContent === `999 of ${all}`, all);

  // In the address.
  await visit(page, `/deployments/web?nodes=${LAST}`);
  await page.waitForFunction(() => document.querySelectorAll('[data-tray]').length === 1);
  assertNoProblems(page);
});

test('found node can be dragged and keeps its name', { timeout: 60_000 }, async () => {
  await tray().filter({ hasText: LAST }).dragTo(row(page, 'app').locator('.cell'));
  await page.getByRole('region', { name: 'Open proposal' }).getByRole('button', { name: /Undo.*z-1100/ }).waitFor();
  await page.getByLabel('Filter nodes by name or deployment').fill('');
  await findNoderole(page, 'app', LAST).waitFor();
});

test('nodes for a role are found beyond the list', { timeout: 60_000 }, async () => {
  await row(page, 'metrics').getByRole('button', { name: 'Bind nodes to metrics' }).click();
  const dialog = page.getByRole('dialog', { name: /metrics/ });
  await dialog.getByText('more nodes. Filter by name to see them.').waitFor();
  await dialog.getByRole('textbox', { name: 'Nodes' }).fill('z-1099');
  await dialog.getByRole('checkbox').waitFor();
  await dialog.getByRole('checkbox').check();
  await dialog.getByRole('button', { name: 'Bind 1 node' }).click();
  await findNoderole(page, 'metrics', 'z-1099').waitFor();
  assertNoProblems(page);
});
