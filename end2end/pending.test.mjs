// Pending steps: a committed change is pending, and the page shows the reason and who can resolve
// it. It updates without a reload.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { commit, signIn } from './lib/console.mjs';

let browser;
let gantry;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'pending' });
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

/** Sends a command as an API client. */
async function tell(page, path, data) {
  const answer = await page.request.post(`${gantry.address}/api/v1/${path}`, { headers: { 'x-gantry': '1' }, data });
  assert.ok(answer.ok(), `${path}: ${answer.status()} ${await answer.text()}`);
  return answer.json();
}

async function callApi(page, path) {
  const answer = await page.request.get(`${gantry.address}/api/v1/${path}`);
  assert.ok(answer.ok(), `${path}: ${answer.status()} ${await answer.text()}`);
  return answer.json();
}

test('pending steps show their reasons until none remain', { timeout: 600_000 }, async (t) => {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  const bo = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
  const [review] = (await callApi(bo, 'reviews')).reviews;
  const deployment = review.deployment;

  await t.test('a deployment on hold starts nothing', async () => {
    await tell(ada, `deployments/${deployment}/hold`, { reason: 'disks are being changed' });
    await commit(bo, review.review);
    await visit(ada, '/pending');
    const holdGroup = ada.getByRole('region', { name: 'Deployment on hold' });
    await holdGroup.getByText(`Deployment ${deployment} was put on hold by`).first().waitFor();
    await holdGroup.getByText(/^resolved by/).waitFor();
    await holdGroup.getByRole('link', { name: deployment, exact: true }).last().waitFor();
    const line = ada.getByRole('region', { name: 'Waiting for other steps' });
    await line.getByText(/Waits for \d+ parents?: /).first().waitFor();
    await ada.getByRole('navigation', { name: 'Pending reasons' }).getByRole('link', { name: /^Deployment on hold/ }).click();
    await ada.waitForURL(/reason=on_hold/);
    await line.waitFor({ state: 'detached' });
    await holdGroup.waitFor();
    const response = await callApi(ada, `pending?deployment=${deployment}&reason=on_hold`);
    assert.equal(response.groups.find(({ reason }) => reason === 'on_hold').steps[0].resolved_by[0].name, deployment);
    await holdGroup.getByRole('link', { name: 'Pending since' }).click();
    await ada.waitForURL(/reason=on_hold&sort=-since/);
    await holdGroup.locator('th[aria-sort="descending"]').waitFor();
  });

  await t.test('boards, nodes and steps link to pending steps', async () => {
    await visit(ada, `/deployments/${deployment}`);
    await ada.getByRole('link', { name: 'Pending' }).last().click();
    await ada.waitForURL(new RegExp(`/pending\\?deployment=${deployment}`));
    await ada.getByRole('region', { name: 'Deployment on hold' }).getByRole('link', { name: /\./ }).first().click();
    await ada.waitForURL(/\/pending\?node=/);
    await ada.getByRole('region', { name: 'Deployment on hold' }).waitFor();
    await visit(ada, '/pending?deployment=edge-that-is-not');
    await ada.getByText('Deployment "edge-that-is-not" does not exist').first().waitFor();
  });

  await t.test('the page is accessible on every screen width', async () => {
    await visit(ada, '/pending');
    await ada.getByRole('region', { name: 'Deployment on hold' }).waitFor();
    await inEachVariant(ada, () => assertFits(ada));
    await assertAccessible(ada);
    await screenshot(ada, 'pending');
  });

  await t.test('release empties the page', async () => {
    await visit(ada, '/pending');
    await ada.getByRole('region', { name: 'Deployment on hold' }).waitFor();
    await ada.evaluate(() => (window.neverReloaded = true));
    await tell(ada, `deployments/${deployment}/release`, { reason: 'disks are in' });
    await ada.getByText('No pending steps').waitFor({ timeout: 120_000 });
    assert.equal(await ada.evaluate(() => window.neverReloaded), true, 'without a reload');
    assertNoProblems(ada, /404/); // the unknown deployment
  });
});
