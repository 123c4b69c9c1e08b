// The second factor: set up in My account, required after the password, also without scripts.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, inEachVariant, openBrowser, openPage, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const password = 'vague otter lamp';
let browser;
let gantry;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'second-factor' });
}, { timeout: 240_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

function base32(text) {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
  const bits = [...text].map((letter) => letters.indexOf(letter).toString(2).padStart(5, '0')).join('');
  return Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
}

/** The code of a secret (RFC 6238), this number of time steps from now. */
function code(secret, steps = 0) {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + steps));
  const mac = createHmac('sha1', base32(secret)).update(counter).digest();
  const offset = mac[19] & 15;
  return String((mac.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}

async function enterPassword(page) {
  await page.goto('/sign-in');
  await page.getByLabel('Name', { exact: true }).fill('ada');
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
}

test('an authenticator app is set up, required and removed', { timeout: 300_000 }, async (t) => {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  let secret;

  await t.test('the app is set up in My account', async () => {
    await visit(ada, '/settings/account');
    const card = ada.getByRole('region', { name: 'Password' });
    await card.getByLabel('New password').fill(password);
    await card.getByLabel('Repeat password').fill(password);
    await card.getByRole('button', { name: 'Set password' }).click();
    await card.getByText('The password is set').waitFor();
    await ada.getByRole('button', { name: 'Set up an authenticator app' }).click();
    await ada.waitForURL(/\/second-factor\?next=/);
    const key = (await ada.getByRole('group', { name: 'Key' }).innerText()).trim();
    assert.match(key, /^([A-Z2-7]{4} ){7}[A-Z2-7]{4}$/);
    secret = key.replaceAll(' ', '');
    await inEachVariant(ada, async () => {
      await assertFits(ada);
      await assertAccessible(ada);
    });
    await ada.getByLabel('Code').fill(code(secret, -1));
    await ada.getByRole('button', { name: 'Confirm' }).click();
    await ada.waitForURL(/\/settings\/account$/);
    await ada.getByRole('button', { name: 'Remove the authenticator app' }).waitFor();
  });

  await t.test('sign-in requires a code without JavaScript', async () => {
    const plain = await openPage(browser, { address: gantry.address, scripts: false });
    await enterPassword(plain);
    await plain.waitForURL(/\/second-factor$/);
    await plain.goto('/nodes');
    await plain.waitForURL(/\/second-factor\?next=%2Fnodes$/);
    await plain.getByLabel('Code').fill(code(secret, -1));
    await plain.getByRole('button', { name: 'Continue' }).click();
    await plain.getByText('This code was already used').waitFor();
    await plain.getByLabel('Code').fill(code(secret));
    await plain.getByRole('button', { name: 'Continue' }).click();
    await plain.waitForURL(/\/nodes$/);
    await plain.goto('/settings/account');
    await plain.getByRole('button', { name: 'Remove the authenticator app' }).click();
    await plain.getByRole('button', { name: 'Set up an authenticator app' }).waitFor();
    await plain.context().close();
  });
});
