// Screenshots of every page, in three widths with light colors and in the largest width with dark
// colors, are compared with those in screenshots/.
//
// After an intended change: run GANTRY_WRITE=1 node --test end2end/screenshots.test.mjs, review the
// changed files in git, and commit them with the change. A new page is one line in `pages`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { findNoderole, propose, row, signIn } from './lib/console.mjs';
import { commitPendingChange, exampleIds } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';
import { assertSizes, startBaselines, differences, unusedBaselines, mode } from './lib/screenshots.mjs';

// Rows whose order or content differs each time: concurrent runs, and facts about this machine.
// Column widths depend on their content.
const ROW_ORDER = 'thead, tbody';
const MACHINE_FACTS = '[aria-label="Facts"] > :not(header)';
const HOURS_CHART = '.overview svg:not(.icon)';
// A card counts as viewed once its end was in the window, before or after the screenshot.
const VIEWED_STATE = '.viewed-count, .pill.flat';
// The root of a demo node is in the folder of this start. It is in the first row of the node.
const ROOT_FOLDER = '.changes tbody tr:first-child td:nth-child(3)';
// The entry is sealed a moment later.
const SEAL = 'tbody td:last-child';
const HEALTH_CHECKS = '[aria-label="Health checks"] > :not(header)';
// Runs are numbered in the order of queueing, and several are queued at once.
const RUN_NUMBERS = '.crumbs, .head .muted, [aria-label="Runs of this step"] .link-list';
// The names and results of tasks depend on the machine and the moment.
const BACKGROUND_TASKS = '[aria-label="Background tasks"] table';
// Length and content of a run's output and input differ, so these take no space.
const RUN_DATA = '.log, [aria-labelledby="log-title"] header .muted, [aria-label="Data"] .padded';
// The name of a worker has its machine and process.
const WORKER_NAME = '.crumbs, h1, .head .muted, [aria-label="About this worker"] dd';

// Ids of the demo derive from names, so their order is fixed. `gone` lists content whose size
// differs: output and results of runs, health checks of nodes, and the audit, which is longer after
// a slow start.
const dialog = (button) => async (page) => {
  await page.getByRole('button', { name: button }).first().click();
  await page.getByRole('dialog').waitFor();
};
const palette = async (page) => {
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').waitFor();
};

// With a dragged node, every role shows whether the node can go there.
const dragged = async (page) => {
  await page.locator('.tray').getByRole('button', { name: 'n2', exact: true }).press(' ');
  await page.locator('[data-over]').waitFor();
};

// The server sends the preview of the first role.
const previewed = (page) => page.getByText('Preview of the proposal').waitFor();

/**
 * Name, path (from the results of `commitPendingChange` and `exampleIds`), varying content, preparation, and
 * removed content.
 */
const pages = [
  ['overview', () => '/', [HOURS_CHART]],
  ['deployments', () => '/deployments'],
  ['board', ({ board }) => board],
  ['board-hold', ({ board }) => board, [], dialog('Put on hold…')],
  ['board-system', () => '/deployments/system'],
  ['noderole', ({ noderole }) => `/noderoles/${noderole}`],
  ['noderole-data', ({ noderole }) => `/noderoles/${noderole}/data`],
  ['nodes', () => '/nodes'],
  ['nodes-add', () => '/nodes', [], dialog('Add node')],
  ['node', () => '/nodes/n1.demo.gantry.internal', [MACHINE_FACTS, HEALTH_CHECKS]],
  ['pending', () => '/pending'],
  ['reviews', () => '/reviews?state=any'],
  ['reviews-empty', () => '/reviews?involvement=mine&deployment=edge&filter=nothing'],
  ['review', ({ review }) => review, [VIEWED_STATE, ROOT_FOLDER]],
  ['review-graph', ({ review }) => `${review}?tab=graph`],
  ['review-waves', ({ review }) => `${review}?tab=waves`],
  ['review-checks', ({ review }) => `${review}?tab=checks`],
  ['review-discussion', ({ review }) => `${review}?tab=discussion`, [VIEWED_STATE]],
  ['review-missing', () => '/reviews/999999'],
  ['graphs', () => '/graphs'],
  ['graph', () => '/graph/edge'],
  ['graph-table', () => '/graph/edge?as=table'],
  ['runs', () => '/runs?node=n5.demo.gantry.internal', [ROW_ORDER]],
  ['run', ({ run }) => `/runs/${run}`, [RUN_NUMBERS], undefined, [RUN_DATA]],
  ['runs-empty', () => '/runs?state=lost'],
  ['audit', () => '/audit?action=sign_in', [SEAL]],
  ['blueprints', () => '/blueprints'],
  ['blueprints-compared', () => '/blueprints?from=1&to=2', [ROOT_FOLDER]],
  ['catalog', () => '/catalog'],
  ['roles', () => '/catalog/roles'],
  ['role', () => '/catalog/roles/app'],
  ['role-graph', () => '/catalog/graph'],
  ['imports', () => '/catalog/imports'],
  ['search', () => '/search?q=web'],
  ['workers', () => '/workers', [ROW_ORDER], undefined, [BACKGROUND_TASKS]],
  ['worker', ({ worker }) => `/workers/${worker}`, [WORKER_NAME]],
  ['palette', () => '/deployments', [], palette],
  ['account', () => '/settings/account'],
  ['people', () => '/settings/people'],
  ['person', ({ person }) => `/settings/people/${person}`, ['.crumbs']],
  ['services', () => '/settings/services'],
  ['policy', () => '/settings/policy'],
  ['bad-request', () => '/runs?state=sleeping'],
  ['not-found', () => '/elsewhere'],
];
/** Pages while changes are proposed. */
const proposing = [
  ['board-noderole', ({ board, noderole }) => `${board}?noderole=${noderole}`, ['.link-list']],
  ['board-proposal', () => '/deployments/web'],
  ['board-dragging', () => '/deployments/web', [], dragged],
  ['proposal', ({ proposal }) => proposal, [], previewed],
];
/** Pages without a session. */
const outside = [
  ['sign-in', () => '/sign-in'],
  ['sign-in-refused', () => '/sign-in?next=%2Fruns', [], async (page) => {
    await page.getByLabel('Name').fill('nobody');
    await page.getByLabel('Password').fill('not a password of anybody');
    await page.getByRole('button', { name: 'Sign in' }).first().click();
    await page.getByRole('alert').waitFor();
  }],
];

test('every page matches its screenshots', { timeout: 600_000 }, async (t) => {
  const browser = await openBrowser();
  after(() => browser.close());
  const { write, skip } = await mode(browser);
  if (skip) {
    process.stderr.write(`\n!!! ${skip}\n\n`);
    return t.skip(skip);
  }
  const gantry = await start({ name: 'screenshots' });
  after(() => gantry.stop());
  // Two people: a reviewer does not see others' settings, and an admin gives no verdict.
  const [ada, bo, stranger] = await Promise.all([1, 2, 3].map(() => openPage(browser, gantry)));
  await signIn(ada, gantry, 'author');
  await signIn(bo, gantry, 'reviewer');
  const found = await commitPendingChange(bo);
  Object.assign(found, await exampleIds(bo, found.board));
  const { workers } = await (await bo.request.get('/api/v1/workers')).json();
  found.worker = workers[0].id;
  await bo.context().close();
  if (write) await startBaselines(browser);
  for (const [page, shown] of [[ada, pages], [ada, proposing], [stranger, outside]]) {
    if (shown === proposing) found.proposal = await proposed(page);
    for (const [name, address, hide, open = () => {}, gone = []] of shown) {
      await t.test(name, async () => {
        const compare = async () => {
          await visit(page, address(found));
          await page.getByRole('heading', { level: 1 }).first().waitFor();
          await page.waitForLoadState('load');
          await open(page);
          return differences(page, name, { write, hide, gone });
        };
        // On the second attempt, pending responses have arrived. Real differences remain.
        const differing = await retried(compare);
        assert.equal(differing.length, 0, `${differing.join('\n')}\nIf this is intended, run GANTRY_WRITE=1 node --test end2end/screenshots.test.mjs`);
      });
    }
  }
  await assertSizes();
  assert.deepEqual(await unusedBaselines([...pages, ...proposing, ...outside].map(([name]) => name)), [], 'baselines without a page: run with GANTRY_WRITE=1 to write all again');
});

/** Proposes changes on web and on a single node. Returns the path of the latter. */
async function proposed(page) {
  await visit(page, '/deployments/web');
  await propose(page);
  await page.locator('.tray').getByRole('button', { name: 'n1', exact: true }).dragTo(row(page, 'app').locator('.cell'));
  await findNoderole(page, 'app', 'n1').waitFor();
  await visit(page, '/nodes/n4.demo.gantry.internal');
  await page.getByRole('button', { name: /^Propose changes on n4/ }).click();
  await page.waitForURL(/\/proposals\/\d+/);
  return new URL(page.url()).pathname;
}

async function retried(compare) {
  const differing = await compare();
  if (differing.length === 0) return differing;
  await new Promise((later) => setTimeout(later, 3_000));
  return compare();
}
