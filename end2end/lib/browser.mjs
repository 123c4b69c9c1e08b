// Controls Debian's Chromium with playwright-core, without downloading a browser.
//
// Each person has a separate browser context with its own cookies. Unexpected problems of a page
// (exceptions, console errors, failed requests) are collected. A test fails if it checks them.

import assert from 'node:assert/strict';
import { readFile, mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { results } from './gantry.mjs';

export const widths = { 1440: 900, 1024: 768, 390: 844 }; // with their heights
export const schemes = ['light', 'dark'];

/**
 * Starts the browser; end it with `close()`. Retries once, because Chromium sometimes crashes at
 * start.
 */
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
    // No sandbox (root can't use it), no GPU, and no background network requests.
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
}

/**
 * Opens a page with separate cookies, by default 1440 wide and light. `page.problems` lists its
 * problems. `scripts: false` disables scripts.
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
    // Leaving a page aborts its requests, such as the live stream.
    const reason = request.failure()?.errorText;
    if (reason !== 'net::ERR_ABORTED') page.problems.push(`request: ${request.method()} ${request.url()}: ${reason}`);
  });
  return page;
}

/** Waits until the page is hydrated. */
export async function hydrated(page) {
  await page.waitForSelector('html[data-hydrated]', { state: 'attached' });
}

/** Opens a path and waits until the page is hydrated. */
export async function visit(page, path) {
  const response = await page.goto(path, { waitUntil: 'domcontentloaded' });
  await hydrated(page);
  return response;
}

/**
 * Signs a person in with a one-time link, by role or name, which leads to the start page. If the
 * link was already used, the page stays at the sign-in. The status of the response shows it.
 */
export async function useSignInLink(page, gantry, who) {
  await page.goto(gantry.signIn(who));
  let status;
  const note = (response) => {
    if (response.request().isNavigationRequest()) status = response.status();
  };
  page.on('response', note);
  // Without scripts, the token of the link's fragment is not filled in.
  const field = page.getByLabel('Link or token');
  if (!(await field.inputValue())) await field.fill(gantry.signIn(who));
  await page.getByRole('button', { name: 'Sign in with the link' }).click();
  // Leads to the start page, or back to the sign-in page with a problem.
  await page.waitForURL((url) => url.pathname !== '/sign-in' || url.searchParams.has('problem'));
  page.off('response', note);
  await hydrated(page);
  return status;
}

/** Checks that the page had no unexpected problems. `expected` is a pattern for expected ones. */
export function assertNoProblems(page, expected = /(?!)/) {
  assert.deepEqual(page.problems.filter((problem) => !expected.test(problem)), []);
}

/** Checks that nothing overflows horizontally. */
export async function assertFits(page) {
  const [contentWidth, windowWidth] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(contentWidth <= windowWidth, `${page.url()} is ${contentWidth} px wide in a window of ${windowWidth} px`);
}

/** Takes screenshots in light and dark and in three widths: results/NAME-WIDTH-SCHEME.png. */
export async function screenshot(page, name) {
  await mkdir(results, { recursive: true });
  await inEachVariant(page, async (width, scheme) => {
    await page.evaluate(() => document.fonts.ready);
    await capture(page, join(results, `${name}-${width}-${scheme}.png`));
  });
}

/**
 * Takes a screenshot of the whole page. Retries once: after a change of the window's size, Chromium
 * sometimes draws no frame on a busy machine, and the screenshot never ends.
 */
async function capture(page, path) {
  const options = { path, fullPage: true, animations: 'disabled' };
  try {
    await page.screenshot(options);
  } catch (error) {
    if (error.name !== 'TimeoutError') throw error;
    console.error(`The screenshot ${path} is taken again: ${error.message.split('\n')[0]}`);
    await page.screenshot(options);
  }
}

/** Does something in every width and color scheme, then restores the page. */
export async function inEachVariant(page, action) {
  const before = page.viewportSize();
  const scheme = await page.evaluate(() => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  for (const [width, height] of Object.entries(widths)) {
    await page.setViewportSize({ width: Number(width), height });
    for (const colorScheme of schemes) {
      await page.emulateMedia({ colorScheme });
      await action(Number(width), colorScheme);
    }
  }
  await page.emulateMedia({ colorScheme: scheme });
  await page.setViewportSize(before);
}

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// Beyond WCAG: every content is in a landmark, and landmarks have unique names.
const landmarks = { region: { enabled: true }, 'landmark-unique': { enabled: true } };

/** Checks WCAG 2.2 AA as far as a tool can (including contrast), in light and dark. */
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
    const messages = violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id} (${help}) at ${target.join(' ')}: ${failureSummary}`));
    assert.deepEqual(messages, [], `findings of ${page.url()} in ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: scheme });
}
