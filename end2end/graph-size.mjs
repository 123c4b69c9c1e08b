// What the graph page takes when it is large: `node end2end/graph-size.mjs` after `cargo build` and `cargo xtask site`.
//
// The page is the real one; the server's answer is replaced by one with as many boxes and edges as are asked for. It prints the bytes
// of the answer, the time from asking for it to boxes on the page (reading, layout, drawing), and how long frames take while the
// picture is scrolled. No test: figures depend on the machine. See docs/graph.md for some.

import { brotliCompressSync } from 'node:zlib';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const sizes = [[100, 200], [400, 1_000], [1_500, 10_000]];
const FRAMES = 180;

/** Five roles on many nodes. Each waits for its own node's role before it, and for some others', near ones mostly. */
function large(view, boxes, wires) {
  const nodes = boxes / 5;
  const id = (n) => `00000000-0000-8000-8000-${String(n).padStart(12, '0')}`;
  const vertices = Array.from({ length: boxes }, (_, at) => ({
    key: id(at),
    role: `role-${Math.floor(at / nodes)}`,
    deployment: view.deployment,
    one: { id: id(at), short: `n${at % nodes}`, fqdn: `n${at % nodes}.large.example.com`, has_page: true },
    members: 1,
    looks: [[{ state: 'active' }, 1]],
    waves: [Math.floor(at / nodes) + 1, Math.floor(at / nodes) + 1],
    on_trail: 0,
  }));
  const edges = [];
  for (let round = 0; edges.length < wires; round += 1) {
    for (let to = nodes; to < boxes && edges.length < wires; to += 1) {
      const layer = Math.floor(to / nodes);
      const from = (layer - 1) * nodes + ((to % nodes) + round * round) % nodes;
      edges.push({ from, to, count: 1, kind: 'hard', on_trail: 0 });
    }
  }
  return { ...view, vertices, edges, noderoles: boxes, wires };
}

const gantry = await start({ name: 'graph-size' });
const browser = await openBrowser();
try {
  const page = await signIn(await openPage(browser, gantry), gantry, 'author');
  let size;
  let bytes;
  await page.route('**/call/graph', async (route) => {
    const answer = await route.fetch();
    const json = JSON.stringify(large(await answer.json(), ...size));
    bytes = [json.length, brotliCompressSync(json).length];
    await route.fulfill({ response: answer, body: json });
  });
  for (size of sizes) {
    const [boxes, wires] = size;
    await visit(page, '/graph/edge');
    const took = await page.evaluate(async () => {
      const began = performance.now();
      document.querySelector('.graph-tools a[href*="longest=count"]').click();
      while (!document.querySelector('a.box[data-key^="00000000-0000-8000"]')) await new Promise(requestAnimationFrame);
      return performance.now() - began;
    });
    const frames = await page.evaluate(async (count) => {
      const room = document.querySelector('.picture');
      const next = () => new Promise(requestAnimationFrame);
      const frames = [];
      let last = await next();
      for (let n = 0; n < count; n += 1) {
        // Down and to the right, and back from the ends.
        room.scrollTop = (n * 40) % Math.max(1, room.scrollHeight - room.clientHeight);
        room.scrollLeft = (n * 10) % Math.max(1, room.scrollWidth - room.clientWidth);
        const now = await next();
        frames.push(now - last);
        last = now;
      }
      return frames.sort((a, b) => a - b);
    }, FRAMES);
    const at = (share) => frames[Math.min(frames.length - 1, Math.floor(frames.length * share))].toFixed(1);
    const drawn = await page.locator('a.box').count();
    console.log(`${boxes} boxes, ${wires} edges: ${bytes[0]} bytes (${bytes[1]} as brotli), on the page after ${took.toFixed(0)} ms, `
      + `${drawn} boxes drawn; frames while scrolling: median ${at(0.5)} ms, 95% ${at(0.95)} ms, longest ${at(1)} ms`);
  }
} finally {
  await browser.close();
  await gantry.stop();
}
