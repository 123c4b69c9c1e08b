// Every page looks as it looked: pictures of three widths in light, and of the widest in dark, compared with those in looks/.
//
// After a change that is meant to be seen: GANTRY_WRITE=1 node --test end2end/looks.test.mjs, look at what git says has changed, and
// commit it with the change. A new page is one line in `pages`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { chip, propose, row, signIn } from './lib/console.mjs';
import { settle, something } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';
import { assertSmall, begin, differences, leftOver, mode } from './lib/looks.mjs';

// Rows that come in another order, or are others, each time: what ran at once, and what this machine is. Columns are as wide as they need.
const ORDER = 'thead, tbody';
const MACHINE = '[aria-label="Facts"] > :not(header)';
const HOURS = '.overview svg:not(.icon), [aria-label="Runs"] > :not(header)';
// A card counts as opened once its end was in the window, which is before or after the picture.
const OPENED = '.seen, .pill.flat';
// The root of a demo node lies in this start's own folder. It is in the first row of its node.
const ROOT = '.changes tbody tr:first-child td:nth-child(3)';
// It is sealed a moment later.
const SEALED = 'tbody td:last-child';
const LOOKED = '[aria-label="Looks"] > :not(header)';
// Runs are numbered as they are queued, and several are at once.
const NUMBER = '.crumbs, .head .muted, [aria-label="Attempts at this step"] .link-list';
// How much a run writes, and into what it was told, differs; so these take no room.
const WRITTEN = '.log, [aria-labelledby="log-title"] header .muted, [aria-label="Data"] .inside';
// A worker is called as its machine and its process.
const WORKER = '.crumbs, h1, .head .muted, [aria-label="About this worker"] dd';

// Ids of the demo follow from its names, so what comes by id comes in one order. Left out is what differs in its very size: what a run
// says and returned, the looks at a node and all of the audit, of which there is more the longer a start takes.
const dialog = (button) => async (page) => {
  await page.getByRole('button', { name: button }).first().click();
  await page.getByRole('dialog').waitFor();
};
const palette = async (page) => {
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').waitFor();
};

// A lifted node lets every role say whether it can go there.
const lifted = async (page) => {
  await page.locator('.tray').getByRole('button', { name: 'n2', exact: true }).press(' ');
  await page.locator('[data-over]').waitFor();
};

// The preview of the first role comes from the server.
const previewed = (page) => page.getByText('With this the proposal comes to').waitFor();

/** Name, address (of what `settle` and `something` found), what varies there, what is done before the picture is taken, and what is left out. */
const pages = [
  ['overview', () => '/', [HOURS]],
  ['deployments', () => '/deployments'],
  ['board', ({ board }) => board],
  ['board-hold', ({ board }) => board, [], dialog('Hold…')],
  ['board-system', () => '/deployments/system'],
  ['noderole', ({ noderole }) => `/noderoles/${noderole}`],
  ['noderole-data', ({ noderole }) => `/noderoles/${noderole}/data`],
  ['nodes', () => '/nodes'],
  ['nodes-add', () => '/nodes', [], dialog('Add node')],
  ['node', () => '/nodes/n1.demo.gantry.internal', [MACHINE, LOOKED]],
  ['waiting', () => '/waiting'],
  ['reviews', () => '/reviews?state=any'],
  ['reviews-empty', () => '/reviews?whose=mine&deployment=edge&text=nothing'],
  ['review', ({ review }) => review, [OPENED, ROOT]],
  ['review-graph', ({ review }) => `${review}?tab=graph`],
  ['review-waves', ({ review }) => `${review}?tab=waves`],
  ['review-checks', ({ review }) => `${review}?tab=checks`],
  ['review-discussion', ({ review }) => `${review}?tab=discussion`, [OPENED]],
  ['review-missing', () => '/reviews/999999'],
  ['graphs', () => '/graph'],
  ['graph', () => '/graph/edge'],
  ['graph-table', () => '/graph/edge?as=table'],
  ['runs', () => '/runs?node=n5.demo.gantry.internal', [ORDER]],
  ['run', ({ run }) => `/runs/${run}`, [NUMBER], undefined, [WRITTEN]],
  ['runs-empty', () => '/runs?state=lost'],
  ['audit', () => '/audit?action=sign_in', [SEALED]],
  ['blueprints', () => '/blueprints'],
  ['blueprints-compared', () => '/blueprints?from=1&to=2', [ROOT]],
  ['catalog', () => '/catalog'],
  ['roles', () => '/catalog/roles'],
  ['role', () => '/catalog/roles/app'],
  ['role-graph', () => '/catalog/graph'],
  ['imports', () => '/catalog/imports'],
  ['search', () => '/search?q=web'],
  ['workers', () => '/workers', [ORDER]],
  ['worker', ({ worker }) => `/workers/${worker}`, [WORKER]],
  ['palette', () => '/deployments', [], palette],
  ['account', () => '/settings/account'],
  ['people', () => '/settings/people'],
  ['person', ({ person }) => `/settings/people/${person}`, ['.crumbs']],
  ['services', () => '/settings/services'],
  ['policy', () => '/settings/policy'],
  ['bad-request', () => '/runs?state=sleeping'],
  ['not-found', () => '/elsewhere'],
];
/** The same while changes are proposed. */
const proposing = [
  ['board-noderole', ({ board, noderole }) => `${board}?noderole=${noderole}`, ['.link-list']],
  ['board-proposal', () => '/deployments/web'],
  ['board-lifted', () => '/deployments/web', [], lifted],
  ['proposal', ({ proposal }) => proposal, [], previewed],
];
/** The same for somebody who has not signed in. */
const outside = [
  ['sign-in', () => '/sign-in'],
  ['sign-in-refused', () => '/sign-in?next=%2Fruns', [], async (page) => {
    await page.getByLabel('Name').fill('nobody');
    await page.getByLabel('Password').fill('not a password of anybody');
    await page.getByRole('button', { name: 'Sign in' }).first().click();
    await page.getByRole('alert').waitFor();
  }],
];

test('every page looks as it did', { timeout: 600_000 }, async (t) => {
  const browser = await openBrowser();
  after(() => browser.close());
  const { write, skip } = await mode(browser);
  if (skip) {
    process.stderr.write(`\n!!! ${skip}\n\n`);
    return t.skip(skip);
  }
  const gantry = await start({ name: 'looks' });
  after(() => gantry.stop());
  // Two people: who reviews sees no settings of others, and who administers gives no verdict.
  const [ada, bo, stranger] = await Promise.all([1, 2, 3].map(() => openPage(browser, gantry)));
  await signIn(ada, gantry, 'author');
  await signIn(bo, gantry, 'reviewer');
  const found = await settle(bo);
  Object.assign(found, await something(bo, found.board));
  const { workers } = await (await bo.request.get('/api/v1/workers')).json();
  found.worker = workers[0].id;
  await bo.context().close();
  if (write) await begin(browser);
  for (const [page, shown] of [[ada, pages], [ada, proposing], [stranger, outside]]) {
    if (shown === proposing) found.proposal = await proposed(page);
    for (const [name, address, hide, open = () => {}, gone = []] of shown) {
      await t.test(name, async () => {
        const look = async () => {
          await visit(page, address(found));
          await page.getByRole('heading', { level: 1 }).first().waitFor();
          await page.waitForLoadState('load');
          await open(page);
          return differences(page, name, { write, hide, gone });
        };
        // What was still on its way the first time has come by the second; what looks otherwise looks so again.
        const differing = await retried(look);
        assert.equal(differing.length, 0, `${differing.join('\n')}\nMeant so? GANTRY_WRITE=1 node --test end2end/looks.test.mjs`);
      });
    }
  }
  await assertSmall();
  assert.deepEqual(await leftOver([...pages, ...proposing, ...outside].map(([name]) => name)), [], 'baselines of no page: GANTRY_WRITE=1 writes all anew');
});

/** Proposes on web and on a node alone; where the second is. */
async function proposed(page) {
  await visit(page, '/deployments/web');
  await propose(page);
  await page.locator('.tray').getByRole('button', { name: 'n1', exact: true }).dragTo(row(page, 'app').locator('.cell'));
  await chip(page, 'app', 'n1').waitFor();
  await visit(page, '/nodes/n4.demo.gantry.internal');
  await page.getByRole('button', { name: /^Propose changes on n4/ }).click();
  await page.waitForURL(/\/proposals\/\d+/);
  return new URL(page.url()).pathname;
}

async function retried(look) {
  const differing = await look();
  if (differing.length === 0) return differing;
  await new Promise((later) => setTimeout(later, 3_000));
  return look();
}
