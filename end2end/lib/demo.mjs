// Prepares the demo for tests of many pages and for the screenshots of the documentation: commits
// its pending change and waits for its rollout.

import assert from 'node:assert/strict';
import { visit } from './browser.mjs';

/**
 * Approves and commits the pending change, and waits until its rollout ends. Returns `{ review,
 * board, target }`.
 */
export async function commitPendingChange(page) {
  await visit(page, '/reviews');
  const link = page.locator('main a[href^="/reviews/"]').first();
  await link.waitFor();
  const review = await link.getAttribute('href');
  await visit(page, review);
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('button', { name: 'Commit' }).click();
  await page.waitForURL(/\/blueprints\/\d+$/);
  const board = await page.locator('main .head a[href^="/deployments/"]').getAttribute('href');
  const target = await newestBlueprint(page);
  await converged(page, target);
  return { review, board, target };
}

async function newestBlueprint(page) {
  const answer = await page.request.get('/api/v1/blueprints');
  assert.equal(answer.status(), 200, await answer.text());
  return (await answer.json()).blueprints[0].number;
}

/** Waits until the rollout of a blueprint ends. */
async function converged(page, target) {
  for (let time = 0; time < 8; time += 1) {
    const answer = await page.request.get(`/api/v1/blueprints/${target}?wait=25`, { timeout: 40_000 });
    const { progress } = await answer.json();
    if (progress === 'converged') return;
    assert.equal(progress, 'in_progress', `blueprint ${target} failed or is stuck`);
  }
  assert.fail(`blueprint ${target} did not converge in time`);
}

/** The ids of an ACTIVE noderole on a board, a successful run, and a person. */
export async function exampleIds(page, board) {
  await visit(page, board);
  const element = page.locator('[data-noderole][data-state=active]').first();
  await element.waitFor({ timeout: 60_000 });
  const noderole = await element.getAttribute('data-noderole');
  const answer = await page.request.get(`/api/v1/noderoles/${noderole}`);
  const { runs } = await answer.json();
  const me = await page.request.get('/api/v1/people/me');
  return { noderole, run: runs?.[0]?.id, person: (await me.json()).person.id };
}
