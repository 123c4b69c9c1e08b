// The graph of the cluster and of a deployment: collapsed first, expanded by pointer and by
// keyboard, as an image and as a table.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { assertAccessible, assertFits, assertNoProblems, inEachVariant, openBrowser, openPage, screenshot, visit } from './lib/browser.mjs';
import { start } from './lib/gantry.mjs';
import { findNoderole, commit, propose, signIn, submit } from './lib/console.mjs';

let browser;
let gantry;
let page;
before(async () => {
  browser = await openBrowser();
  gantry = await start({ name: 'graph' });
  page = await signIn(await openPage(browser, gantry), gantry, 'reviewer');
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
});

const box = (name) => page.getByRole('link', { name, exact: false }).and(page.locator('a.box'));

/** Pixels of the page per pixel of the picture. */
const scale = () => page.locator('.graph-svg').first().evaluate((svg) => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);

/** Whether a box is completely in the visible part of the picture. */
const inView = (selector) => page.evaluate((selector) => {
  const [box, room] = [document.querySelector(selector), document.querySelector('.picture')].map((element) => element?.getBoundingClientRect());
  return Boolean(box && room) && box.left >= room.left - 1 && box.right <= room.right + 1 && box.top >= room.top - 1 && box.bottom <= room.bottom + 1;
}, selector);

test('a review shows changed steps and their neighbors', { timeout: 60_000 }, async () => {
  await visit(page, '/reviews');
  const review = await page.locator('main a[href^="/reviews/"]').first().getAttribute('href');
  await visit(page, review);
  await page.getByRole('link', { name: 'Graph', exact: true }).and(page.locator('.tabs a')).click();
  await page.locator('a.box[data-state=proposed]').first().waitFor();
  assert.match(page.url(), /tab=graph/);
  const label = await page.locator('a.box[data-state=proposed]').first().getAttribute('aria-label');
  assert.match(label, /added/);
  await assertAccessible(page);
  await screenshot(page, 'review-graph');
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('button', { name: 'Commit' }).click();
  await page.waitForURL(/\/blueprints\/\d+$/);
});

test('boxes expand by role and focus on one vertex', { timeout: 120_000 }, async () => {
  await visit(page, '/graphs');
  await page.getByRole('main').getByRole('link', { name: 'edge' }).click();
  await page.waitForURL(/\/graph\/edge$/);
  await page.locator('a.box').first().waitFor();
  const folded = await page.locator('a.box').count();
  assert.ok(folded >= 3, `found only ${folded} boxes`);

  // A box shows its details and links.
  await box(/^runtime .*, in edge$/).click();
  await page.waitForURL(/at=edge%3Aruntime/);
  const about = page.getByRole('complementary', { name: 'runtime' });
  await about.getByRole('heading', { name: 'Dependencies', exact: true }).waitFor();
  await screenshot(page, 'graph');

  await about.getByRole('link', { name: /^Unfold its \d+ noderoles?$/ }).click();
  await page.waitForURL(/roles=runtime/);
  await box(/^n\d+ · runtime .*, in edge/).first().waitFor();
  await page.goBack();
  await page.waitForFunction((folded) => document.querySelectorAll('a.box').length === folded, folded);

  await page.getByRole('link', { name: 'Show only dependencies and dependents' }).click();
  await page.waitForURL(/focus=/);
  await page.getByRole('group', { name: 'Direction' }).getByRole('link', { name: 'Dependencies' }).click();
  await page.waitForFunction((folded) => document.querySelectorAll('a.box').length < folded, folded);
  await page.getByRole('link', { name: 'Show all, folded' }).click();
  await page.waitForFunction((folded) => document.querySelectorAll('a.box').length === folded, folded);

  await inEachVariant(page, () => assertFits(page));
  await assertAccessible(page);
  assertNoProblems(page);
});

test('the graph of the rail shows the whole cluster', { timeout: 240_000 }, async () => {
  const ada = await signIn(await openPage(browser, gantry), gantry, 'author');
  await visit(ada, '/deployments/web');
  await propose(ada);
  await ada.getByRole('button', { name: 'Bind nodes to app', exact: true }).click();
  await ada.getByRole('checkbox', { name: /^n1/ }).check();
  await ada.getByRole('button', { name: 'Bind 1 node' }).click();
  await findNoderole(ada, 'app', 'n1').waitFor();
  await commit(page, await submit(ada, 'A second deployment'));
  await ada.context().close();
  await visit(page, '/deployments');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Graph', exact: true }).click();
  await page.waitForURL(/\/graph$/);
  await page.getByRole('heading', { name: 'Graph of the cluster' }).waitFor();
  await page.locator('a.box').first().waitFor();
  const labels = await page.locator('a.box').evaluateAll((boxes) => boxes.map((box) => box.getAttribute('aria-label')));
  const owners = new Set(labels.map((label) => label.match(/, in (\S+?)(:|,|$)/)?.[1]));
  assert.ok(owners.has('edge') && owners.has('web') && owners.size >= 2, [...owners].join(' '));
  assert.ok(labels.some((label) => label.startsWith('runtime · edge')), labels.join('; '));
  const answer = await page.request.get('/api/v1/graph');
  const graph = await answer.json();
  assert.equal(graph.vertices.length, labels.length);
  assert.ok(!('deployment' in graph));
  await inEachVariant(page, () => assertFits(page));
  await assertAccessible(page);
  await screenshot(page, 'graph-cluster');
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'SVG, download' }).click()]);
  assert.equal(download.suggestedFilename(), 'graph-cluster.svg');
  await page.getByRole('link', { name: 'By deployment' }).click();
  await page.waitForURL(/\/graphs$/);
  await page.getByRole('main').getByRole('link', { name: 'edge' }).waitFor();
  assertNoProblems(page);
});

test('a graph opens fitted and fills the window', { timeout: 120_000 }, async () => {
  for (const path of ['/graph/edge', '/graph']) {
    for (const [width, height] of [[1440, 900], [1200, 1000]]) {
      await page.setViewportSize({ width, height });
      await visit(page, path);
      await page.locator('a.box').first().waitFor();
      await page.waitForTimeout(300);
      const [room, zoom] = [await page.locator('.picture').boundingBox(), await scale()];
      assert.ok(room.y + room.height > height - 80 && room.y + room.height <= height, `${path}: ends at ${room.y + room.height} of ${height}`);
      assert.ok(zoom >= 0.64 && zoom <= 1.01, `${path}: unexpected zoom ${zoom}`);
      const [inner, outer] = await page.locator('.picture').evaluate((room) => [[room.scrollWidth, room.scrollHeight], [room.clientWidth, room.clientHeight]]);
      const fits = inner[0] <= outer[0] && inner[1] <= outer[1];
      assert.ok(fits || zoom <= 1, `${path}: ${inner} does not fit in ${outer}`);
      // A narrower window would need labels that are too small to read.
      if (path === '/graph/edge' && width === 1440) assert.ok(fits, `${inner} does not fit in ${outer}`);
    }
  }
  await page.setViewportSize({ width: 1440, height: 900 });
  assertNoProblems(page);
});

test('a large graph opens at its failed boxes', { timeout: 120_000 }, async () => {
  // A chain of 60 boxes, of which one failed.
  await page.route('**/call/cluster-graph', async (route) => {
    const answer = await route.fetch();
    const graph = await answer.json();
    const [vertex] = graph.vertices;
    const [edge] = graph.edges;
    graph.vertices = Array.from({ length: 60 }, (_, at) => ({
      ...vertex,
      key: `web:chain-${at}`,
      role: `chain-${at}`,
      noderole: null,
      appearances: [{ appearance: { state: at === 41 ? 'error' : 'active' }, count: 1 }],
    }));
    graph.edges = Array.from({ length: 59 }, (_, at) => ({ ...edge, from: at, to: at + 1 }));
    await route.fulfill({ response: answer, json: graph });
  });
  await visit(page, '/deployments');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Graph', exact: true }).click();
  await page.locator('a.box[data-key="web:chain-41"]').waitFor();
  await page.waitForFunction(() => document.querySelector('.picture').scrollLeft > 0);
  assert.ok(await inView('a.box[data-key="web:chain-41"]'));
  const zoom = await scale();
  assert.ok(zoom >= 0.64 && zoom <= 1.01, `${zoom}`);
  await page.locator('svg.minimap').waitFor();
  await screenshot(page, 'graph-failed');
  await page.unroute('**/call/cluster-graph');
  assertNoProblems(page);
});

test('arrow keys follow the edges', { timeout: 60_000 }, async () => {
  await visit(page, '/graph/edge');
  await page.locator('a.box[tabindex="0"]').focus();
  const layer = () => page.evaluate(() => document.activeElement.parentElement.getAttribute('transform'));
  const x = async () => Number((await layer()).match(/translate\((\d+)/)[1]);
  const from = await x();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((from) => Number(document.activeElement.parentElement.getAttribute('transform')?.match(/\((\d+)/)?.[1]) > from, from);
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction((from) => Number(document.activeElement.parentElement.getAttribute('transform')?.match(/\((\d+)/)?.[1]) === from, from);
  await page.keyboard.press('Enter');
  await page.waitForURL(/at=/);
  await page.keyboard.press('u');
  await page.waitForURL(/roles=/);
  assertNoProblems(page);
});

test('paths and colors are shown and exported', { timeout: 120_000 }, async () => {
  await visit(page, '/graph/edge');
  await page.locator('a.box[tabindex="0"]').focus();
  const first = await page.evaluate(() => document.activeElement.dataset.key);
  const drawn = page.waitForResponse('**/call/graph*');
  await page.keyboard.press('p');
  await page.waitForURL(/from=/);
  await page.getByText('Select the box where it ends').waitFor();
  await drawn;
  await page.locator(`[data-key="${first}"]`).press('ArrowRight');
  await page.waitForFunction((key) => document.activeElement.dataset.key && document.activeElement.dataset.key !== key, first);
  await page.keyboard.press('p');
  await page.waitForURL(/from=.*to=/);
  await page.getByText(/ waits for .*, with .* noderoles on the path\.$/).waitFor();
  assert.ok((await page.locator('a.box.on-path').count()) >= 2);
  assert.equal(await page.locator('.edge.on-path').count(), 1);
  await assertAccessible(page);
  await screenshot(page, 'graph-path');

  await page.getByRole('link', { name: 'Show only the path' }).click();
  await page.waitForURL(/only=path/);
  await page.waitForFunction(() => document.querySelectorAll('a.box:not(.on-path)').length === 0);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'SVG, download' }).click()]);
  assert.equal(download.suggestedFilename(), 'graph-edge.svg');
  const file = await readFile(await download.path(), 'utf8');
  assert.match(file, /^<\?xml/);
  assert.equal(file.split('stroke-width="3"').length - 1 >= 3, true, 'the file must contain the highlighted path');
  await page.getByRole('link', { name: 'Show table', exact: true }).click();
  await page.getByRole('columnheader', { name: 'On the path' }).waitFor();
  await page.getByRole('link', { name: 'Clear highlight' }).click();
  await page.waitForFunction(() => !location.search.includes('from='));

  await visit(page, '/graph/edge');
  await page.getByRole('group', { name: 'Highlight the longest path' }).getByRole('link', { name: 'by steps' }).click();
  await page.getByRole('heading', { name: 'Longest path' }).waitFor();
  assert.ok((await page.locator('ol.path-list li').count()) >= 3);
  await page.getByRole('group', { name: 'Color by' }).getByRole('link', { name: 'wave' }).click();
  await page.waitForURL(/color=wave/);
  await page.getByRole('list', { name: 'Legend' }).getByText('wave 1', { exact: true }).waitFor();
  assert.ok((await page.locator('.box [data-state=tone-1]').count()) > 0);
  await screenshot(page, 'graph-waves');
  await page.getByRole('group', { name: 'Color by' }).getByRole('link', { name: 'owner' }).click();
  await page.waitForURL(/color=owner/);
  await page.getByRole('list', { name: 'Legend' }).getByText('edge', { exact: true }).waitFor();
  await inEachVariant(page, () => assertFits(page));
  await assertAccessible(page);
  assertNoProblems(page);
});

test('a large graph has an overview map', { timeout: 60_000 }, async () => {
  await visit(page, '/graph/edge');
  await page.setViewportSize({ width: 1024, height: 700 });
  const larger = page.getByRole('button', { name: 'Zoom in' });
  for (let n = 0; n < 3; n += 1) await larger.click();
  const map = page.locator('svg.minimap');
  await map.waitFor();
  const frame = await map.boundingBox();
  await page.mouse.click(frame.x + frame.width - 2, frame.y + frame.height / 2);
  await page.waitForFunction(() => document.querySelector('.picture').scrollLeft > 0);
  await page.waitForFunction(() => Number(document.querySelector('.minimap .viewport').getAttribute('x')) > 0);
  await assertAccessible(page);
  await page.setViewportSize({ width: 1440, height: 900 });
  assertNoProblems(page);
});

test('small boxes react to pointer and keyboard', { timeout: 60_000 }, async () => {
  await visit(page, '/graph/edge');
  const all = await page.locator('a.box').count();
  const opened = await scale();
  const smaller = page.getByRole('button', { name: 'Zoom out' });
  for (let n = 0; n < 4; n += 1) await smaller.click();
  await page.locator('svg.zoomed-out').waitFor();
  assert.equal(await page.locator('a.box').count(), 1, 'only the active box is a link, the others are shapes');
  const shapes = await page.locator('.zoomed-out path.part').evaluateAll((paths) => paths.map((path) => path.getAttribute('d').split('M').length - 1));
  assert.equal(shapes.reduce((sum, n) => sum + n, 0), all);
  await assertAccessible(page);
  await screenshot(page, 'graph-far');

  // With the pointer, at the position of the shape.
  const frame = await page.locator('.graph-svg').boundingBox();
  const zoom = opened * 0.8 ** 4;
  const place = await page.evaluate(() => {
    const shapes = [...document.querySelectorAll('.zoomed-out path.part')].flatMap((path) => path.getAttribute('d').split('M').slice(1));
    const places = shapes.map((shape) => shape.match(/^(\S+) ([^h]+)h/).slice(1).map(Number));
    return places.sort(([a], [b]) => a - b).at(-1);
  });
  await page.mouse.click(frame.x + (place[0] + 90) * zoom, frame.y + (place[1] + 30) * zoom);
  await page.waitForURL(/at=/);
  await page.locator('a.box[aria-current]').waitFor();

  // With keys: the next box is scrolled fully into view as soon as it has the focus.
  await page.locator('a.box[tabindex="0"]').focus();
  const first = await page.evaluate(() => document.activeElement.dataset.key);
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction((first) => document.activeElement.matches('a.box') && document.activeElement.dataset.key !== first, first);

  // With Ctrl, the wheel zooms around the pointer.
  await page.mouse.move(frame.x + 60, frame.y + 60);
  await page.keyboard.down('Control');
  for (let n = 0; n < 4; n += 1) await page.mouse.wheel(0, -100);
  await page.keyboard.up('Control');
  await page.waitForFunction(() => !document.querySelector('svg.zoomed-out'));
  assert.ok((await page.locator('a.box').count()) > 1);
  assertNoProblems(page);
});

test('search and table match the graph', { timeout: 60_000 }, async () => {
  await visit(page, '/graph/edge');
  await page.getByRole('searchbox', { name: 'Find a role or a node' }).fill('runtime');
  await page.getByText(/^1 found/).waitFor();
  assert.equal(await page.locator('a.box.found').count(), 1);
  await page.keyboard.press('Enter');
  await page.waitForURL(/at=edge%3Aruntime/);
  await page.getByRole('searchbox', { name: 'Find a role or a node' }).fill('');

  const boxes = await page.locator('a.box').count();
  await page.getByRole('link', { name: 'Show table', exact: true }).click();
  await page.waitForURL(/as=table/);
  assert.equal(await page.locator('tbody tr[data-key]').count(), boxes);
  await assertAccessible(page);
  assertNoProblems(page);

  // Without scripts, from the URL alone.
  const plain = await openPage(browser, { address: gantry.address, scripts: false });
  await plain.context().addCookies(await page.context().cookies());
  await plain.goto('/graph/edge?roles=runtime');
  assert.ok((await plain.locator('a.box').count()) > 0);
  for (const name of ['Fit to window', 'Zoom in']) assert.equal(await plain.getByRole('button', { name }).count(), 0, name);
  assert.equal(await plain.getByRole('searchbox').count(), 0, 'the search needs JavaScript');
  await plain.context().close();
});
