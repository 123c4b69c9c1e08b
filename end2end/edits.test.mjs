// Every kind of edit except binding: each is made on the board and undone by its name. A preview
// shows the effect of an edit first. After a server error, the form keeps its input.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { findNoderole, commit, openEdit, propose, putRoleData, row, signIn, submit } from './lib/console.mjs';

let browser;
let gantry;
let page;
let reviewer;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'edits' });
  page = await signIn(await openPage(browser, gantry), gantry, 'author');
  await visit(page, '/deployments/web');
  await propose(page);
  // A node of the deployment itself, not only of its proposal.
  await trayChip('n6').dragTo(row(page, 'metrics').locator('.cell'));
  await findNoderole(page, 'metrics', 'n6').waitFor();
  const review = await submit(page, 'A node of its own');
  reviewer = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  await commit(reviewer, review);
  await visit(page, '/deployments/web');
  await propose(page);
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const trayChip = (name) => page.locator('.tray').getByRole('button', { name, exact: true });
const dialog = (name) => page.getByRole('dialog', { name });
const undo = (name) => page.getByRole('button', { name });
const put = (of) => of.getByRole('button', { name: 'Add to the proposal' });

/** Makes the edit of a dialog after its preview is shown, then undoes it by name. */
async function putAndUndo(of, comesTo, named) {
  await of.getByText(comesTo).waitFor();
  await put(of).click();
  await of.waitFor({ state: 'hidden' });
  await undo(new RegExp(`^Undo “${named}`)).click();
  await undo(new RegExp(`^Redo “${named}`)).waitFor();
}

test('Delete unbinds a noderole after a preview', { timeout: 90_000 }, async () => {
  await trayChip('n1').dragTo(row(page, 'app').locator('.cell'));
  await findNoderole(page, 'app', 'n1').waitFor();
  await undo(/^Undo “bind n1 to app”/).waitFor();
  // A noderole that only the proposal has is no link, but can have the focus.
  await findNoderole(page, 'app', 'n1').focus();
  await page.keyboard.press('Delete');
  const unbind = dialog('Unbind app from n1');
  await unbind.getByText('Preview of the proposal').waitFor();
  await assertAccessible(page);
  await put(unbind).click();
  await findNoderole(page, 'app', 'n1').waitFor({ state: 'detached' });
  await undo(/^Undo “unbind app from n1/).click();
  await findNoderole(page, 'app', 'n1').waitFor();
  assertNoProblems(page);
});

test('dependents of an unbound noderole can be unbound too', { timeout: 90_000 }, async () => {
  await findNoderole(page, 'runtime', 'n1').click({ button: 'right' });
  await dialog('runtime on n1').getByRole('button', { name: /^Unbind from n1/ }).click();
  const unbind = dialog('Unbind runtime from n1');
  await unbind.getByText(/^Noderole runtime on n1 cannot be removed: .*app on n1/).waitFor();
  assert.ok(await put(unbind).isDisabled());
  await unbind.getByLabel(/^Also unbind its dependents/).check();
  await putAndUndo(unbind, 'Preview of the proposal', 'unbind runtime from n1 and everything that requires it');
  assertNoProblems(page);
});

test('a proposed noderole gets data by keyboard', { timeout: 90_000 }, async () => {
  await findNoderole(page, 'app', 'n1').focus();
  await page.keyboard.press('Enter');
  const menu = dialog('app on n1');
  await menu.getByRole('button', { name: /^Set data/ }).focus();
  await assertAccessible(page);
  await page.keyboard.press('Enter');
  const data = dialog('Data of app on n1');
  await data.getByLabel('As JSON').fill('{"app": ');
  await data.getByText(/^line 1/).waitFor();
  assert.ok(await put(data).isDisabled());
  await data.getByLabel('As JSON').fill('{"app": {"port": 8090}}');
  await data.getByText('Sets the data of app on n1.').waitFor();
  await assertAccessible(page);
  await screenshot(page, 'edits-data');
  await put(data).focus();
  await page.keyboard.press('Enter');
  await data.waitFor({ state: 'hidden' });
  await undo(/^Undo “set data of app on n1/).waitFor();
  assert.ok(await findNoderole(page, 'app', 'n1').evaluate((element) => element === document.activeElement), 'the focus returns to the noderole');
  // The form shows the values that were set.
  await page.keyboard.press('Shift+F10');
  await menu.getByRole('button', { name: /^Set data/ }).click();
  await data.getByText('"port": 8090').or(data.getByLabel('As JSON')).first().waitFor();
  assert.match(await data.getByLabel('As JSON').inputValue(), /8090/);
  await page.keyboard.press('Escape');
  await undo(/^Undo “set data of app on n1/).click();
  await undo(/^Redo “set data of app on n1/).waitFor();
  assertNoProblems(page);
});

test('invalid data is reported during input', { timeout: 60_000 }, async () => {
  await page.getByRole('button', { name: 'Data of app', exact: true }).click();
  const data = dialog('Data of app');
  const json = data.getByLabel('As JSON');
  for (const [typed, message] of [
    ['{"app": {"port": 9007199254740993}}', /cannot be stored exactly/],
    ['{"app": {"port": 1,\n"port": 2}}', /^line 2.*duplicate key/],
    ['{"app": {"note": "\u202e"}}', /U\+202E/],
    ['{"app": {"key": {"$secret": "db"}}}', /not a valid reference to a secret/],
  ]) {
    await json.fill(typed);
    await data.locator('.error-text').filter({ hasText: message }).first().waitFor();
    assert.ok(await put(data).isDisabled());
  }
  await page.keyboard.press('Escape');
  assertNoProblems(page);
});

test('form and JSON text of the data stay in sync', { timeout: 90_000 }, async () => {
  await page.getByRole('button', { name: 'Data of app-config', exact: true }).click();
  const data = dialog('Data of app-config');
  const json = data.getByLabel('As JSON');
  const port = data.getByLabel(/^app-port/);
  const before = JSON.parse(await json.inputValue());
  await port.fill('many');
  await data.locator('.errors .error-text').getByText('is a string, but must be an integer').waitFor();
  assert.equal(await port.getAttribute('aria-invalid'), 'true');
  assert.ok(await put(data).isDisabled());
  await port.fill('8123');
  await data.locator('.errors .error-text').waitFor({ state: 'detached' });
  assert.equal(JSON.parse(await json.inputValue()).app.port, 8123);
  // Changes of the JSON text update the form. An omitted value shows its inherited value.
  await json.fill('{"app": {"port": 8124}}');
  assert.equal(await port.inputValue(), '8124');
  const greeting = data.locator('.field').filter({ has: page.getByLabel(/^app-greeting/) }).last();
  await greeting.getByRole('button', { name: 'Use a secret' }).click();
  await greeting.getByPlaceholder('Name of the secret').fill('app/greeting');
  await greeting.getByLabel('version').fill('3');
  assert.deepEqual(JSON.parse(await json.inputValue()), { app: { port: 8124, greeting: { $secret: 'app/greeting', version: 3 } } });
  await assertAccessible(page);
  await assertFits(page);
  await screenshot(page, 'edits-form');
  await greeting.getByRole('button', { name: 'Enter a value' }).click();
  await putAndUndo(data, /^Sets the data of app-config in web/, 'set data of');
  await page.getByRole('button', { name: 'Data of app-config', exact: true }).click();
  assert.deepEqual(JSON.parse(await dialog('Data of app-config').getByLabel('As JSON').inputValue()), before);
  await page.keyboard.press('Escape');
  assertNoProblems(page);
});

test('values show their sources, also without JavaScript', { timeout: 90_000 }, async () => {
  await visit(page, '/deployments/web');
  const link = await findNoderole(page, 'metrics', 'n6').getAttribute('href');
  const plain = await openPage(browser, { address: gantry.address, scripts: false });
  await plain.context().addCookies(await page.context().cookies());
  const noderole = (link ?? '').match(/[0-9a-f-]{36}/)?.[0];
  assert.ok(noderole, `the node must link to its noderole: ${link}`);
  await plain.goto(`/noderoles/${noderole}`);
  await plain.getByRole('link', { name: /^Find a value|^Show the data of the next run/ }).click();
  await plain.getByRole('heading', { name: /^Data of metrics on n6/ }).waitFor();
  await plain.getByLabel('Path, value or source contains').fill('nothing has this');
  await plain.getByRole('button', { name: 'Filter' }).click();
  await plain.getByText(/No matching values|No data/).waitFor();
  assert.match(plain.url(), /filter=nothing/);
  await plain.context().close();
  await visit(page, `/noderoles/${noderole}/data`);
  const rowOf = (path) => page.getByRole('row').filter({ has: page.getByText(path, { exact: true }) });
  await rowOf('/app/port').getByRole('link', { name: /^role template of app-config on n6/ }).waitFor();
  await rowOf('/app/pid').getByRole('link', { name: /^output of app on n6/ }).waitFor();
  await rowOf('/app/pid').getByRole('link', { name: /^run \d+$/ }).waitFor();
  await assertAccessible(page);
  await assertFits(page);
  await screenshot(page, 'values');
  await visit(page, '/deployments/web');
  assertNoProblems(page);
});

test('a role without nodes is removed and added', { timeout: 60_000 }, async () => {
  assert.ok(await page.getByRole('button', { name: 'Remove role app', exact: true }).isDisabled(), 'nodes have the role');
  await page.getByRole('button', { name: 'Remove role proxy', exact: true }).click();
  await putAndUndo(dialog('Remove role proxy?'), 'Removes role proxy and its data from web.', 'remove role proxy');
  await row(page, 'proxy').waitFor();
  assertNoProblems(page);
});

test('adding a role shows a preview', { timeout: 60_000 }, async () => {
  await page.getByRole('button', { name: 'Remove role proxy', exact: true }).click();
  await put(dialog('Remove role proxy?')).click();
  await undo(/^Undo “remove role proxy/).waitFor();
  await page.getByRole('button', { name: 'Add role' }).click();
  const add = dialog('Add role');
  await add.getByLabel('Role').fill('proxy');
  await add.getByText(/^Preview of the proposal/).waitFor();
  await add.getByRole('button', { name: /^proxy/ }).click();
  await undo(/^Undo “add role proxy/).click();
  await undo(/^Undo “remove role proxy/).click();
  await row(page, 'proxy').waitFor();
  assertNoProblems(page);
});

test('removal of a node or deployment requires its name', { timeout: 90_000 }, async () => {
  await trayChip('n5').click();
  await page.locator('.tray').getByRole('button', { name: 'More…' }).click();
  await dialog('n5').getByText('The node is in system. To expunge it, propose changes on this node only.').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.tray').getByRole('button', { name: 'Clear selection' }).click();
  await trayChip('n6').focus();
  await page.keyboard.press('Shift+F10');
  await dialog('n6').getByRole('button', { name: /^Expunge n6/ }).click();
  const giveUp = dialog('Expunge n6?');
  await giveUp.getByLabel('Reason').fill('It burnt down');
  await giveUp.getByText(/^Expunges n6: .*It burnt down/).waitFor();
  assert.ok(await put(giveUp).isDisabled(), 'the name is not entered yet');
  await giveUp.getByLabel(/^Type n6/).fill('n6');
  await screenshot(page, 'edits-expunge');
  await putAndUndo(giveUp, /^Expunges n6/, 'expunge n6');

  await openEdit(page, 'Remove deployment');
  const remove = dialog('Remove deployment web?');
  await remove.getByText(/^Deployment web cannot be removed: it has/).waitFor();
  await remove.getByLabel(/^Type web/).fill('web');
  assert.ok(await put(remove).isDisabled(), 'the deployment is not empty');
  await page.keyboard.press('Escape');
  assertNoProblems(page);
});

test('a deployment moves below another parent', { timeout: 90_000 }, async () => {
  await openEdit(page, 'Move deployment');
  const move = dialog('Move deployment web');
  const to = move.getByLabel('New parent');
  await to.fill('web');
  await move.getByText(/^Deployment web cannot move below web, because web is part of it/).waitFor();
  assert.ok(await put(move).isDisabled());
  await to.fill('edge');
  await move.getByText(/^Deployment web moves from system to edge/).waitFor();
  await assertAccessible(page);
  await putAndUndo(move, /^Deployment web moves from system to edge/, 'move deployment web below edge');
  assertNoProblems(page);
});

test('a node moves into a new child deployment', { timeout: 90_000 }, async () => {
  await openEdit(page, 'Create child deployment');
  const child = dialog('Create child deployment');
  await child.getByLabel('Name').fill('a b');
  await child.locator('.error-text').waitFor();
  await child.getByLabel('Name').fill('web');
  await child.getByText('A deployment web already exists. Choose another name').waitFor();
  assert.ok(await put(child).isDisabled());
  await child.getByLabel('Name').fill('web-canary');
  await child.getByText('Creates web-canary below web.').waitFor();
  await assertAccessible(page);
  await put(child).click();
  await undo(/^Undo “create web-canary below web/).waitFor();

  await trayChip('n6').click();
  await page.locator('.tray').getByRole('button', { name: 'Move…' }).click();
  const move = dialog('Move n6');
  const to = move.getByLabel('New deployment');
  await to.fill('web');
  await move.getByText('Already in this deployment.').waitFor();
  assert.ok(await put(move).isDisabled());
  await to.fill('elsewhere');
  await move.getByText('No deployment with this name exists here or below.').waitFor();
  await to.fill('web-c');
  await move.locator('datalist option[value="web-canary"]').waitFor({ state: 'attached' });
  await to.fill('web-canary');
  // Its noderoles are bound in web, which is the parent of the new deployment, so it may move
  // there.
  await move.getByText('n6 moves from web to web-canary.').waitFor();
  await assertAccessible(page);
  await screenshot(page, 'edits-move');
  await putAndUndo(move, 'n6 moves from web to web-canary.', 'move n6 to web-canary');
  await page.locator('.tray').getByRole('button', { name: 'Clear selection' }).click();
  await undo(/^Undo “create web-canary/).click();
  await undo(/^Redo “create web-canary/).waitFor();
  assertNoProblems(page);
});

test('the list of nodes opens a move on the board', { timeout: 90_000 }, async () => {
  await visit(page, '/nodes');
  await page.getByRole('button', { name: /^Move n5\b.* to another deployment/ }).click();
  const where = dialog(/^Move n5/);
  const to = where.getByLabel('New deployment');
  await to.fill('system');
  await where.getByText('The node is already in this deployment.').waitFor();
  assert.ok(await where.getByRole('button', { name: 'Open proposal' }).isDisabled());
  await to.fill('we');
  await where.locator('datalist option[value="web"]').waitFor({ state: 'attached' });
  await to.fill('web');
  await assertAccessible(page);
  await screenshot(page, 'nodes-move');
  await where.getByRole('button', { name: 'Open proposal' }).click();
  await page.waitForURL(/\/deployments\/web\?bring=n5/);
  const bring = dialog('Move nodes to web');
  // Nodes with the same move share one line. n1 was moved when it was bound.
  const moves = /\bn5 moves? from system to web\.$/;
  await bring.getByText(moves).waitFor();
  await screenshot(page, 'edits-bring');
  await putAndUndo(bring, moves, 'move n5 to web');
  assertNoProblems(page);
});

test('jigs and policy are changed for all deployments', { timeout: 90_000 }, async () => {
  await openEdit(page, 'Turn jigs on or off');
  const jigs = dialog('Turn jigs on or off');
  await jigs.getByLabel(/^noop/).uncheck();
  await jigs.getByText('Turns jig noop off: no step that needs it starts in any deployment.').waitFor();
  await assertAccessible(page);
  await screenshot(page, 'edits-jigs');
  await putAndUndo(jigs, /^Turns jig noop off/, 'turn jig noop off for every deployment');

  await openEdit(page, 'Set policy');
  const policy = dialog('Set policy');
  const every = policy.getByRole('textbox', { name: 'Every change' });
  assert.equal(await every.inputValue(), '1');
  await every.fill('many');
  await policy.getByText('many is not a whole number').waitFor();
  await every.fill('0');
  await policy.getByText(/^A policy must require 1 to 20 approvals, but this one requires 0. Review is mandatory/).waitFor();
  assert.ok(await put(policy).isDisabled());
  assert.equal(await every.inputValue(), '0', 'the input stays');
  await every.fill('2');
  await policy.getByRole('textbox', { name: 'When a noderole is removed' }).fill('3');
  await policy.getByText(/^Sets the policy for all later changes in every deployment: 2 approvals for every change, 3 for a removal\./).waitFor();
  await assertAccessible(page);
  await screenshot(page, 'edits-policy');
  await putAndUndo(policy, /^Sets the policy/, 'require 2 approvals for changes in every deployment, 3 for a removal');
  assertNoProblems(page);
});

test('one noderole or several run again', { timeout: 90_000 }, async () => {
  await findNoderole(page, 'metrics', 'n6').focus();
  await page.keyboard.press('Shift+F10');
  await dialog('metrics on n6').getByRole('button', { name: /^Run again/ }).click();
  const one = dialog('Run metrics on n6 again');
  await one.getByLabel('Reason').fill('The disk was replaced');
  await putAndUndo(one, /^Runs again: metrics on n6\./, 'run metrics on n6 again');

  await page.getByRole('button', { name: 'Run runtime again' }).click();
  const slice = dialog('Run runtime again');
  await slice.getByLabel('Reason').fill('A new key');
  await slice.getByLabel(/^Include the dependents/).check();
  await slice.getByLabel('metrics', { exact: true }).check();
  await slice.getByText(/^Runs again: /).waitFor();
  await assertAccessible(page);
  await screenshot(page, 'edits-slice');
  await putAndUndo(slice, /^Runs again: /, 'run metrics and runtime in web again, with its dependents there');
  assertNoProblems(page);
});

test('input stays after the server rejects it', { timeout: 60_000 }, async () => {
  await page.getByRole('button', { name: 'Run metrics again' }).click();
  const again = dialog('Run metrics again');
  await again.getByLabel('Reason').fill('A long and careful reason');
  await put(again).and(page.locator(':enabled')).waitFor();
  const problem = { type: 'about:blank', status: 409, code: 'version', title: 'Somebody was faster', detail: 'Look again.', errors: [] };
  await page.route('**/call/edit', (route) => route.fulfill({ status: 409, contentType: 'application/json', body: JSON.stringify(problem) }), { times: 1 });
  await put(again).click();
  await again.getByRole('alert').waitFor();
  assert.equal(await again.getByLabel('Reason').inputValue(), 'A long and careful reason');
  await put(again).click();
  await again.waitFor({ state: 'hidden' });
  await undo(/^Undo “run metrics on n6 again/).click();
  await undo(/^Redo “run metrics on n6 again/).waitFor();

  await openEdit(page, 'Create child deployment');
  const child = dialog('Create child deployment');
  await child.getByLabel('Name').fill('web-spare');
  await put(child).and(page.locator(':enabled')).waitFor();
  await page.route('**/call/edit', (route) => route.fulfill({ status: 409, contentType: 'application/json', body: JSON.stringify(problem) }), { times: 1 });
  await put(child).click();
  await child.getByRole('alert').waitFor();
  assert.equal(await child.getByLabel('Name').inputValue(), 'web-spare');
  await page.keyboard.press('Escape');
  await child.waitFor({ state: 'hidden' });
  assertNoProblems(page, /409/);
  page.problems.length = 0;
});

test('a hold shows its author and reason until release', { timeout: 60_000 }, async () => {
  await page.getByRole('button', { name: 'Put on hold…' }).click();
  const hold = dialog('Put web on hold');
  await hold.getByLabel('Reason').fill('The switch is being replaced');
  await assertAccessible(page);
  await hold.getByRole('button', { name: 'Put on hold', exact: true }).click();
  await page.getByText(/^Put on hold by \S+: The switch is being replaced$/).waitFor();
  await assertAccessible(page);
  await screenshot(page, 'board-held');
  await page.getByRole('button', { name: 'Release hold…' }).click();
  const release = dialog('Release the hold of web');
  await release.getByLabel('Reason').fill('It works again');
  await release.getByRole('button', { name: 'Release hold', exact: true }).click();
  await page.getByText(/^Put on hold by/).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Put on hold…' }).waitFor();
  assertNoProblems(page);
});

test('noderoles link to the proposal on a node', { timeout: 120_000 }, async () => {
  await visit(page, '/deployments/web');
  await trayChip('n6').click({ button: 'right' });
  await dialog('n6').getByRole('button', { name: /^Propose changes on n6 only/ }).click();
  await page.waitForURL(/\/proposals\/\d+$/);
  const address = page.url();
  const undoHere = (edit) => page.getByRole('button', { name: new RegExp(`^Undo “${edit}`) });

  await page.getByRole('button', { name: 'Run again metrics' }).click();
  const again = dialog('Run metrics on n6 again');
  await again.getByLabel('Reason').fill('A look at it');
  await again.getByText(/^Runs again: metrics on n6\./).waitFor();
  await assertAccessible(page);
  await put(again).click();
  await undoHere('run metrics on n6 again').waitFor();
  await page.getByRole('button', { name: 'Edit data metrics' }).click();
  const data = dialog('Data of metrics on n6');
  await data.getByLabel('As JSON').fill('{"metrics": {"note": "of its own"}}');
  await put(data).click();
  await undoHere('set data of metrics on n6').waitFor();
  await page.getByRole('button', { name: 'Unbind metrics' }).click();
  await put(dialog('Unbind metrics from n6')).click();
  await undoHere('unbind metrics from n6').click();
  await page.getByRole('button', { name: /^Redo “unbind metrics/ }).waitFor();
  await page.getByRole('button', { name: 'Expunge node…' }).click();
  const giveUp = dialog('Expunge n6?');
  await giveUp.getByLabel('Reason').fill('It burnt down');
  await giveUp.getByText(/^Expunges n6/).waitFor();
  await page.keyboard.press('Escape');
  await assertAccessible(page);
  await screenshot(page, 'node-proposal');

  await visit(page, '/deployments/web');
  await findNoderole(page, 'metrics', 'n6').click();
  const panel = page.getByRole('complementary', { name: 'metrics on n6' });
  await panel.getByRole('button', { name: 'Propose changes on this node only' }).click();
  await page.waitForURL(address);
  await page.getByRole('button', { name: 'Discard proposal' }).click();
  await page.getByText('The proposal was discarded.').waitFor();
  assertNoProblems(page);
});

test('an edit in the panel shows a preview', { timeout: 60_000 }, async () => {
  await visit(page, '/deployments/web');
  await findNoderole(page, 'metrics', 'n6').click();
  const panel = page.getByRole('complementary', { name: 'metrics on n6' });
  await panel.getByText('Edit in the proposal').click();
  await panel.getByText('Removes metrics from n6.').waitFor();
  await panel.getByLabel('Run again without a change').fill('Why not');
  await panel.getByText(/^Runs again: metrics on n6\./).waitFor();
  // axe measures only the visible part of a target, so scroll it out from under the proposal bar.
  await page.evaluate(() => window.scrollTo(0, 0));
  await assertAccessible(page);
  await screenshot(page, 'panel-edit');
  await panel.getByRole('button', { name: 'Add to the proposal' }).nth(1).click();
  await undo(/^Undo “run metrics on n6 again/).click();
  await undo(/^Redo “run metrics on n6 again/).waitFor();
  assertNoProblems(page);
});

test('menus and forms work on a narrow screen', { timeout: 90_000 }, async () => {
  await visit(page, '/deployments/web');
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('button', { name: 'More…' }).first().click();
  await dialog('Propose changes on web').waitFor();
  await assertFits(page);
  await assertAccessible(page);
  await screenshot(page, 'edits-menu');
  await page.setViewportSize({ width: 390, height: 844 });
  await dialog('Propose changes on web').getByRole('button', { name: /^Set policy/ }).click();
  await dialog('Set policy').getByRole('textbox', { name: 'Every change' }).fill('2');
  await dialog('Set policy').getByText(/^Sets the policy/).waitFor();
  await assertFits(page);
  await page.keyboard.press('Escape');
  await findNoderole(page, 'app', 'n1').click();
  await dialog('app on n1').waitFor();
  await assertFits(page);
  await assertAccessible(page);
  await screenshot(page, 'edits-menu');
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 1440, height: 900 });
  assertNoProblems(page);
});

test('a change of the same data by another person is shown with a choice', { timeout: 120_000 }, async () => {
  await visit(page, '/deployments/web');
  await visit(reviewer, '/deployments/web');
  await page.getByRole('button', { name: 'Data of app-config', exact: true }).click();
  const data = dialog('Data of app-config');
  const json = data.getByLabel('As JSON');
  const before = JSON.parse(await json.inputValue());
  const read = async () => JSON.parse(await json.inputValue());
  const app = { ...before.app, port: 8123 };
  await json.fill(JSON.stringify({ ...before, app }));
  await data.getByText(/^Sets the data of app-config in web/).waitFor();

  // Another value changes: the form takes it over, and keeps the input.
  await putRoleData(reviewer, 'app-config', { ...before, app: { ...before.app, greeting: 'Hello from bo' } });
  await page.waitForFunction(() => JSON.parse(document.querySelector('#role-data-text').value).app.greeting === 'Hello from bo');
  assert.equal((await read()).app.port, 8123);
  await data.getByText(/^Sets the data of app-config in web/).waitFor();
  await put(data).and(page.locator(':enabled')).waitFor();

  // The same value changes: the user chooses.
  await putRoleData(reviewer, 'app-config', { ...before, app: { ...before.app, greeting: 'Hello from bo', port: 9001 } });
  const notice = data.getByRole('alert').filter({ hasText: 'bo set app/port to 9001 meanwhile.' });
  await notice.waitFor();
  assert.equal((await read()).app.port, 8123);
  assert.ok(await put(data).isDisabled());
  await assertAccessible(page);
  await screenshot(page, 'edits-conflict');
  await notice.getByRole('button', { name: 'Take theirs: app/port' }).click();
  await notice.waitFor({ state: 'detached' });
  assert.equal((await read()).app.port, 9001);
  assert.ok(await put(data).isDisabled(), 'there is no change to propose');

  await json.fill(JSON.stringify({ ...before, app: { ...before.app, greeting: 'Hello from bo', port: 8123 } }));
  await putRoleData(reviewer, 'app-config', { ...before, app: { ...before.app, greeting: 'Hello from bo', port: 9002 } });
  await data.getByRole('button', { name: 'Keep mine: app/port' }).click();
  await data.getByText(/^Sets the data of app-config in web/).waitFor();
  await put(data).click();
  await data.waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Data of app-config', exact: true }).click();
  assert.equal((await read()).app.port, 8123);
  await page.keyboard.press('Escape');
  assertNoProblems(page);
});
