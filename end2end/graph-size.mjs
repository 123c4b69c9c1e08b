// Measures the graph page with a large graph: `node end2end/graph-size.mjs` after `cargo build` and
// `cargo xtask site`.
//
// The page is real. The server's response is replaced by one with the given number of boxes and
// edges. It prints the size of the response, the time from a click to the response, from there to
// boxes on the page (parsing, layout, drawing), and to the painted frame. It also prints frame
// times while scrolling and zooming, one step per frame. Not a test, because the results depend on
// the machine.

import { brotliCompressSync } from 'node:zlib';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const sizes = [[100, 200], [400, 1_000], [1_500, 10_000]];
const SCROLLED = 180; // frames
const ZOOMED = 64;

/**
 * Five roles on many nodes. Each depends on the previous role of its own node, and on roles of
 * other, mostly close, nodes.
 */
function large(view, boxes, wires) {
  const nodes = boxes / 5;
  const id = (n) => `00000000-0000-8000-8000-${String(n).padStart(12, '0')}`;
  const vertices = Array.from({ length: boxes }, (_, at) => ({
    key: id(at),
    role: `role-${Math.floor(at / nodes)}`,
    deployment: view.deployment,
    one: { id: id(at), short: `n${at % nodes}`, fqdn: `n${at % nodes}.large.example.com`, has_page: true },
    members: 1,
    appearances: [{ appearance: { state: 'active' }, count: 1 }],
    waves: { first: Math.floor(at / nodes) + 1, last: Math.floor(at / nodes) + 1 },
    on_path: 0,
  }));
  const edges = [];
  for (let round = 0; edges.length < wires; round += 1) {
    for (let to = nodes; to < boxes && edges.length < wires; to += 1) {
      const layer = Math.floor(to / nodes);
      const from = (layer - 1) * nodes + ((to % nodes) + round * round) % nodes;
      edges.push({ from, to, count: 1, kind: 'hard', on_path: 0 });
    }
  }
  return { ...view, vertices, edges, noderoles: boxes, wires };
}

/**
 * Requests the graph and measures milliseconds until the response, from there to boxes, and to the
 * painted frame.
 */
const unfold = (page) => page.evaluate(async () => {
  const { fetch } = window;
  const next = () => new Promise(requestAnimationFrame);
  let answered;
  window.fetch = async (...request) => {
    const answer = await fetch(...request);
    if (String(request[0].url ?? request[0]).includes('/call/graph')) answered = performance.now();
    return answer;
  };
  const began = performance.now();
  document.querySelector('.graph-tools a[href*="longest=count"]').click();
  while (!document.querySelector('a.box[data-key^="00000000-0000-8000"]')) await next();
  const drawn = performance.now();
  await next();
  await next();
  window.fetch = fetch;
  return { answer: answered - began, drawn: drawn - answered, painted: performance.now() - answered };
});

/**
 * Runs in the page: sorted durations of `count` frames in milliseconds, with `step` before each.
 */
async function measured(count, step) {
  const next = () => new Promise(requestAnimationFrame);
  const frames = [];
  let last = await next();
  for (let n = 0; n < count; n += 1) {
    step(n);
    const now = await next();
    frames.push(now - last);
    last = now;
  }
  return frames.sort((a, b) => a - b);
}
// Passed as text, because the page's policy forbids creating functions.
const frames = (page, count, step) => page.evaluate(`(${measured})(${count}, ${step})`);

// Down and to the right, then back.
const scroll = (n) => {
  const room = document.querySelector('.picture');
  room.scrollTop = (n * 40) % Math.max(1, room.scrollHeight - room.clientHeight);
  room.scrollLeft = (n * 10) % Math.max(1, room.scrollWidth - room.clientWidth);
};
// To a sixth of the size and back.
const zoom = (n) => document.querySelector(`button[aria-label="${n % 16 < 8 ? 'Zoom out' : 'Zoom in'}"]`).click();

const report = (frames) => {
  const at = (share) => frames[Math.min(frames.length - 1, Math.floor(frames.length * share))].toFixed(0);
  return `${at(0.5)}, ${at(0.95)}, ${at(1)} ms`;
};

const gantry = await start({ name: 'graph-size' });
const browser = await openBrowser();
try {
  const page = await signIn(await openPage(browser, gantry), gantry, 'author');
  let size;
  let json;
  await page.route('**/call/graph', async (route) => {
    const answer = await route.fetch();
    json = JSON.stringify(large(await answer.json(), ...size));
    await route.fulfill({ response: answer, body: json });
  });
  for (size of sizes) {
    const [boxes, wires] = size;
    await visit(page, '/graph/edge');
    const took = await unfold(page);
    const drawn = await page.locator('a.box').count();
    const scrolled = await frames(page, SCROLLED, scroll);
    const zoomed = await frames(page, ZOOMED, zoom);
    const packed = brotliCompressSync(json).length;
    const [answer, shown, painted] = [took.answer, took.drawn, took.painted].map((ms) => ms.toFixed(0));
    console.log(`${boxes} boxes, ${wires} edges: ${json.length} bytes (${packed} as brotli) there after ${answer} ms, ${drawn} boxes on the `
      + `page ${shown} ms and painted ${painted} ms after that; frames (median, 95%, longest) while scrolling ${report(scrolled)}, `
      + `while zooming ${report(zoomed)}`);
  }
} finally {
  await browser.close();
  await gantry.stop();
}
