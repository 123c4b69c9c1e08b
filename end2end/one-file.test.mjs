// A release is one file: it serves complete pages without further files. `cargo xtask test browser`
// builds such a program.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { assertNoProblems, openBrowser, openPage, useSignInLink } from './lib/browser.mjs';
import { dataFolder, start } from './lib/gantry.mjs';

const built = process.env.GANTRY_ONE_FILE;
const skip = !built && 'GANTRY_ONE_FILE names no program that carries its site: `cargo xtask test browser` builds one';

test('the single-file binary serves its site', { skip }, async () => {
  const folder = await dataFolder();
  after(() => rm(folder, { recursive: true, force: true }));
  const program = join(folder, 'gantry-release');
  await copyFile(built, program);
  const gantry = await start({ name: 'one-file', data: folder, program, env: { GANTRY_SITE: undefined } });
  after(() => gantry.stop());
  const browser = await openBrowser();
  after(() => browser.close());

  const page = await openPage(browser, gantry);
  const module = page.waitForResponse((answer) => answer.url().endsWith('/gantry.wasm'));
  await useSignInLink(page, gantry, 'author');
  await page.getByRole('heading', { level: 1, name: /^Overview/ }).waitFor();
  assert.equal((await module).headers()['content-encoding'], 'br');
  assertNoProblems(page);
  assert.doesNotMatch(gantry.log(), /site files not found/);
});
