// Takes the screenshots of the book from a new Gantry: make pictures.
//
// They show the graph of a deployment, in light and dark, 1440 × 900.

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { commitPendingChange } from './lib/demo.mjs';
import { start } from './lib/gantry.mjs';

const folder = fileURLToPath(new URL('../docs/pictures', import.meta.url));

const browser = await openBrowser();
const gantry = await start({ name: 'pictures' });
try {
  await mkdir(folder, { recursive: true });
  const bo = await openPage(browser, gantry);
  await signIn(bo, gantry, 'reviewer');

  const { board } = await commitPendingChange(bo);
  await visit(bo, board.replace('/deployments/', '/graph/'));
  await bo.locator('svg').first().waitFor();
  await taken(bo, 'graph');
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
