// Every page looks as it looked: pictures of three widths in light, and of the widest in dark, compared with those in looks/.
//
// After a change that is meant to be seen: GANTRY_WRITE=1 node --test end2end/looks.test.mjs, look at what git says has changed, and
// commit it with the change. A new page is one line in `pages`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { settle, something } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';
import { assertSmall, begin, differences, leftOver, mode } from './lib/looks.mjs';

// Rows that come in another order, or are others, each time: what ran at once, and what this machine is. Columns are as wide as they need.
const ORDER = 'thead, tbody';
const MACHINE = '[aria-label="Facts"] > :not(header)';
const HOURS = '.overview svg:not(.icon), [aria-label="Runs"] > :not(header)';
// A card counts as opened once its end was in the window, which is before or after the picture.
const OPENED = '.seen, .pill.flat';
// It is sealed a moment later.
const SEALED = 'tbody td:last-child';
const LOOKED = '[aria-label="Looks"] > :not(header)';

// Ids of the demo follow from its names, so what comes by id comes in one order. Left out is what differs in its very size: what a run
// says and returned, the looks at a node and all of the audit, of which there is more the longer a start takes.
/** Name, address (of what `settle` and `something` found), what varies there, and what is opened before the picture is taken. */
const dialog = (button) => async (page) => {
  await page.getByRole('button', { name: button }).first().click();
  await page.getByRole('dialog').waitFor();
};
const palette = async (page) => {
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').waitFor();
};

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
  ['review', ({ review }) => review, [OPENED]],
  ['review-graph', ({ review }) => `${review}?tab=graph`],
  ['review-waves', ({ review }) => `${review}?tab=waves`],
  ['review-checks', ({ review }) => `${review}?tab=checks`],
  ['review-missing', () => '/reviews/999999'],
  ['graphs', () => '/graph'],
  ['graph', () => '/graph/edge'],
  ['graph-table', () => '/graph/edge?as=table'],
  ['runs', () => '/runs?node=n5.demo.gantry.internal', [ORDER]],
  ['runs-empty', () => '/runs?state=lost'],
  ['audit', () => '/audit?action=sign_in', [SEALED]],
  ['blueprints', () => '/blueprints'],
  ['blueprints-compared', () => '/blueprints?from=1&to=2'],
  ['catalog', () => '/catalog'],
  ['roles', () => '/catalog/roles'],
  ['role', () => '/catalog/roles/app'],
  ['role-graph', () => '/catalog/graph'],
  ['imports', () => '/catalog/imports'],
  ['search', () => '/search?q=web'],
  ['workers', () => '/workers', [ORDER]],
  ['palette', () => '/deployments', [], palette],
  ['account', () => '/settings/account'],
  ['people', () => '/settings/people'],
  ['person', ({ person }) => `/settings/people/${person}`],
  ['services', () => '/settings/services'],
  ['policy', () => '/settings/policy'],
  ['bad-request', () => '/runs?state=sleeping'],
  ['not-found', () => '/elsewhere'],
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
  await bo.context().close();
  if (write) await begin(browser);
  for (const [page, shown] of [[ada, pages], [stranger, outside]]) {
    for (const [name, address, hide, open = () => {}] of shown) {
      await t.test(name, async () => {
        const look = async () => {
          await visit(page, address(found));
          await page.getByRole('heading', { level: 1 }).first().waitFor();
          await page.waitForLoadState('load');
          await open(page);
          return differences(page, name, { write, hide });
        };
        // What was still on its way the first time has come by the second; what looks otherwise looks so again.
        const differing = await retried(look);
        assert.equal(differing.length, 0, `${differing.join('\n')}\nMeant so? GANTRY_WRITE=1 node --test end2end/looks.test.mjs`);
      });
    }
  }
  await assertSmall();
  assert.deepEqual(await leftOver([...pages, ...outside].map(([name]) => name)), [], 'baselines of no page: GANTRY_WRITE=1 writes all anew');
});

async function retried(look) {
  const differing = await look();
  if (differing.length === 0) return differing;
  await new Promise((later) => setTimeout(later, 3_000));
  return look();
}
