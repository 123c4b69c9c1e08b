// The blueprint history, comparing blueprints, restoring a deployment with a proposal, and
// previewing another version of a barclamp.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { commit, openEdit, propose, putRoleData, signIn, submit } from './lib/console.mjs';

let browser;
let gantry;
let ada;
let bo;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'blueprints' });
  ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  for (const [answer, title] of [['well', 'The first answer'], ['fine', 'The second answer']]) {
    await visit(ada, '/deployments/web');
    await propose(ada);
    await putRoleData(ada, 'app-check', { check: { expect: answer } });
    await commit(bo, await submit(ada, title));
  }
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const line = (page) => page.getByRole('region', { name: 'Blueprint history' });
const comparison = (page) => page.getByRole('region', { name: 'Comparison' });

async function goodLooking(page, name) {
  await inEachVariant(page, () => assertFits(page));
  await assertAccessible(page);
  await screenshot(page, name);
}

test('history shows author, reason and changes of each blueprint', { timeout: 120_000 }, async () => {
  await visit(ada, '/blueprints');
  const third = line(ada).locator('tr[data-blueprint="3"]');
  await third.getByRole('link', { name: 'The second answer' }).waitFor();
  const people = (await third.innerText()).replace(/\s+/g, ' ');
  for (const who of gantry.signIns.map(({ person }) => person)) assert.ok(people.includes(who), `${who} is missing in ${people}`);
  await goodLooking(ada, 'blueprints');

  await third.getByRole('link', { name: 'Changes of blueprint 3' }).click();
  await ada.waitForURL(/from=2&to=3/);
  await comparison(ada).getByText('"well"').waitFor();
  await comparison(ada).getByText('"fine"').waitFor();
  await goodLooking(ada, 'blueprints-compared');

  await comparison(ada).getByRole('link', { name: 'Swap sides' }).click();
  await ada.waitForURL(/from=3&to=2/);
  await ada.getByRole('heading', { name: 'From blueprint 3 to blueprint 2' }).waitFor();
  const text = await (await ada.request.get(await comparison(ada).getByRole('link', { name: 'As text' }).getAttribute('href'))).text();
  assert.match(text, /^from blueprint 3 \([0-9a-f]{8}\)\nto   blueprint 2 /);
  const json = await (await ada.request.get(await comparison(ada).getByRole('link', { name: 'As JSON' }).getAttribute('href'))).json();
  assert.equal(json.difference.deployments[0].name, 'web');
  assertNoProblems(ada);
});

test('two blueprints are compared, also without JavaScript', { timeout: 120_000 }, async () => {
  await visit(ada, '/blueprints');
  await ada.getByRole('link', { name: 'Compare from blueprint 1' }).click();
  await ada.getByText('From 1: select the blueprint to compare it to.').waitFor();
  await ada.getByRole('link', { name: 'Compare to blueprint 2' }).click();
  await ada.getByRole('heading', { name: 'From blueprint 1 to blueprint 2' }).waitFor();
  assertNoProblems(ada);

  const plain = await openPage(browser, { address: gantry.address, scripts: false });
  await plain.context().addCookies(await ada.context().cookies());
  await plain.goto('/blueprints');
  await plain.getByLabel('Deployment', { exact: true }).fill('web');
  await plain.getByLabel('From', { exact: true }).fill('3');
  await plain.getByLabel('To', { exact: true }).fill('1');
  await plain.getByRole('button', { name: 'Filter' }).click();
  await plain.getByRole('heading', { name: 'From blueprint 3 to blueprint 1' }).waitFor();
  await plain.getByRole('heading', { name: 'Blueprints that changed web' }).waitFor();
  await plain.getByRole('button', { name: 'Restore web as of blueprint 1' }).waitFor();
  await plain.context().close();
});

test('invalid comparisons show an error', { timeout: 60_000 }, async () => {
  await visit(ada, '/blueprints?from=2&to=2');
  await ada.getByText('Both are the same blueprint.').waitFor();
  const missing = await visit(ada, '/blueprints?from=1&to=99');
  assert.equal(missing.status(), 404);
  await ada.getByText('Blueprint 99 does not exist. Use a number from 1 to 3.').waitFor();
  await assertAccessible(ada);
  await visit(ada, '/blueprints?before=1');
  await ada.getByText('No more blueprints').waitFor();
  assertNoProblems(ada, /404/);
  ada.problems.length = 0; // the responses for unknown blueprints
});

test('a deployment is restored with an approved proposal', { timeout: 180_000 }, async () => {
  await visit(ada, '/blueprints?deployment=web');
  await line(ada).locator('tr[data-blueprint="2"]').getByRole('link', { name: 'Restore…' }).click();
  await ada.waitForURL(/from=3&to=2/);
  const button = ada.getByRole('button', { name: 'Restore web as of blueprint 2' });
  await button.waitFor();
  await goodLooking(ada, 'blueprints-restore');
  await button.click();
  await ada.waitForURL(/\/deployments\/web$/);
  await ada.getByRole('button', { name: /^Undo “set data of app-check/ }).waitFor();
  await ada.getByRole('button', { name: 'Review changes' }).click();
  const dialog = ada.getByRole('dialog', { name: 'Review changes' });
  assert.equal(await dialog.getByLabel('Title').inputValue(), 'Restore web as of blueprint 2');
  await dialog.getByRole('button', { name: 'Submit for review' }).click();
  await ada.waitForURL(/\/reviews\/\d+$/);
  assert.ok(await ada.getByRole('button', { name: 'Commit' }).isDisabled(), 'the review has no approval yet');
  await commit(bo, ada.url().match(/(\d+)$/)[1], ['"well"']);
  await visit(bo, '/blueprints?deployment=web&from=2&to=4');
  await bo.getByText('Both are the same blueprint.').waitFor();

  await visit(ada, '/blueprints?deployment=web&from=4&to=2');
  await ada.getByText('Both are the same blueprint.').waitFor();
  assertNoProblems(ada);
  assertNoProblems(bo);
});

test('a barclamp version shows its removed parts and its impact', { timeout: 120_000 }, async () => {
  const file = (version, roles) => `barclamp: {name: extra, version: '${version}', description: One more}\nroles:\n${roles.map((role) => `  - {name: ${role}, jig: noop}\n`).join('')}`;
  for (const [version, roles] of [['1', ['extra-a', 'extra-b']], ['2', ['extra-a']]]) {
    await visit(ada, '/catalog');
    await ada.getByRole('button', { name: 'Import a barclamp' }).click();
    const dialog = ada.getByRole('dialog', { name: 'Import a barclamp' });
    await dialog.getByLabel('Content').fill(file(version, roles));
    await dialog.getByRole('button', { name: 'Import', exact: true }).click();
    await dialog.getByText(`extra ${version} (`).waitFor();
    if (version === '2') await dialog.getByText('Barclamp extra 2 no longer has: role extra-b').waitFor();
  }
  await visit(ada, '/catalog');
  await ada.getByRole('row', { name: /extra.*role extra-b/s }).waitFor();
  await goodLooking(ada, 'catalog');

  await visit(ada, '/deployments/web');
  await propose(ada);
  await openEdit(ada, 'Change barclamp versions');
  const dialog = ada.getByRole('dialog', { name: 'Change barclamp versions' });
  assert.ok(await dialog.getByRole('button', { name: 'Add to the proposal' }).isDisabled());
  await dialog.getByLabel(/^extra 1/).check();
  await dialog.getByText(/^Uses extra 1 \([0-9a-f]{8}\) in web\.$/).waitFor();
  await assertAccessible(ada);
  await screenshot(ada, 'board-version');
  await dialog.getByRole('button', { name: 'Add to the proposal' }).click();
  await ada.getByRole('button', { name: /^Undo “use extra 1/ }).waitFor();

  // A deployment's own version is dropped the same way. One step may change several barclamps.
  await openEdit(ada, 'Change barclamp versions');
  await dialog.getByLabel(/^extra removed, because no deployment above uses it/).check();
  await dialog.getByText('Nothing is removed.').waitFor();
  await assertAccessible(ada);
  await screenshot(ada, 'board-version-above');
  await dialog.getByRole('button', { name: 'Add to the proposal' }).click();
  const undo = ada.getByRole('button', { name: 'Undo “inherit extra from the parent deployment”' });
  await undo.click();
  await ada.getByRole('button', { name: /^Undo “use extra 1/ }).waitFor();
  await openEdit(ada, 'Change barclamp versions');
  await dialog.getByLabel(/^extra 1.*in use/).waitFor();
  assert.equal(await dialog.getByLabel(/^extra removed, because/).count(), 1, 'the deployment uses its own version again');
  assertNoProblems(ada);
});
