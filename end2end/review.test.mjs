// The page that decides: what a change comes to is said in plain words with the lists behind it, what was opened is marked, comments
// on single changes keep the gate shut, and what is new since the last look is said.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertQuiet, eachLook, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
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

/** Asks the API as the person whose page it is. */
async function ask(page, path, body) {
  const [status, answer] = await page.evaluate(async ([path, body]) => {
    const how = body ? { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json', 'x-gantry': '1' } } : {};
    const response = await fetch(`/api/v1${path}`, how);
    return [response.status, await response.json()];
  }, [path, body]);
  assert.ok(status < 300, `${path}: ${status} ${JSON.stringify(answer)}`);
  return answer;
}

/** Submits edits on a deployment; the review's number. */
async function proposed(page, deployment, title, edits) {
  const { proposal } = await ask(page, `/deployments/${deployment}/proposals`, {});
  const { proposal: { version } } = await ask(page, `/deployments/${deployment}/board`);
  const { version: edited } = await ask(page, `/proposals/${proposal}/edits`, { version, edits });
  const { submission } = await ask(page, `/proposals/${proposal}/submit`, { version: edited, title });
  return { proposal, version: edited, submission };
}

test('what a change comes to is said at the top, and what is up restarts', { timeout: 300_000 }, async (t) => {
  const board = await ask(ada, '/deployments/web/board');
  const node = (name) => board.tray.find(({ short }) => short === name).node;
  const bind = (name, role) => ({ edit: 'bind', deployment: board.id, node: node(name), role });
  let review;

  await t.test('something is up', async () => {
    const { submission } = await proposed(ada, 'web', 'Two applications', [bind('n1', 'app'), bind('n1', 'app-check')]);
    await visit(bo, `/reviews/${submission}`);
    await bo.getByText(/^Starts \d+ noderoles:$/).waitFor();
    await bo.getByText('It restarts nothing, takes nothing away and destroys no data.').waitFor();
    await ask(bo, `/submissions/${submission}/verdicts`, { kind: 'approve' });
    await ask(bo, `/submissions/${submission}/commit`, {});
    for (let tries = 0; ; tries += 1) {
      const { groups } = await ask(ada, '/deployments/web/board');
      const { chips } = groups.flatMap(({ roles }) => roles).find(({ role }) => role === 'app-check');
      if (chips.some(({ state }) => state === 'active')) break;
      assert.ok(tries < 120, 'it never came up');
      await ada.waitForTimeout(500);
    }
  });

  await t.test('the reviewer reads what restarts, and finds the list behind it', async () => {
    const edits = [
      { edit: 'set_role_data', deployment: board.id, role: 'app', data: { app: { greeting: 'Hello' } } },
      { edit: 'rerun', node: node('n1'), noderole: 'base-files', reason: 'the disk was replaced' },
      bind('n3', 'app'),
    ];
    ({ submission: review } = await proposed(ada, 'web', 'Another greeting, and a third application', edits));
    await visit(bo, `/reviews/${review}`);
    await bo.getByText(/^Restarts \d+ noderoles that are up now:$/).waitFor();
    await bo.getByText(/^Downstream:$/).waitFor();
    await bo.getByText('the disk was replaced').first().waitFor();
    await bo.getByText('It takes nothing away and destroys no data.').waitFor();
    const json = await ask(bo, `/submissions/${review}/consequences`);
    assert.equal(json.interrupted, json.restarts.count);
    await bo.locator('.outcome').getByRole('link', { name: `All ${json.restarts.count}` }).first().click();
    await bo.waitForURL(/tab=effects#restarts$/);
    await bo.getByRole('region', { name: 'Runs again' }).getByText('somebody asked for it: the disk was replaced').waitFor();
  });

  await t.test('every tab fits and is accessible', async () => {
    for (const tab of ['changes', 'effects', 'graph', 'order', 'checks', 'discussion']) {
      await visit(bo, `/reviews/${review}?tab=${tab}`);
      await bo.locator('.tabs a[aria-current]').waitFor();
      if (tab === 'graph') await bo.locator('.graph-svg[role=group]').waitFor();
      await screenshot(bo, `review-${tab}`);
      await eachLook(bo, () => assertFits(bo));
      await assertAccessible(bo);
    }
    await visit(bo, `/reviews/${review}?tab=graph`);
    await bo.getByText(/downstream/).first().waitFor();
    await visit(bo, `/reviews/${review}?tab=order`);
    await bo.getByText(/waits for /).first().waitFor();
  });

  await t.test('what was opened is marked, and a newer version drops the mark of what differs alone', async () => {
    await visit(bo, `/reviews/${review}`);
    const cards = await bo.locator('details.fold').count();
    for (const details of await bo.locator('details.fold:not([open])').all()) await details.locator('summary').click();
    await bo.getByText(`You have opened all ${cards} card`).waitFor();
    const before = await ask(bo, `/submissions/${review}/opened`);
    assert.equal(before.opened.length, before.all);
    const { proposal: { id: proposal, version } } = await ask(ada, '/deployments/web/board');
    const edits = [{ edit: 'set_noderole_data', node: node('n3'), noderole: 'app', data: { app: { greeting: 'Third' } } }];
    const { version: edited } = await ask(ada, `/proposals/${proposal}/edits`, { version, edits });
    const { submission } = await ask(ada, `/proposals/${proposal}/submit`, { version: edited, title: 'With a word of its own' });
    const after = await ask(bo, `/submissions/${submission}/opened`);
    assert.deepEqual([after.outdated.length, after.opened.length], [1, before.opened.length - 1]);
    await ask(ada, `/proposals/${proposal}/discard`, { version: edited });
  });

  assertQuiet(ada);
  assertQuiet(bo);
});

test('of a long summary what is grave is in sight, and the rest waits for a click', { timeout: 120_000 }, async () => {
  const board = await ask(ada, '/deployments/web/board');
  const child = (n) => (
    { edit: 'create_deployment', id: randomUUID(), phantom: randomUUID(), name: `web-in-the-branch-office-${n}`, parent: board.id }
  );
  const edits = [...Array.from({ length: 20 }, (_, n) => child(n)), { edit: 'activate_jig', jig: 'noop', active: false }];
  const { proposal, version, submission } = await proposed(ada, 'web', 'Twenty branch offices', edits);
  await visit(bo, `/reviews/${submission}`);
  const says = bo.getByRole('region', { name: 'What it does' });
  await says.getByText(/^Switches jig noop off/).waitFor();
  const last = says.getByText(/^Creates web-in-the-branch-office-9 /);
  assert.ok(await last.isHidden());
  await screenshot(bo, 'review-long');
  await says.getByText(/^Show all: \d+ more$/).click();
  await last.waitFor();
  await screenshot(bo, 'review-long-open');
  await eachLook(bo, () => assertFits(bo));
  await assertAccessible(bo);
  await ask(ada, `/proposals/${proposal}/discard`, { version });
  assertQuiet(bo);
});

test('without scripts the page says the same, and a button marks', { timeout: 120_000 }, async () => {
  const board = await ask(ada, '/deployments/web/board');
  const data = { edit: 'set_role_data', deployment: board.id, role: 'app', data: { app: { greeting: 'Plain' } } };
  const { proposal, version, submission } = await proposed(ada, 'web', 'Read without scripts', [data]);
  const plain = await openPage(browser, { ...gantry, address: gantry.address, scripts: false });
  await plain.context().addCookies(await bo.context().cookies());
  await plain.goto(`/reviews/${submission}`);
  await plain.getByText(/^Restarts .* up now:$/).waitFor();
  await plain.getByText(/opened 0 of 1/).waitFor();
  await plain.getByRole('button', { name: 'Mark as opened' }).click();
  await plain.getByText(/opened all 1 card/).waitFor();
  await plain.context().close();
  await ask(ada, `/proposals/${proposal}/discard`, { version });
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
