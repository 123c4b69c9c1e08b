// Debian's Chromium, driven by playwright-core: nothing is downloaded.
//
// Each person of a story gets a browser context, that is, cookies of its own. What goes wrong in a page without being
// looked at (an exception, an error in the console, a request that fails) is collected and fails the test that asks.

import assert from 'node:assert/strict';
import { readFile, mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { results } from './gantry.mjs';

export const widths = { 1440: 900, 1024: 768, 390: 844 }; // and their heights
export const schemes = ['light', 'dark'];

/** Starts the browser; close it with `close()`. One that dies while it starts, as Chromium now and then does, is started once more. */
export async function openBrowser() {
  try {
    return await launch();
  } catch (error) {
    console.error(`The browser did not start and is started again: ${error.message.split('\n')[0]}`);
    return launch();
  }
}

function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    // Quiet and alone: no sandbox (root has none), no graphics card, nothing of its own on the network.
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
}

/**
 * A page of its own person, 1440 wide and light unless said otherwise. `page.problems` lists what went wrong in it;
 * `scripts: false` is a browser that runs none.
 */
export async function openPage(browser, { address, width = 1440, scheme = 'light', scripts = true } = {}) {
  const context = await browser.newContext({
    baseURL: address,
    viewport: { width, height: widths[width] ?? 900 },
    colorScheme: scheme,
    reducedMotion: 'reduce',
    javaScriptEnabled: scripts,
  });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(`exception: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') page.problems.push(`console: ${message.text()}`);
  });
  page.on('requestfailed', (request) => {
    // A page that is left ends its requests, the live stream first of all.
    const why = request.failure()?.errorText;
    if (why !== 'net::ERR_ABORTED') page.problems.push(`request: ${request.method()} ${request.url()}: ${why}`);
  });
  return page;
}

/** Ends when the page's module has taken over what the server rendered. */
export async function hydrated(page) {
  await page.waitForSelector('html[data-hydrated]', { state: 'attached' });
}

/** Goes there and waits for its module. */
export async function visit(page, path) {
  const response = await page.goto(path, { waitUntil: 'domcontentloaded' });
  await hydrated(page);
  return response;
}

/**
 * Signs a person in with one of a Gantry's one-time links, by role or name; the page then shows the start page. Where the
 * link was used before, it stays at the sign-in and the answer's status says so.
 */
export async function signIn(page, gantry, who) {
  await page.goto(gantry.signIn(who));
  let status;
  const note = (response) => {
    if (response.request().isNavigationRequest()) status = response.status();
  };
  page.on('response', note);
  // Without scripts, nobody takes the token out of the link's fragment.
  const field = page.getByLabel('Link or token');
  if (!(await field.inputValue())) await field.fill(gantry.signIn(who));
  await page.getByRole('button', { name: 'Sign in with the link' }).click();
  // To the start page, or back to the sign-in with a problem.
  await page.waitForURL((url) => url.pathname !== '/sign-in' || url.searchParams.has('problem'));
  page.off('response', note);
  await hydrated(page);
  return status;
}

/** Nothing went wrong in the page unseen; `expected` names (as a pattern) what may. */
export function assertQuiet(page, expected = /(?!)/) {
  assert.deepEqual(page.problems.filter((problem) => !expected.test(problem)), []);
}

/** Nothing sticks out to the side. */
export async function assertFits(page) {
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(wide <= room, `${page.url()} is ${wide} px wide in a window of ${room} px`);
}

/** Pictures of the page as it is, in light and dark and in three widths: results/NAME-WIDTH-SCHEME.png. */
export async function screenshot(page, name) {
  await mkdir(results, { recursive: true });
  await eachLook(page, async (width, scheme) => {
    await page.evaluate(() => document.fonts.ready);
    await page.screenshot({ path: join(results, `${name}-${width}-${scheme}.png`), fullPage: true, animations: 'disabled' });
  });
}

/** Does something in every width and scheme, and leaves the page as it was. */
export async function eachLook(page, look) {
  const before = page.viewportSize();
  const scheme = await page.evaluate(() => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  for (const [width, height] of Object.entries(widths)) {
    await page.setViewportSize({ width: Number(width), height });
    for (const colorScheme of schemes) {
      await page.emulateMedia({ colorScheme });
      await look(Number(width), colorScheme);
    }
  }
  await page.emulateMedia({ colorScheme: scheme });
  await page.setViewportSize(before);
}

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// Beyond WCAG: whoever goes from landmark to landmark reaches everything, and can tell them apart.
const landmarks = { region: { enabled: true }, 'landmark-unique': { enabled: true } };

/** What WCAG 2.2 AA asks and a program can judge (contrast included), in light and in dark. */
export async function assertAccessible(page, { exclude = [] } = {}) {
  const scheme = await page.evaluate(() => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  for (const colorScheme of schemes) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(
      ([exclude, rules]) => window.axe.run(
        { exclude },
        { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }, rules },
      ),
      [exclude.map((selector) => [selector]), landmarks],
    );
    const said = violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id} (${help}) at ${target.join(' ')}: ${failureSummary}`));
    assert.deepEqual(said, [], `${page.url()} in ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: scheme });
}
