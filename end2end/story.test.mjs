// The main story: propose roles on nodes, let another person review, watch the rollout, see a
// failure, and fix it.
//
// One Gantry, two people, each in a separate browser. No page is reloaded while it is watched.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertNoProblems, hydrated, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { findNoderole, commit, discard, propose, putRoleData, row, signIn, submit, waitForState } from './lib/console.mjs';

let browser;
let gantry;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'story' });
});
after(async () => {
  await browser.close();
  await gantry.stop();
});

test('a dragged node becomes ACTIVE, fails and recovers', { timeout: 600_000 }, async (t) => {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  const bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  let review;

  await t.test('the author opens an idle deployment', async () => {
    const siblings = ada.locator('td.name:not([data-depth="0"])');
    assert.ok((await siblings.count()) >= 2, 'the board must list at least two siblings');
    await ada.getByRole('row').filter({ hasText: 'in review' }).first().waitFor();
    await ada.getByRole('row').filter({ has: ada.locator('td[data-depth="1"]') }).filter({ hasNotText: 'in review' })
      .getByRole('link').first().click();
    await ada.getByRole('button', { name: 'Propose changes' }).waitFor();
    await ada.evaluate(() => (window.neverReloaded = true));
    assert.equal(await ada.locator('[draggable=true]').count(), 0, 'nodes must not be draggable without a proposal');
  });

  await t.test('dragging highlights valid roles and binds the node', async () => {
    await propose(ada);
    await ada.locator('.board[data-planner=here]').waitFor();
    const requests = [];
    ada.on('request', (request) => request.url().endsWith('/call/bind-options') && requests.push(request.url()));
    const node = ada.getByRole('button', { name: 'n1', exact: true });
    const from = await center(node);
    await ada.mouse.move(from.x, from.y);
    await ada.mouse.down();
    await ada.mouse.move(from.x - 30, from.y + 10, { steps: 3 });
    const target = row(ada, 'app-check');
    await target.and(ada.locator('[data-drop=legal]')).waitFor();
    await ada.locator('[data-bindable]:not([data-drop])').first().waitFor({ state: 'detached' });
    const to = await center(target);
    await ada.mouse.move(to.x, to.y, { steps: 8 });
    const preview = target.locator('.drop-text');
    await preview.filter({ hasText: 'also adds' }).waitFor();
    const promise = await preview.textContent();
    for (const part of ['noderoles', 'runtime', 'app', 'n1 moves from system to web', 'Wave ']) {
      assert.ok(promise.includes(part), `"${promise}" must contain ${part}`);
    }
    await ada.mouse.move(to.x + 1, to.y);
    await ada.mouse.up();

    await findNoderole(ada, 'app-check', 'n1').and(ada.locator('[data-state=proposed]')).waitFor();
    await findNoderole(ada, 'runtime', 'n1').and(ada.locator('[data-state=proposed]')).waitFor();
    const bar = ada.getByRole('region', { name: 'Open proposal' });
    await bar.getByText('1 edit').waitFor();
    assert.match(await bar.innerText(), /\+7 noderoles/);
    // The page's plan has the same hash as the server's, and the page did not ask the server for
    // it.
    await ada.locator('.board[data-planner=agreed]').waitFor();
    assert.deepEqual(requests, [], 'the browser must plan without a request');
  });

  await t.test('an existing noderole rejects the drop', async () => {
    const from = await center(ada.locator('.tray').getByRole('button', { name: 'n1', exact: true }));
    await ada.mouse.move(from.x, from.y);
    await ada.mouse.down();
    await ada.mouse.move(from.x - 30, from.y + 10, { steps: 3 });
    const refusing = row(ada, 'app-check').and(ada.locator('[data-drop=illegal]'));
    await refusing.waitFor();
    assert.match(await refusing.locator('.drop-text').textContent(), /n1.*already/);
    const to = await center(refusing);
    await ada.mouse.move(to.x, to.y, { steps: 5 });
    await ada.mouse.up();
    await ada.locator('[data-drop]').first().waitFor({ state: 'detached' });
    assert.match(await ada.getByRole('region', { name: 'Open proposal' }).innerText(), /\b1\s+edit\b/);
  });

  await t.test('undo and redo name their edit', async () => {
    const undo = ada.getByRole('button', { name: /^Undo “bind n1 to app-check”/ });
    await undo.waitFor();
    await ada.locator('h1').click();
    await ada.keyboard.press('Control+z');
    await findNoderole(ada, 'app-check', 'n1').waitFor({ state: 'detached' });
    await ada.getByRole('button', { name: /^Redo “bind n1 to app-check”/ }).waitFor();
    await ada.keyboard.press('Control+Shift+Z');
    await findNoderole(ada, 'app-check', 'n1').waitFor();
  });

  await t.test('the author submits and cannot approve', async () => {
    review = await submit(ada, 'A first application');
    await ada.getByText('You wrote part of this change, so another person must review it.').waitFor();
    assert.ok(await ada.getByRole('button', { name: 'Approve' }).isDisabled());
    assert.ok(await ada.getByRole('button', { name: 'Commit' }).isDisabled());
    // A request without the button gets the same response.
    const answer = await ada.evaluate(async (review) => {
      const body = new URLSearchParams({ review, kind: 'approve', reason: '' });
      const response = await fetch('/call/give-verdict', { method: 'POST', body, headers: { accept: 'application/json' } });
      return { status: response.status, problem: await response.json() };
    }, review);
    assert.equal(answer.status, 403);
    assert.match(answer.problem.detail, /wrote part of this change/i);
  });

  await t.test('the reviewer reads what changes, approves and commits', async () => {
    await visit(bo, '/reviews');
    await bo.getByRole('link', { name: 'A first application' }).click();
    await bo.getByRole('heading', { name: 'A first application' }).waitFor();
    for (const part of ['Adds app-check on n1', 'n1.demo.gantry.internal', 'required by', 'joins web']) {
      await bo.getByText(part).filter({ visible: true }).first().waitFor();
    }
    await bo.locator('.tabs').getByRole('link', { name: /^Waves/ }).click();
    await bo.getByText(/app-check on/).first().waitFor();
    assert.match(bo.url(), /tab=waves/);

    // The author's open page updates.
    await bo.getByRole('button', { name: 'Approve' }).click();
    await bo.getByText('1 of 1 approval').waitFor();
    await ada.getByText('1 of 1 approval').waitFor();
    await screenshot(bo, 'story-review');

    await ada.getByRole('link', { name: 'web', exact: true }).first().click();
    await ada.locator('[data-noderole]').first().waitFor();
    await watchStates(ada);
    await bo.getByRole('button', { name: 'Commit' }).click();
    await bo.waitForURL(/\/blueprints\/\d+$/);
  });

  await t.test('the board updates until all steps are ACTIVE', async () => {
    for (const role of ['base-files', 'runtime', 'app', 'app-check']) await waitForState(ada, role, 'n1', 'active');
    await ada.getByText('COMMITTED', { exact: true }).waitFor();
    assert.equal(await ada.evaluate(() => window.neverReloaded), true, 'without a reload');
    const seen = await ada.evaluate(() => window.seenStates);
    for (const state of ['blocked', 'transition', 'active']) assert.ok(seen.includes(state), `${state} is missing in ${seen}`);
    assertNoProblems(ada, /403/); // the response to the request without the button
  });

  await t.test('a run shows its log and output', async () => {
    await findNoderole(ada, 'app', 'n1').click();
    const panel = ada.getByRole('complementary', { name: 'app on n1' });
    await panel.getByText('ACTIVE').first().waitFor();
    assert.match(ada.url(), /noderole=/);
    await panel.getByRole('link', { name: /^succeeded run/ }).first().click();
    await ada.getByText('app started as').waitFor();
    await ada.getByText('"pid":').first().waitFor();
    await ada.getByRole('link', { name: /^review / }).waitFor();
    const download = ada.waitForEvent('download');
    await ada.getByRole('link', { name: 'Download' }).click();
    assert.match((await download).suggestedFilename(), /^run-\d+\.log$/);
    await ada.getByRole('searchbox', { name: 'Search the log' }).fill('STARTED');
    await ada.getByText('1 line', { exact: true }).or(ada.getByText(/^1 of 1, line \d+$/)).waitFor();
  });

  await t.test('a failed step shows ERROR and blocks its children', async () => {
    await visit(ada, '/deployments/web');
    await propose(ada);
    await putRoleData(ada, 'app-check', { check: { fail: true } });
    // A dependency that is not applied yet: n1 gets the proxy with the row's button.
    await ada.getByRole('button', { name: 'Bind nodes to proxy' }).click();
    await ada.getByRole('checkbox', { name: /^n1/ }).check();
    await ada.getByRole('dialog').getByText(/\+ 1 noderole/).waitFor();
    await ada.getByRole('button', { name: 'Bind 1 node' }).click();
    await findNoderole(ada, 'proxy', 'n1').waitFor();
    review = await submit(ada, 'See it fail');
    await commit(bo, review, ['/check', 'true']);

    await visit(ada, '/deployments/web');
    await waitForState(ada, 'app-check', 'n1', 'error');
    await waitForState(ada, 'proxy', 'n1', 'blocked');
    // The header shows COMMITTED and the steps by state.
    await ada.getByText('COMMITTED', { exact: true }).waitFor();
    const standing = ada.getByRole('list', { name: 'Steps by state' });
    await standing.getByRole('link', { name: /^\d+ blocked$/ }).waitFor();
    assert.match(await standing.getByRole('link', { name: /^\d+ error$/ }).getAttribute('href'), /pending\?deployment=web&reason=failed$/);
    await findNoderole(ada, 'app-check', 'n1').click();
    const panel = ada.getByRole('complementary', { name: 'app-check on n1' });
    await panel.getByText('told to fail').first().waitFor();
    await screenshot(ada, 'story-error');
    await panel.getByLabel('Reason for the retry').fill('Perhaps it was the weather');
    await panel.getByRole('button', { name: 'Retry' }).click();
    await panel.getByRole('link', { name: /^failed run/ }).nth(1).waitFor();
    await ada.keyboard.press('Escape');
    await panel.waitFor({ state: 'detached' });
    await findNoderole(ada, 'proxy', 'n1').click();
    await ada.getByRole('complementary').getByText(/app-check/).first().waitFor();
    await ada.getByRole('link', { name: 'Close' }).click();
  });

  await t.test('a reviewed change of data repairs the step', async () => {
    await propose(ada);
    await putRoleData(ada, 'app-check', { check: { fail: false } });
    review = await submit(ada, 'Mend it');
    await commit(bo, review, ['/check/fail', 'false']);
    await visit(ada, '/deployments/web');
    await waitForState(ada, 'app-check', 'n1', 'active');
    await waitForState(ada, 'proxy', 'n1', 'active');
    await ada.getByRole('list', { name: 'Steps by state' }).getByText('error').waitFor({ state: 'detached' });
  });

  assertNoProblems(ada, /403/);
  assertNoProblems(bo);
});

test('the keyboard binds nodes with announcements', { timeout: 120_000 }, async () => {
  const page = await asSignedIn();
  await visit(page, '/deployments/web');
  await propose(page);
  const heard = () => page.locator('[aria-live=assertive]').innerText();
  const hear = async (words) => page.locator('[aria-live=assertive]').filter({ hasText: words }).waitFor({ state: 'attached' });

  await page.locator('[data-tray]').first().focus();
  await page.keyboard.press('ArrowRight');
  const name = await page.evaluate(() => document.activeElement.innerText.trim());
  await page.keyboard.press('Space');
  await hear('Enter');
  await page.keyboard.press('Escape');
  await hear('Canceled');
  await page.locator('[data-drop]').first().waitFor({ state: 'detached' });

  await page.keyboard.press('Space');
  await hear('Enter');
  await page.keyboard.press('End');
  await page.keyboard.press('Home');
  await page.keyboard.press('m'); // by its first letter
  await hear('metrics: allowed');
  assert.match(await heard(), /\+ \d+ noderole/);
  await page.locator('[data-over]').and(row(page, 'metrics')).waitFor();
  await page.keyboard.press('Enter');
  await hear(`binds ${name} to metrics`);
  await findNoderole(page, 'metrics', name).waitFor();

  await page.keyboard.press('Control+z');
  await hear(`Undone: bind ${name} to metrics`);
  await findNoderole(page, 'metrics', name).waitFor({ state: 'detached' });
  await discard(page);
  assertNoProblems(page);
  await page.context().close();
});

test('Bind to… offers the valid nodes of a selection', { timeout: 120_000 }, async () => {
  const page = await asSignedIn();
  await visit(page, '/deployments/web');
  await propose(page);
  for (const name of ['n1', 'n3', 'n4']) await page.locator('.tray').getByRole('button', { name, exact: true }).click();
  await page.getByRole('button', { name: 'Bind 3 nodes to…' }).waitFor();
  await page.locator('h1').click();
  await page.keyboard.press('b');
  const dialog = page.getByRole('dialog', { name: 'Bind 3 nodes to' });
  await dialog.getByLabel('Role', { exact: true }).fill('app');
  await dialog.getByRole('radio', { name: /^app / }).check();
  await dialog.getByText(/2 of 3 can be bound\. Cannot bind n1/).first().waitFor();
  await dialog.getByRole('button', { name: 'Bind 2 of 3 nodes' }).click();
  await findNoderole(page, 'app', 'n3').waitFor();
  await findNoderole(page, 'app', 'n4').waitFor();

  // By drag and drop: the dialog has every reason.
  for (const name of ['n3', 'n5', 'n6']) {
    const node = page.locator('.tray').getByRole('button', { name, exact: true });
    if (await node.count()) await node.click();
  }
  await page.locator('.tray').getByRole('button', { name: 'n6', exact: true }).dragTo(row(page, 'app').locator('.cell'));
  const question = page.getByRole('dialog', { name: /Bind \d of \d nodes to app\?/ });
  await question.getByText(/n3/).waitFor();
  await question.getByRole('button', { name: 'Cancel' }).click();
  await question.waitFor({ state: 'hidden' });
  await page.locator('[data-drop]').first().waitFor({ state: 'detached' });

  await discard(page);
  await findNoderole(page, 'app', 'n3').waitFor({ state: 'detached' });
  assertNoProblems(page);
  await page.context().close();
});

/** Opens another window of the person who signed in first. */
async function asSignedIn() {
  const [first] = browser.contexts();
  const page = await openPage(browser, gantry);
  await page.context().addCookies(await first.cookies());
  return page;
}

async function center(locator) {
  await locator.scrollIntoViewIfNeeded();
  const box = await locator.boundingBox();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

/** Records every state of a noderole on the board from now on. */
async function watchStates(page) {
  await page.evaluate(() => {
    window.seenStates = [];
    const note = (element) => element.dataset?.noderole && window.seenStates.push(element.dataset.state);
    new MutationObserver((changes) => changes.forEach(({ target }) => note(target)))
      .observe(document.body, { subtree: true, attributes: true, attributeFilter: ['data-state'] });
  });
}
