// Takes the screenshots of the README and the book from a new Gantry: make pictures.
//
// They show the first ten minutes, light, 1440 × 900. Those of the README exist in dark too.

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { propose, row, signIn } from './lib/console.mjs';
import { settle } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';

const folder = fileURLToPath(new URL('../docs/pictures', import.meta.url));

const browser = await openBrowser();
const gantry = await start({ name: 'pictures' });
try {
  await mkdir(folder, { recursive: true });
  const [ada, bo] = [await openPage(browser, gantry), await openPage(browser, gantry)];
  await signIn(ada, gantry, 'author');
  await signIn(bo, gantry, 'reviewer');

  await visit(bo, '/reviews');
  const review = await bo.locator('main a[href^="/reviews/"]').first().getAttribute('href');
  await visit(bo, review);
  await taken(bo, 'review');

  const { board } = await settle(bo);
  await visit(bo, board.replace('/deployments/', '/graph/'));
  await bo.locator('svg').first().waitFor();
  await taken(bo, 'graph');

  await visit(bo, '/');
  await bo.getByRole('heading', { level: 1 }).first().waitFor();
  await taken(bo, 'overview');

  await visit(ada, '/deployments/web');
  await propose(ada);
  await lifted(ada, 'n1', 'proxy', () => taken(ada, 'board'));
} finally {
  await browser.close();
  await gantry.stop();
}

/** Takes screenshots of a page in light and dark. */
async function taken(page, name) {
  await page.evaluate(() => document.fonts.ready);
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    const path = join(folder, `${name}${scheme === 'dark' ? '-dark' : ''}.png`);
    await page.screenshot({ path, animations: 'disabled' });
    console.log(path);
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

/** Holds a node over a role while something is done, then puts it back. */
async function lifted(page, name, role, act) {
  await page.locator('.board[data-planner=here]').waitFor();
  const middle = async (of) => {
    const { x, y, width, height } = await of.boundingBox();
    return [x + width / 2, y + height / 2];
  };
  const [x, y] = await middle(page.getByRole('button', { name, exact: true }));
  await page.mouse.move(x, y);
  await page.mouse.down();
  await page.mouse.move(x - 30, y + 10, { steps: 3 });
  const target = row(page, role);
  await target.and(page.locator('[data-lift=legal]')).waitFor();
  await page.mouse.move(...await middle(target), { steps: 8 });
  await target.locator('.said').filter({ hasText: 'noderoles' }).waitFor();
  await act();
  await page.keyboard.press('Escape');
  await page.mouse.up();
}
