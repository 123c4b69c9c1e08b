// Records the animated picture of the README: node end2end/readme-picture.mjs.
//
// A new demo shows one change from the drag to ACTIVE: ada assigns a node, bo reviews and commits.
// Each frame is a screenshot of the real console, scaled down. A screenshot has no pointer and no
// dragged node, so both are drawn, and a caption is added.

import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { animated } from './lib/apng.mjs';
import { openBrowser, openPage, visit } from './lib/browser.mjs';
import { findNoderole, propose, row, signIn } from './lib/console.mjs';
import { start } from './lib/gantry.mjs';

const target = fileURLToPath(new URL('../docs/pictures/change.png', import.meta.url));
const maxBytes = 1_500_000;
const size = { width: 900, height: 600 };
const caption = 38;
const viewport = { width: 1152, height: 719 };
const scale = size.width / viewport.width;
const title = 'Run the app on n1';

const frames = [];
const browser = await openBrowser();
const gantry = await start({ name: 'readme-picture' });
try {
  const stage = await (await browser.newContext({ viewport: size })).newPage();
  await stage.setContent(`<style>
    body { margin: 0; font: 600 16px Inter, "Helvetica Neue", Arial, sans-serif; background: #1f2937; color: #fff; overflow: hidden }
    p { margin: 0; height: ${caption}px; line-height: ${caption}px; padding: 0 14px }
    img { display: block; width: ${size.width}px }
    svg, b { position: absolute; width: 18px; filter: drop-shadow(0 1px 1px #0008) }
    b { width: auto; margin: -24px 14px; padding: 3px 10px; font-size: 12px; border-radius: 6px; background: #fff; color: #333 }
    b:empty { display: none }
    </style><p></p><img><b></b><svg viewBox="0 0 12 18"><path d="M1 1v14l3-3 2 5 2-1-2-5h5z" fill="#000" stroke="#fff"/></svg>`);
  const [ada, bo] = [await person(stage, 'author'), await person(stage, 'reviewer')];
  await change(ada, bo);
  const bytes = animated(frames);
  if (bytes.length > maxBytes) throw new Error(`The picture has ${bytes.length} bytes; the maximum is ${maxBytes}.`);
  await writeFile(target, bytes);
  console.log(`${target}: ${frames.length} frames, ${bytes.length} bytes`);
} finally {
  await browser.close();
  await gantry.stop();
}

async function change(ada, bo) {
  await visit(ada.page, '/deployments/web');
  ada.describe('1. ada proposes a change');
  await ada.frame(900);
  await ada.to(ada.page.getByRole('button', { name: 'Propose changes' }));
  await propose(ada.page);
  await ada.page.locator('.board[data-planner=here]').waitFor();
  await ada.frame(600);

  ada.describe('2. Drag a node onto a role: before the drop, you see everything that it adds');
  await ada.to(ada.page.locator('.tray').getByRole('button', { name: 'n1', exact: true }));
  await ada.page.mouse.down();
  ada.drag('n1');
  const role = row(ada.page, 'app-check');
  await ada.by(-30, 10);
  await role.and(ada.page.locator('[data-drop=legal]')).waitFor();
  await ada.frame(500);
  await ada.to(role, 8);
  await role.locator('.drop-text').filter({ hasText: 'also adds' }).waitFor();
  await ada.frame(2200);
  await ada.page.mouse.up();
  ada.drag('');
  await findNoderole(ada.page, 'app-check', 'n1').and(ada.page.locator('[data-state=proposed]')).waitFor();
  await ada.frame(1200);

  ada.describe('3. Submit it for review');
  await ada.click(ada.page.getByRole('button', { name: 'Review changes' }));
  const dialog = ada.page.getByRole('dialog', { name: 'Review changes' });
  await dialog.getByLabel('Title').fill(title);
  await ada.frame(900);
  await ada.click(dialog.getByRole('button', { name: 'Submit for review' }));
  await ada.page.waitForURL(/\/reviews\/\d+$/);
  await ada.page.getByText('You wrote part of this change').waitFor();
  ada.describe('ada cannot approve: another person must review the change');
  await ada.frame(2200);

  const address = new URL(ada.page.url()).pathname;
  await visit(bo.page, address);
  await bo.page.getByText('Adds app-check on n1').filter({ visible: true }).first().waitFor();
  bo.describe('4. bo reads the exact change, approves and commits it');
  await bo.frame(1600);
  await bo.click(bo.page.getByRole('button', { name: 'Approve' }));
  await bo.page.getByText('1 of 1 approval').waitFor();
  await bo.frame(1000);

  await visit(ada.page, '/deployments/web');
  await findNoderole(ada.page, 'app-check', 'n1').waitFor();
  await bo.to(bo.page.getByRole('button', { name: 'Commit' }));
  await bo.frame(400);
  await bo.page.getByRole('button', { name: 'Commit' }).click();
  ada.describe('5. Workers run the steps, until the actual state matches the desired state');
  const done = findNoderole(ada.page, 'app-check', 'n1').and(ada.page.locator('[data-state=active]'));
  for (let count = 0; count < 150 && !(await done.isVisible()); count += 1) await ada.frame(200);
  await done.waitFor();
  await ada.page.getByText('COMMITTED', { exact: true }).waitFor();
  await ada.frame(3500);
}

/** A signed-in person with a page of the picture's size. */
async function person(stage, role) {
  const page = await openPage(browser, gantry);
  await page.setViewportSize(viewport);
  await signIn(page, gantry, role);
  let [text, draggedNode, x, y] = ['', '', viewport.width / 2, viewport.height / 2];
  const frame = async (ms) => {
    await page.evaluate(() => document.fonts.ready);
    const png = await page.screenshot({ animations: 'disabled' });
    await stage.evaluate(async ([source, text, draggedNode, x, y]) => {
      const image = document.querySelector('img');
      image.src = source;
      await image.decode();
      document.querySelector('p').textContent = text;
      document.querySelector('b').textContent = draggedNode;
      for (const drawn of document.querySelectorAll('svg, b')) Object.assign(drawn.style, { left: `${x}px`, top: `${y}px` });
    }, [`data:image/png;base64,${png.toString('base64')}`, text, draggedNode, x * scale, caption + y * scale]);
    frames.push({ png: await stage.screenshot(), ms });
  };
  const moveTo = async (newX, newY, steps) => {
    const [fromX, fromY] = [x, y];
    for (let step = 1; step <= steps; step += 1) {
      [x, y] = [fromX + ((newX - fromX) * step) / steps, fromY + ((newY - fromY) * step) / steps];
      await page.mouse.move(x, y);
      await frame(60);
    }
  };
  const to = async (element, steps = 6) => {
    await element.scrollIntoViewIfNeeded();
    const box = await element.boundingBox();
    await moveTo(box.x + Math.min(box.width / 2, 260), box.y + box.height / 2, steps);
  };
  return {
    page,
    frame,
    to,
    by: (dx, dy) => moveTo(x + dx, y + dy, 3),
    describe: (words) => (text = words),
    drag: (node) => (draggedNode = node),
    click: async (element) => {
      await to(element);
      await element.click();
    },
  };
}
