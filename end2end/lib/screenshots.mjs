// Compares screenshots of pages with approved baselines.
//
// A screenshot needs a stable page. A test-only style hides everything that differs between two
// starts of Gantry (times, ids, hashes, ports), without changing its size. The remaining
// differences come from the page.
//
// Baselines are in screenshots/, with the major version of the browser that drew them, because
// another version renders text differently.

import assert from 'node:assert/strict';
import { mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pixelmatch from 'pixelmatch';
import { PNG } from 'pngjs';
import { widths } from './browser.mjs';
import { results } from './gantry.mjs';

export const folder = join(dirname(fileURLToPath(import.meta.url)), '../screenshots');
const browserFile = join(folder, 'chromium.txt');

/** Widths and color schemes to compare. */
export const variants = [[1440, 'light'], [1024, 'light'], [390, 'light'], [1440, 'dark']];
/**
 * Maximum number of clearly different pixels, whatever the size: it tolerates antialiasing, but not
 * a changed letter or line.
 */
const ALLOWED = 60;
/** Maximum height of a screenshot. Content further below looks like the content above. */
const TALLEST = 1600;
/** Size limits in bytes: of one file, and of all. */
const LARGEST = 1.4e6;
const LARGEST_ALL = 15 * 1024 * 1024;

/** Hides everything that differs between two starts. */
const STABLE_STYLE = `
  *, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; scroll-behavior: auto !important }
  time, span.nowrap { display: inline-block !important; inline-size: 7em; block-size: 1lh; overflow: hidden; vertical-align: bottom; white-space: nowrap; visibility: hidden !important }
  code, pre, .mono, [data-varies] { color: transparent !important; text-shadow: none !important }
  ::-webkit-scrollbar { display: none }
`;

const fileOf = (name, [width, scheme]) => `${name}-${width}${scheme === 'light' ? '' : `-${scheme}`}.png`;

/** The major version of a browser, as in screenshots/chromium.txt. */
const major = (browser) => browser.version().split('.')[0];

/**
 * The use of baselines in this browser: `write`, `compare`, or the reason why it can't compare.
 * The latter is no failure: the browser is the system's, and an update would break everyone's
 * tests.
 */
export async function mode(browser) {
  if (process.env.GANTRY_WRITE === '1') return { write: true };
  const recorded = await readFile(browserFile, 'utf8').then((text) => text.trim(), () => null);
  assert.ok(recorded, 'end2end/screenshots has no baselines: run GANTRY_WRITE=1 node --test end2end/screenshots.test.mjs');
  if (recorded === major(browser)) return { compare: true };
  return { skip: `baselines were drawn by Chromium ${recorded}, and this is ${major(browser)}: text looks different, so nothing is compared` };
}

/** Empties the folder for new baselines, and records the browser's version. */
export async function startBaselines(browser) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await writeFile(browserFile, `${major(browser)}\n`);
}

/** Checks the size limit for all baselines. */
export async function assertSizes() {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.png'));
  const sizes = await Promise.all(names.map(async (name) => [name, (await stat(join(folder, name))).size]));
  const large = sizes.filter(([, size]) => size > LARGEST);
  assert.deepEqual(large, [], `screenshots of more than ${LARGEST} bytes`);
  const all = sizes.reduce((sum, [, size]) => sum + size, 0);
  assert.ok(all <= LARGEST_ALL, `the baselines have ${all} bytes; the limit is ${LARGEST_ALL}`);
}

/** Baselines of pages that no longer exist. */
export async function unusedBaselines(names) {
  const known = new Set(names.flatMap((name) => variants.map((variant) => fileOf(name, variant))));
  return (await readdir(folder)).filter((name) => name.endsWith('.png') && !known.has(name));
}

/**
 * A screenshot of the stable page. `hide` and `gone` are selectors of further content to hide or to
 * remove.
 */
async function picture(page, hide, gone) {
  await page.mouse.move(0, 0);
  await page.evaluate(async (style) => {
    // A dragged node is put back when it loses the focus.
    if (!document.querySelector('[data-over]')) document.activeElement?.blur?.();
    window.scrollTo(0, 0);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    document.adoptedStyleSheets = [sheet];
    await Promise.all([...document.fonts].map((font) => font.load()));
    await document.fonts.ready;
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  }, [STABLE_STYLE, rule(hide, 'visibility: hidden'), rule(gone, 'display: none')].join(' '));
  const tall = await page.evaluate(() => document.documentElement.scrollHeight);
  const { width, height } = page.viewportSize();
  const clip = { x: 0, y: 0, width, height: Math.min(Math.max(tall, height), TALLEST) };
  return page.screenshot({ fullPage: true, clip, animations: 'disabled', caret: 'hide' });
}

const rule = (selectors, declaration) => (selectors.length ? `${selectors.join(', ')} { ${declaration} !important }` : '');

/**
 * Compresses better than the browser: no transparency, and filters for images with areas of one
 * color.
 */
function packed(bytes) {
  return PNG.sync.write(PNG.sync.read(bytes), { colorType: 2, filterType: 0, deflateLevel: 9, deflateStrategy: 0 });
}

/**
 * Compares a page with its baselines, or writes them. Returns a description of each difference, and
 * stores actual and difference images in results/.
 */
export async function differences(page, name, { write, hide = [], gone = [] }) {
  const found = [];
  for (const variant of variants) {
    const [width, scheme] = variant;
    await page.setViewportSize({ width, height: widths[width] });
    await page.emulateMedia({ colorScheme: scheme });
    const actual = await picture(page, hide, gone);
    const file = fileOf(name, variant);
    if (write) await writeFile(join(folder, file), packed(actual));
    else found.push(...await compared(file, actual));
  }
  return found;
}

async function compared(file, bytes) {
  const store = async (kind, picture) => {
    await mkdir(results, { recursive: true });
    const path = join(results, `screenshot-${file.replace(/\.png$/, '')}-${kind}.png`);
    await writeFile(path, picture);
    return path;
  };
  const baseline = await readFile(join(folder, file)).catch(() => null);
  if (!baseline) return [`${file} has no baseline; it looks like ${await store('actual', bytes)}`];
  const [expected, shown] = [PNG.sync.read(baseline), PNG.sync.read(bytes)];
  if (expected.width !== shown.width || expected.height !== shown.height) {
    return [`${file} was ${expected.width} × ${expected.height} and is ${shown.width} × ${shown.height}: ${await store('actual', bytes)}`];
  }
  const diff = new PNG({ width: expected.width, height: expected.height });
  const count = pixelmatch(expected.data, shown.data, diff.data, expected.width, expected.height, { threshold: 0.1 });
  if (count <= ALLOWED) return [];
  const [actual, marked] = [await store('actual', bytes), await store('diff', PNG.sync.write(diff))];
  return [`${file} differs in ${count} pixels (at most ${ALLOWED} are allowed): ${actual}, ${marked}`];
}
