// Actions of people at the console, named as in the stories.

import { useSignInLink, visit } from './browser.mjs';

/** Signs in with a one-time link and opens the deployments, where most stories begin. */
export async function signIn(page, gantry, who) {
  await useSignInLink(page, gantry, who);
  await page.waitForURL((url) => url.pathname === '/');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Deployments' }).click();
  await page.waitForURL(/\/deployments$/);
  return page;
}

/** The row of a role on the board. */
export function row(page, role) {
  return page.locator(`[data-bindable][data-role="${role}"]`);
}

/** A noderole in a role's cell. */
export function findNoderole(page, role, node) {
  return page.locator(`[data-role="${role}"] [data-noderole]`).filter({ hasText: new RegExp(`^\\s*${node}\\b`) });
}

/** Waits until a noderole is in a state, without a reload. */
export async function waitForState(page, role, node, state) {
  await findNoderole(page, role, node).and(page.locator(`[data-state=${state}]`)).waitFor({ timeout: 60_000 });
}

/** Opens a proposal on the current board. */
export async function propose(page) {
  await page.getByRole('button', { name: 'Propose changes' }).click();
  await page.getByRole('region', { name: 'Open proposal' }).waitFor();
  await page.locator('[data-tray]').first().waitFor();
}

/** Opens the menu with other edits on the current board and chooses one. */
export async function openEdit(page, name) {
  await page.locator('.head').getByRole('button', { name: 'More…' }).click();
  await page.getByRole('dialog', { name: /^Propose changes on / }).getByRole('button', { name: new RegExp(`^${name}`) }).click();
}

/** Discards the open proposal, for the next test. */
export async function discard(page) {
  await page.getByRole('button', { name: 'Discard' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
  await page.getByRole('button', { name: 'Propose changes' }).waitFor();
}

/** Sets data of a role in the open proposal. */
export async function putRoleData(page, role, data) {
  await page.getByRole('button', { name: `Data of ${role}`, exact: true }).click();
  const dialog = page.getByRole('dialog', { name: `Data of ${role}` });
  await dialog.getByLabel('As JSON').fill(JSON.stringify(data));
  await dialog.getByText('Valid JSON that matches the schemas of the role.').waitFor();
  await dialog.getByRole('button', { name: 'Add to the proposal' }).click();
  await dialog.waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: /^Undo “.*data/i }).waitFor();
}

/** Submits the open proposal and returns the review's number. */
export async function submit(page, title) {
  await page.getByRole('button', { name: 'Review changes' }).click();
  const dialog = page.getByRole('dialog', { name: 'Review changes' });
  await dialog.getByLabel('Title').fill(title);
  await dialog.getByRole('button', { name: 'Submit for review' }).click();
  await page.waitForURL(/\/reviews\/\d+$/);
  await page.getByRole('heading', { name: title }).waitFor();
  return page.url().match(/(\d+)$/)[1];
}

/** Views each of `parts`, approves and commits, which leads to the rollout. */
export async function commit(page, review, parts = []) {
  await visit(page, `/reviews/${review}`);
  for (const part of parts) await page.getByText(part).filter({ visible: true }).first().waitFor();
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByText('1 of 1 approval').waitFor();
  await commitApproved(page, review);
}

/** Commits an approved review, which leads to the rollout. */
export async function commitApproved(page, review) {
  if (!page.url().endsWith(`/reviews/${review}`)) await visit(page, `/reviews/${review}`);
  await page.getByRole('button', { name: 'Commit' }).click();
  await page.waitForURL(/\/blueprints\/\d+$/);
}
