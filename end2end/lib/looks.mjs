// How pages look, compared with how they looked when somebody last said that this is right.
//
// A picture is taken of a page that stands still: what differs from one start of Gantry to the next (times, ids, hashes, ports) is made
// invisible by a style that only the test has, and takes the same room whatever it says. So what is left to differ is the page.
//
// Baselines lie in looks/, with the major version of the browser that drew them: another one draws letters otherwise.

import assert from 'node:assert/strict';
import { mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pixelmatch from 'pixelmatch';
import { PNG } from 'pngjs';
import { widths } from './browser.mjs';
import { results } from './gantry.mjs';

export const folder = join(dirname(fileURLToPath(import.meta.url)), '../looks');
const drawnBy = join(folder, 'chromium.txt');

/** Widths and schemes that are compared. */
export const looks = [[1440, 'light'], [1024, 'light'], [390, 'light'], [1440, 'dark']];
/** So many pixels may differ clearly, however large the picture: an edge drawn otherwise, and no letter, no line, no mark. */
const ALLOWED = 60;
/** A page is shown down to here: what is below looks like what is above. */
const TALLEST = 1600;
/** Bytes: of one picture, and of all. */
const LARGEST = 1.4e6;
const LARGEST_ALL = 15 * 1024 * 1024;

/** What no two starts have in common. */
const STILL = `
  *, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; scroll-behavior: auto !important }
  time, span.nowrap { display: inline-block !important; inline-size: 7em; block-size: 1lh; overflow: hidden; vertical-align: bottom; white-space: nowrap; visibility: hidden !important }
  code, pre, .mono, [data-varies] { color: transparent !important; text-shadow: none !important }
  ::-webkit-scrollbar { display: none }
`;

/** The name of a picture's file. */
const fileOf = (name, [width, scheme]) => `${name}-${width}${scheme === 'light' ? '' : `-${scheme}`}.png`;

/** The major version of a browser, as in looks/chromium.txt. */
const major = (browser) => browser.version().split('.')[0];

/**
 * What can be said of pictures by this browser: `write` (baselines are to be written), `compare`, or why they can't be compared. That
 * is no failure anywhere: the browser is the system's, and its next version would stop everybody for what they have not done.
 */
export async function mode(browser) {
  if (process.env.GANTRY_WRITE === '1') return { write: true };
  const noted = await readFile(drawnBy, 'utf8').then((text) => text.trim(), () => null);
  assert.ok(noted, 'there are no baselines in end2end/looks: GANTRY_WRITE=1 node --test end2end/looks.test.mjs writes them');
  if (noted === major(browser)) return { compare: true };
  return { skip: `baselines were drawn by Chromium ${noted}, and this is ${major(browser)}: letters look otherwise, so NOTHING IS COMPARED` };
}

/** Empties the folder for new baselines, and notes who draws them. */
export async function begin(browser) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await writeFile(drawnBy, `${major(browser)}\n`);
}

/** All of the baselines are no more than the tree should carry. */
export async function assertSmall() {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.png'));
  const sizes = await Promise.all(names.map(async (name) => [name, (await stat(join(folder, name))).size]));
  const large = sizes.filter(([, size]) => size > LARGEST);
  assert.deepEqual(large, [], `pictures of more than ${LARGEST} bytes`);
  const all = sizes.reduce((sum, [, size]) => sum + size, 0);
  assert.ok(all <= LARGEST_ALL, `baselines have ${all} bytes in all; at most ${LARGEST_ALL} are good for the tree`);
}

/** Baselines of pages that the test knows no more. */
export async function leftOver(names) {
  const known = new Set(names.flatMap((name) => looks.map((look) => fileOf(name, look))));
  return (await readdir(folder)).filter((name) => name.endsWith('.png') && !known.has(name));
}

/**
 * A picture of the page as it is, standing still; `hide` names (by selectors) what varies beside the usual, `gone` what varies in its size.
 */
async function picture(page, hide, gone) {
  await page.mouse.move(0, 0);
  await page.evaluate(async (style) => {
    // What is lifted is put back when the focus leaves it.
    if (!document.querySelector('[data-over]')) document.activeElement?.blur?.();
    window.scrollTo(0, 0);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    document.adoptedStyleSheets = [sheet];
    await Promise.all([...document.fonts].map((font) => font.load()));
    await document.fonts.ready;
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  }, [STILL, rule(hide, 'visibility: hidden'), rule(gone, 'display: none')].join(' '));
  const tall = await page.evaluate(() => document.documentElement.scrollHeight);
  const { width, height } = page.viewportSize();
  const clip = { x: 0, y: 0, width, height: Math.min(Math.max(tall, height), TALLEST) };
  return page.screenshot({ fullPage: true, clip, animations: 'disabled', caret: 'hide' });
}

const rule = (selectors, what) => (selectors.length ? `${selectors.join(', ')} { ${what} !important }` : '');

/** Smaller than the browser makes it: no transparency, and what suits pictures of one colour here and there. */
function packed(bytes) {
  return PNG.sync.write(PNG.sync.read(bytes), { colorType: 2, filterType: 0, deflateLevel: 9, deflateStrategy: 0 });
}

/**
 * Compares a page, visited already, with its baselines, or writes them. Hands back what differs, in words; actual and differing
 * pictures then lie in results/.
 */
export async function differences(page, name, { write, hide = [], gone = [] }) {
  const found = [];
  for (const look of looks) {
    const [width, scheme] = look;
    await page.setViewportSize({ width, height: widths[width] });
    await page.emulateMedia({ colorScheme: scheme });
    const actual = await picture(page, hide, gone);
    const file = fileOf(name, look);
    if (write) await writeFile(join(folder, file), packed(actual));
    else found.push(...await compared(file, actual));
  }
  return found;
}

async function compared(file, bytes) {
  const kept = async (kind, picture) => {
    await mkdir(results, { recursive: true });
    const path = join(results, `looks-${file.replace(/\.png$/, '')}-${kind}.png`);
    await writeFile(path, picture);
    return path;
  };
  const baseline = await readFile(join(folder, file)).catch(() => null);
  if (!baseline) return [`${file} has no baseline; it looks like ${await kept('actual', bytes)}`];
  const [was, is] = [PNG.sync.read(baseline), PNG.sync.read(bytes)];
  if (was.width !== is.width || was.height !== is.height) {
    return [`${file} was ${was.width} × ${was.height} and is ${is.width} × ${is.height}: ${await kept('actual', bytes)}`];
  }
  const diff = new PNG({ width: was.width, height: was.height });
  const count = pixelmatch(was.data, is.data, diff.data, was.width, was.height, { threshold: 0.1 });
  if (count <= ALLOWED) return [];
  const [actual, marked] = [await kept('actual', bytes), await kept('diff', PNG.sync.write(diff))];
  return [`${file} differs in ${count} pixels (${ALLOWED} may): ${actual}, ${marked}`];
}
