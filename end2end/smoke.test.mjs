// Gantry starts, serves, hydrates, signs in, stops and restarts. All stories depend on this.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chmod, copyFile, cp, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, useSignInLink, visit } from './lib/browser.mjs';
import { binary, dataFolder, site, start } from './lib/gantry.mjs';

let browser;
before(async () => (browser = await openBrowser()));
after(async () => browser.close());

test('Gantry starts, stops and starts again', async (t) => {
  const data = await dataFolder();
  t.after(() => rm(data, { recursive: true, force: true }));
  const gantry = await start({ name: 'smoke', data });
  let stopped = false;
  t.after(async () => stopped || (await gantry.stop()));

  await t.test('files are served compressed', async () => {
    const page = await fetch(`${gantry.address}/sign-in`).then((answer) => answer.text());
    const [pkg] = page.match(/\/pkg\/[0-9a-f]{16}/);
    for (const [path, type] of [
      [`${pkg}/gantry.js`, /javascript/],
      [`${pkg}/gantry.wasm`, /^application\/wasm/],
      [`${pkg}/gantry.css`, /^text\/css/],
      ['/fonts/inter-latin-wght-normal.woff2', /^font\/woff2/],
    ]) {
      const answer = await fetch(gantry.address + path, { headers: { 'accept-encoding': 'br' } });
      assert.equal(answer.status, 200, path);
      assert.match(answer.headers.get('content-type'), type, path);
      if (!path.startsWith('/fonts/')) assert.equal(answer.headers.get('content-encoding'), 'br', path);
      await answer.arrayBuffer();
    }
  });

  await t.test('each sign-in link works once', async () => {
    for (const role of ['author', 'reviewer']) {
      const page = await openPage(browser, gantry);
      assert.equal(await useSignInLink(page, gantry, role), 200);
      assert.doesNotMatch(page.url(), /sign-in/);
      assertNoProblems(page);

      const second = await openPage(browser, gantry);
      assert.equal(await useSignInLink(second, gantry, role), 403);
      assert.match(second.url(), /sign-in/);
      assert.match(await second.getByRole('alert').innerText(), /already used/);
      await page.context().close();
      await second.context().close();
    }
  });

  await t.test('signed-out visitors see the sign-in page', async () => {
    const page = await openPage(browser, gantry);
    await visit(page, '/');
    await inEachVariant(page, () => assertFits(page));
    assertNoProblems(page);
    const plain = await openPage(browser, { ...gantry, address: gantry.address, scripts: false });
    await plain.goto('/');
    assert.notEqual((await plain.innerText('body')).trim(), '');
    await page.context().close();
    await plain.context().close();
  });

  await t.test('a restart keeps the data and prints new links', async () => {
    const links = gantry.signIns.map(({ url }) => url.replace(gantry.address, ''));
    await gantry.stop();
    stopped = true;
    await assert.rejects(fetch(gantry.address));

    const again = await start({ name: 'smoke-again', data });
    try {
      assert.equal(again.signIns.length, links.length);
      for (const { url } of again.signIns) assert.ok(!links.includes(url.replace(again.address, '')), 'a link must not be printed twice');
      const page = await openPage(browser, again);
      assert.equal(await useSignInLink(page, again, 'author'), 200);
      await page.context().close();
    } finally {
      await again.stop();
    }
  });
});

// Root may do everything, so run as another account to test the permissions of a regular one.
test('an unprivileged account runs Gantry from a read-only folder', { skip: process.getuid() !== 0 }, async (t) => {
  const folder = await dataFolder();
  t.after(() => rm(folder, { recursive: true, force: true }));
  const program = join(folder, 'bin/gantry');
  await mkdir(join(folder, 'bin'));
  await copyFile(binary, program);
  await chmod(program, 0o755);
  await cp(site, join(folder, 'site'), { recursive: true });
  const data = join(folder, 'home');
  await mkdir(data);
  await chmod(data, 0o777);

  const nobody = 65534;
  const env = { HOME: data, GANTRY_SITE: join(folder, 'site') };
  const gantry = await start({ name: 'ordinary-account', data, program, uid: nobody, gid: nobody, env });
  try {
    const page = await openPage(browser, gantry);
    assert.equal(await useSignInLink(page, gantry, 'author'), 200);
    await page.context().close();
  } finally {
    await gantry.stop();
  }
});
