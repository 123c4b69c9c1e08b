// The review page: it describes the change in plain words with lists, marks viewed parts, blocks
// the gate while comment threads are open, and shows what changed since the last visit.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
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

/** Calls the API as the user of the page. */
async function callApi(page, path, body) {
  const [status, answer] = await page.evaluate(async ([path, body]) => {
    const how = body ? { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json', 'x-gantry': '1' } } : {};
    const response = await fetch(`/api/v1${path}`, how);
    return [response.status, await response.json()];
  }, [path, body]);
  assert.ok(status < 300, `${path}: ${status} ${JSON.stringify(answer)}`);
  return answer;
}

/** Expands everything and scrolls to the end of each part, as a reader would. */
async function readAll(page) {
  const folded = page.locator('.card:has(> .fold) details:not([open], .runs-with)');
  while (await folded.count() > 0) await folded.first().locator('> summary').click();
  for (const end of await page.locator('.end').all()) {
    await end.evaluate((end) => end.scrollIntoView({ block: 'center' }));
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  }
}

/** A folder's files by relative path. */
async function files(folder) {
  const found = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const paths = found.map((entry) => join(entry.parentPath ?? entry.path, entry.name));
  return Object.fromEntries(await Promise.all(paths.map(async (path) => [relative(folder, path), await readFile(path, 'utf8')])));
}

/** Submits edits on a deployment and returns the review's number. */
async function proposed(page, deployment, title, edits) {
  const { proposal } = await callApi(page, `/deployments/${deployment}/proposals`, {});
  const { proposal: { version } } = await callApi(page, `/deployments/${deployment}/board`);
  const { version: edited } = await callApi(page, `/proposals/${proposal}/edits`, { version, edits });
  const { review: submission } = await callApi(page, `/proposals/${proposal}/submit`, { version: edited, title });
  return { proposal, version: edited, review: submission };
}

test('a review shows its impact and restarted steps', { timeout: 300_000 }, async (t) => {
  const board = await callApi(ada, '/deployments/web/board');
  const node = (name) => board.tray.find(({ short }) => short === name).node;
  const bind = (name, role) => ({ edit: 'bind', deployment: board.id, node: node(name), role });
  let review;

  await t.test('some steps are active', async () => {
    const { review: submission } = await proposed(ada, 'web', 'Two applications', [bind('n1', 'app'), bind('n1', 'app-check')]);
    await visit(bo, `/reviews/${submission}`);
    await bo.getByText(/^Starts \d+ noderoles:$/).waitFor();
    await bo.getByText('The change restarts nothing, removes nothing and destroys no data.').waitFor();
    // A new noderole shows its values and scripts, once its section is open.
    const section = bo.locator('details.runs-with').first();
    const card = bo.locator('.card', { has: section });
    if (!(await section.isVisible())) await card.locator('details.fold > summary').first().click();
    await section.getByText('Values and scripts').click();
    await section.getByRole('heading', { name: 'Effective values' }).waitFor();
    await section.getByRole('heading', { name: 'Scripts' }).waitFor();
    // The gate has one line for the checks that pass, and the decision is in the window.
    const passed = bo.getByText(/^\d+ checks passed$/);
    await passed.waitFor();
    await bo.getByText('Base unchanged since planning').waitFor({ state: 'hidden' });
    await passed.click();
    await bo.getByText('Base unchanged since planning').waitFor();
    await bo.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
    for (const name of ['Approve', 'Commit']) {
      const box = await bo.getByRole('button', { name, exact: true }).boundingBox();
      assert.ok(box.y >= 0 && box.y + box.height <= 900, `${name} must be visible, but is at ${box.y}`);
    }
    await callApi(bo, `/reviews/${submission}/verdicts`, { kind: 'approve' });
    await callApi(bo, `/reviews/${submission}/commit`, {});
    for (let tries = 0; ; tries += 1) {
      const { groups } = await callApi(ada, '/deployments/web/board');
      const { noderoles } = groups.flatMap(({ roles }) => roles).find(({ role }) => role === 'app-check');
      if (noderoles.some(({ state }) => state === 'active')) break;
      assert.ok(tries < 120, 'the step did not become ACTIVE');
      await ada.waitForTimeout(500);
    }
  });

  await t.test('the restart summary links to the list', async () => {
    const edits = [
      { edit: 'set_role_data', deployment: board.id, role: 'app', data: { app: { greeting: 'Hello' } } },
      { edit: 'rerun', node: node('n1'), noderole: 'base-files', reason: 'the disk was replaced' },
      bind('n3', 'app'),
    ];
    ({ review } = await proposed(ada, 'web', 'Another greeting, and a third application', edits));
    await visit(bo, `/reviews/${review}`);
    await bo.getByText(/^Restarts \d+ noderoles that are active now:$/).waitFor();
    await bo.getByText(/^Downstream:$/).waitFor();
    await bo.getByText('the disk was replaced').filter({ visible: true }).first().waitFor();
    await bo.getByText('The change removes nothing and destroys no data.').waitFor();
    const json = await callApi(bo, `/reviews/${review}/impact`);
    assert.equal(json.interrupted, json.restarts.count);
    await bo.locator('.outcome').getByRole('link', { name: `Show all ${json.restarts.count}` }).first().click();
    await bo.waitForURL(/tab=effects#restarts$/);
    await bo.getByRole('region', { name: 'Runs again' }).getByText('rerun requested: the disk was replaced').waitFor();
  });

  await t.test('every tab fits and is accessible', async () => {
    for (const tab of ['changes', 'effects', 'graph', 'waves', 'checks', 'discussion']) {
      await visit(bo, `/reviews/${review}?tab=${tab}`);
      await bo.locator('.tabs a[aria-current]').waitFor();
      if (tab === 'graph') await bo.locator('.graph-svg[role=group]').waitFor();
      await screenshot(bo, `review-${tab}`);
      await inEachVariant(bo, () => assertFits(bo));
      await assertAccessible(bo);
    }
    await visit(bo, `/reviews/${review}?tab=graph`);
    await bo.getByText(/downstream/).first().waitFor();
    await visit(bo, `/reviews/${review}?tab=waves`);
    await bo.getByText(/waits for /).first().waitFor();
  });

  await t.test('a newer version resets the viewed mark of changes', async () => {
    await visit(bo, `/reviews/${review}`);
    const cards = await bo.locator('details.fold').count();
    await readAll(bo);
    await bo.getByText(`You have viewed all ${cards} change`).waitFor();
    const before = await callApi(bo, `/reviews/${review}/viewed`);
    assert.equal(before.viewed.length, before.all);
    const { proposal: { id: proposal, version } } = await callApi(ada, '/deployments/web/board');
    const edits = [{ edit: 'set_noderole_data', node: node('n3'), noderole: 'app', data: { app: { greeting: 'Third' } } }];
    const { version: edited } = await callApi(ada, `/proposals/${proposal}/edits`, { version, edits });
    const { review: submission } = await callApi(ada, `/proposals/${proposal}/submit`, { version: edited, title: 'With a word of its own' });
    const after = await callApi(bo, `/reviews/${submission}/viewed`);
    assert.deepEqual([after.outdated.length, after.viewed.length], [1, before.viewed.length - 1]);
    await callApi(ada, `/proposals/${proposal}/discard`, { version: edited });
  });

  assertNoProblems(ada);
  assertNoProblems(bo);
});

test('a change counts as viewed after scrolling', { timeout: 240_000 }, async (t) => {
  const scripts = await files(join(import.meta.dirname, '../barclamps/demo'));
  scripts['demo.yml'] = scripts['demo.yml'].replace(/^( *version: ).*$/m, '$1"1.long"');
  const lines = Array.from({ length: 400 }, (_, n) => `echo "line ${n} of a script that takes long to read"`);
  scripts['scripts/app/10-boot'] += `${lines.join('\n')}\n`;
  scripts['scripts/app/20-start'] += `echo ${'x'.repeat(4000)}\n`;
  await callApi(ada, '/barclamps', { files: scripts });
  const system = await callApi(ada, '/deployments/system/board');
  await callApi(ada, '/deployments/system/proposals', {});
  const { versions } = await callApi(ada, '/deployments/system/board');
  const { hash } = versions.find(({ version }) => version === '1.long');
  const use = { edit: 'use_barclamp', deployment: system.id, barclamp: 'demo', version: hash };
  const { proposal, version, review: submission } = await proposed(ada, 'system', 'Long scripts', [use]);
  await visit(bo, `/reviews/${submission}`);
  const card = bo.locator('.card:has(> .fold):has(.file-text)').first();
  const marked = card.getByText('viewed', { exact: true });
  const long = card.locator('.file-text').filter({ hasText: 'line 399' });
  const unread = async () => {
    await bo.waitForTimeout(700);
    assert.equal(await marked.count(), 0);
  };

  await t.test('expanded, but not scrolled to the end', async () => {
    if (!await card.locator('> .fold').getAttribute('open').then((open) => open !== null)) await card.locator('> .fold > summary').click();
    await bo.evaluate(() => scrollTo(0, 0));
    await unread();
  });

  await t.test('scrolled to the end with collapsed files', async () => {
    await card.locator('> .fold > .end').scrollIntoViewIfNeeded();
    await unread();
  });

  await t.test('all files expanded, but a long file not scrolled', async () => {
    for (const folded of await card.locator('tr.file details:not([open]) > summary').all()) await folded.click();
    await long.waitFor();
    for (const box of await card.locator('.file-text').all()) {
      await box.scrollIntoViewIfNeeded();
      await bo.waitForTimeout(100);
    }
    await card.locator('> .fold > .end').scrollIntoViewIfNeeded();
    await unread();
    await card.getByText(/^This box has \d+ lines\. Scroll to its end\.$/).first().waitFor();
  });

  await t.test('scrolled to the end of every file', async () => {
    await readAll(bo);
    await marked.waitFor();
    await bo.getByText(/^You have viewed all \d+ changes/).waitFor();
  });

  await t.test('a truncated file links to the full text', async () => {
    await card.getByText(/\[\d+ more characters are not shown\]/).first().waitFor();
    await card.getByText(/^This comparison is incomplete:/).first().waitFor();
    await screenshot(bo, 'review-scripts');
    await inEachVariant(bo, () => assertFits(bo));
    await assertAccessible(bo);
    const whole = card.locator('tr.file').filter({ hasText: '20-start' }).getByRole('link', { name: 'Full file after' });
    const [tab] = await Promise.all([bo.context().waitForEvent('page'), whole.first().click()]);
    await tab.waitForLoadState();
    assert.ok((await tab.locator('body').innerText()).includes('x'.repeat(4000)));
    await tab.close();
  });

  await t.test('the comparison fits the window', async () => {
    await visit(bo, `/reviews/${submission}?tab=checks`);
    await inEachVariant(bo, () => assertFits(bo));
  });
  await callApi(ada, `/proposals/${proposal}/discard`, { version });
  assertNoProblems(bo);
});

test('a policy change can be viewed and discussed', { timeout: 120_000 }, async () => {
  const policy = { edit: 'set_policy', policy: { approvals: 1, by_risk: { removal: 2 } } };
  const { proposal, version, review: submission } = await proposed(ada, 'web', 'Two to remove', [policy]);
  await visit(bo, `/reviews/${submission}`);
  const card = bo.getByRole('region', { name: 'Approval policy' });
  await card.getByText('viewed', { exact: true }).waitFor();
  await bo.getByText('You have viewed all 1 change').waitFor();
  await screenshot(bo, 'review-policy');
  await card.getByRole('link', { name: 'Comment on the policy, approvals for removal' }).click();
  await bo.getByLabel(/^Open a thread on the policy/).fill('Why two?');
  await bo.getByRole('button', { name: 'Open thread' }).click();
  const thread = bo.locator('.thread.open').filter({ hasText: 'Why two?' });
  await thread.getByText('the policy, /by_risk/removal').waitFor();
  await thread.getByRole('button', { name: 'Resolve' }).click();
  await bo.locator('.thread').getByText('resolved').waitFor();
  await callApi(ada, `/proposals/${proposal}/discard`, { version });
  assertNoProblems(bo);
});

test('a long summary shows severe entries first', { timeout: 120_000 }, async () => {
  const board = await callApi(ada, '/deployments/web/board');
  const child = (n) => (
    { edit: 'create_deployment', id: randomUUID(), phantom: randomUUID(), name: `web-in-the-branch-office-${n}`, parent: board.id }
  );
  const edits = [...Array.from({ length: 20 }, (_, n) => child(n)), { edit: 'activate_jig', jig: 'noop', active: false }];
  const { proposal, version, review: submission } = await proposed(ada, 'web', 'Twenty branch offices', edits);
  await visit(bo, `/reviews/${submission}`);
  const summary = bo.getByRole('region', { name: 'Impact summary' });
  await summary.getByText(/^Turns jig noop off/).waitFor();
  const last = summary.getByText(/^Creates web-in-the-branch-office-9 /);
  assert.ok(await last.isHidden());
  await screenshot(bo, 'review-long');
  await summary.getByText(/^Show all: \d+ more$/).click();
  await last.waitFor();
  await screenshot(bo, 'review-long-open');
  await inEachVariant(bo, () => assertFits(bo));
  await assertAccessible(bo);
  await callApi(ada, `/proposals/${proposal}/discard`, { version });
  assertNoProblems(bo);
});

test('a review works without JavaScript', { timeout: 120_000 }, async () => {
  const board = await callApi(ada, '/deployments/web/board');
  const data = { edit: 'set_role_data', deployment: board.id, role: 'app', data: { app: { greeting: 'Plain' } } };
  const { proposal, version, review: submission } = await proposed(ada, 'web', 'Read without scripts', [data]);
  const plain = await openPage(browser, { ...gantry, address: gantry.address, scripts: false });
  await plain.context().addCookies(await bo.context().cookies());
  await plain.goto(`/reviews/${submission}`);
  await plain.getByText(/^Restarts .* active now:$/).waitFor();
  await plain.getByText(/viewed 0 of 1/).waitFor();
  await plain.getByRole('button', { name: 'Mark as viewed' }).click();
  await plain.getByText(/viewed all 1 change/).waitFor();

  // Without scripts, the board says what works, and what it shows works.
  await plain.context().clearCookies();
  await plain.context().addCookies(await ada.context().cookies());
  await plain.goto('/deployments/web');
  await plain.getByText('JavaScript is disabled').waitFor();
  assert.ok(await plain.getByRole('button', { name: 'Add role' }).isHidden());
  assert.ok(await plain.getByRole('button', { name: 'Bind nodes to app', exact: true }).isHidden());
  await screenshot(plain, 'board-without-scripts');
  await inEachVariant(plain, () => assertFits(plain));
  await plain.getByRole('button', { name: /^Undo “/ }).click();
  await plain.getByRole('button', { name: /^Redo “/ }).waitFor();
  await plain.context().close();
  await visit(ada, '/deployments/web');
  assert.ok(await ada.getByText('JavaScript is disabled').isHidden());
  await callApi(ada, `/proposals/${proposal}/discard`, { version: version + 1 });
});

test('undo on another author\'s board asks for confirmation', { timeout: 120_000 }, async () => {
  const board = await callApi(ada, '/deployments/web/board');
  const data = (greeting) => ({ edit: 'set_role_data', deployment: board.id, role: 'app', data: { app: { greeting } } });
  const { proposal, version } = await proposed(ada, 'web', 'Two words', [data('One'), data('Two')]);
  await visit(bo, '/deployments/web');
  const bar = bo.getByRole('region', { name: 'Open proposal' });
  await bar.getByText(/^You are not an author of this proposal/).waitFor();
  await assertAccessible(bo);
  await screenshot(bo, 'board-no-author');
  await inEachVariant(bo, () => assertFits(bo));
  await bo.keyboard.press('Control+z');
  await bar.getByText('Undo makes you an author of this proposal.').waitFor();
  await screenshot(bo, 'board-joining');
  await assertAccessible(bo);
  await bar.getByRole('button', { name: 'Cancel' }).click();
  await bar.getByText(/^You are not an author of this proposal/).waitFor();
  const before = await callApi(bo, '/deployments/web/board');
  assert.deepEqual([before.proposal.version, before.proposal.authors], [version, ['ada']], 'no edit may be undone before the confirmation');

  await bar.getByRole('button', { name: /^Undo “/ }).click();
  await bo.keyboard.press('Enter');
  await bar.getByRole('button', { name: /^Redo “/ }).waitFor();
  await bar.getByText('ada; undone by bo').waitFor();
  assert.equal(await bar.getByText(/^You are not an author/).count(), 0);
  await bo.keyboard.press('Control+Shift+Z');
  await bar.getByRole('button', { name: /^Redo “/ }).waitFor({ state: 'detached' });
  await bar.getByText('ada; undone and redone by bo').waitFor();
  await ada.getByRole('region', { name: 'Open proposal' }).getByText('ada; undone and redone by bo').waitFor();
  await callApi(ada, `/proposals/${proposal}/discard`, { version: version + 2 });
  assertNoProblems(bo);
});

test('an unresolved thread blocks the gate', { timeout: 240_000 }, async (t) => {
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

  await t.test('an approved review with an open thread cannot be committed', async () => {
    await bo.getByRole('button', { name: 'Approve' }).click();
    await bo.getByText('1 of 1 approval').first().waitFor();
    assert.ok(await bo.getByRole('button', { name: 'Commit' }).isDisabled());
    await bo.getByRole('link', { name: /^Checks 1/ }).click();
    await bo.getByRole('row', { name: /Threads/ }).getByText('One thread is open').waitFor();
    await assertAccessible(bo);
    // The server renders the reader's verdict into the page, and hydration does not change it.
    const html = await bo.request.get(new URL(bo.url()).pathname).then((answer) => answer.text());
    assert.ok(html.includes('You approved this'), 'the HTML of the server must contain the approval');
    await visit(bo, bo.url());
    await bo.getByText(/^You approved this/).waitFor();
    assertNoProblems(bo);
  });

  await t.test('the author can reply, but cannot resolve the thread', async () => {
    await ada.getByRole('link', { name: 'Discussion 1 open' }).click();
    const thread = ada.locator('.thread.open');
    await thread.getByText('Why this answer?').filter({ visible: true }).waitFor();
    assert.ok(await thread.getByRole('button', { name: 'Resolve' }).isDisabled());
    await thread.getByText('Only the person who opened this thread').waitFor();
    await thread.getByLabel('Reply').fill('The old one was a lie.');
    await thread.getByRole('button', { name: 'Reply' }).click();
    await thread.getByText('The old one was a lie.').filter({ visible: true }).waitFor();
  });

  await t.test('the gate passes after the thread is resolved', async () => {
    await bo.getByRole('link', { name: /^Discussion/ }).click();
    await bo.getByText('The old one was a lie.').filter({ visible: true }).waitFor();
    await bo.getByRole('button', { name: 'Resolve' }).click();
    await bo.locator('.thread').getByText('resolved').waitFor();
    await bo.getByRole('button', { name: 'Commit' }).and(bo.locator(':enabled')).waitFor();
  });

  await t.test('the next version shows changes since the last view', async () => {
    await visit(ada, '/deployments/web');
    await putRoleData(ada, 'app-check', { check: { expect: 'fine' } });
    const next = await submit(ada, 'Another answer, again');
    await visit(bo, `/reviews/${next}`);
    await bo.getByText(`You viewed review ${review} of this change before`).waitFor();
    await bo.getByRole('link', { name: 'Show the differences' }).click();
    await bo.waitForURL(/tab=since/);
    await bo.getByText('"well"').filter({ visible: true }).first().waitFor();
    await bo.getByText('"fine"').filter({ visible: true }).first().waitFor();
    await assertAccessible(bo);
    await screenshot(bo, 'review-since');
  });

  assertNoProblems(ada);
  assertNoProblems(bo);
});
