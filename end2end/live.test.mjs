// Every tab shows new events, whatever happens to the tabs and the connection.
//
// A browser has six connections per server for all tabs, so the tabs share one stream. No page is
// reloaded here.

import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { rm } from 'node:fs/promises';
import { hydrated, openBrowser, openPage, visit } from './lib/browser.mjs';
import { dataFolder, start } from './lib/gantry.mjs';
import { signIn } from './lib/console.mjs';

const PATHS = ['/deployments', '/deployments/web', '/runs', '/reviews', '/nodes', '/deployments/edge', '/catalog'];

let browser;
let data;
let gantry;
before(async () => {
  browser = await openBrowser();
  data = await dataFolder();
  gantry = await start({ name: 'live', data });
}, { timeout: 180_000 });
after(async () => {
  await browser.close();
  await gantry.stop();
  await rm(data, { recursive: true, force: true });
});

/** Disables or enables execution via the API. */
async function execution(page, enabled) {
  const answer = await page.context().request.post(`${gantry.address}/api/v1/execution/${enabled ? 'on' : 'off'}`, {
    headers: { 'x-gantry': '1' },
    data: { reason: 'a test of the live stream' },
  });
  assert.equal(answer.status(), 201, await answer.text());
}

const shows = (page, enabled) =>
  page.getByRole('button', { name: `execution ${enabled ? 'on' : 'off'}` }).waitFor({ timeout: 30_000 });
const mark = (page, word) => page.locator('[data-live]').filter({ hasText: word }).waitFor({ timeout: 30_000 });

/** Records the open live streams of a page. */
function watchStreams(page) {
  page.streams = new Set();
  page.on('request', (request) => request.url().includes('/events?') && page.streams.add(request));
  for (const over of ['requestfinished', 'requestfailed']) page.on(over, (request) => page.streams.delete(request));
}

async function never(page) {
  await page.evaluate(() => (window.neverReloaded = true));
}

const reloaded = async (page) => !(await page.evaluate(() => window.neverReloaded === true));

test('seven tabs of one browser share a stream', { timeout: 300_000 }, async (t) => {
  const first = await openPage(browser, gantry);
  watchStreams(first);
  await signIn(first, gantry, 'author');
  const tabs = [first];
  for (const path of PATHS.slice(1)) {
    const tab = await first.context().newPage();
    watchStreams(tab);
    await visit(tab, path);
    tabs.push(tab);
  }
  for (const tab of tabs) await never(tab);
  const open = () => tabs.filter((tab) => !tab.isClosed() && tab.streams.size > 0);

  await t.test('all tabs get updates over one stream', async () => {
    for (const tab of tabs) await mark(tab, 'live');
    assert.equal(open().length, 1, 'exactly one tab must have a stream');
    await execution(first, false);
    await Promise.all(tabs.map((tab) => shows(tab, false)));
  });

  await t.test('another tab takes over the stream without loss', async () => {
    const [leader] = open();
    const other = tabs.find((tab) => tab !== leader);
    await Promise.all([leader.close(), execution(other, true)]);
    const left = tabs.filter((tab) => tab !== leader);
    await Promise.all(left.map((tab) => shows(tab, true)));
    await execution(other, false);
    await Promise.all(left.map((tab) => shows(tab, false)));
    assert.equal(open().length, 1, 'exactly one tab must have a stream');
    tabs.splice(tabs.indexOf(leader), 1);
    const seventh = await other.context().newPage();
    watchStreams(seventh);
    await visit(seventh, PATHS[0]);
    await never(seventh);
    tabs.push(seventh);
    await mark(seventh, 'live');
  });

  await t.test('all tabs reconnect after a server restart', async () => {
    const port = new URL(gantry.address).port;
    await gantry.kill();
    await Promise.all(tabs.map((tab) => mark(tab, /reconnecting|stale/)));
    gantry = await start({ name: 'live-again', data, port });
    // Before any tab has reconnected. The tabs must not miss this change.
    await execution(tabs[0], true);
    await Promise.all(tabs.map((tab) => shows(tab, true)));
    await Promise.all(tabs.map((tab) => mark(tab, 'live')));
    for (const tab of tabs) assert.equal(await reloaded(tab), false, `${tab.url()} was reloaded`);
    assert.equal(open().length, 1, 'exactly one tab must have a stream');
  });
  await first.context().close();
});

test('a reset event reloads the data', { timeout: 120_000 }, async () => {
  const page = await openPage(browser, gantry);
  await signIn(page, gantry, 'reviewer');
  // The server's message if its journal no longer has the page's last event. The events themselves
  // are lost.
  const word = { id: '999999999-1', data: { kind: 'reset' } };
  const body = `id: ${word.id}\ndata: ${JSON.stringify(word.data)}\n\n`;
  for (const path of ['/deployments', '/deployments/web', '/runs', '/pending', '/nodes']) {
    let streamRequests = 0;
    await page.goto('about:blank'); // its stream must not be taken for that of the next page
    await page.route('**/events?*', (route) => {
      streamRequests += 1;
      return streamRequests === 1 ? route.fulfill({ contentType: 'text/event-stream', body }) : route.abort();
    });
    const requests = [];
    page.on('request', (request) => request.url().includes('/call/') && !request.url().endsWith('/frame') && requests.push(request.url()));
    await visit(page, path);
    for (let time = 0; time < 50 && requests.length === 0; time += 1) await page.waitForTimeout(200);
    assert.ok(requests.length > 0, `${path} requested no data after ${streamRequests} requests of the stream`);
    await page.unroute('**/events?*');
    page.removeAllListeners('request');
  }
  await page.context().close();
});

/** A proxy to the server that can mute the open live streams. */
async function proxy(target) {
  const open = new Set();
  const server = net.createServer((near) => {
    const far = net.connect(target, '127.0.0.1');
    const pair = { near, far };
    open.add(pair);
    near.pipe(far).pipe(near);
    near.on('data', (bytes) => (pair.isStream ||= bytes.includes('GET /events')));
    for (const end of [near, far]) {
      end.on('error', () => {});
      end.on('close', () => (near.destroy(), far.destroy(), open.delete(pair)));
    }
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  const streams = () => [...open].filter(({ isStream }) => isStream);
  /** A page that has just reported what it shows reopens its stream. Mute the final one. */
  const settled = async () => {
    let before;
    for (let time = 0; time < 30; time += 1) {
      const now = streams();
      if (now.length === 1 && now[0] === before) return before;
      before = now.length === 1 ? now[0] : undefined;
      await new Promise((done) => setTimeout(done, 1000));
    }
    assert.fail(`no single live stream stayed open within 30 seconds; ${streams().length} are open`);
  };
  const freeze = async () => {
    const { near, far } = await settled();
    far.unpipe(near);
    near.unpipe(far);
    far.resume();
    near.resume();
  };
  const close = () => {
    for (const { near, far } of open) (near.destroy(), far.destroy());
    server.close();
  };
  return { port: server.address().port, freeze, close };
}

test('a silent stream is replaced', { timeout: 240_000 }, async () => {
  const own = await dataFolder();
  const target = 20_000 + Math.floor(Math.random() * 10_000);
  const between = await proxy(target);
  const address = `http://127.0.0.1:${between.port}`;
  const behind = await start({ name: 'live-silent', data: own, port: target, env: { GANTRY_PUBLIC_ADDRESS: address } });
  try {
    const page = await openPage(browser, { address });
    await page.goto(behind.signIn('author').replace(/^http:\/\/[^/]+/, address));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForURL((url) => url.pathname === '/');
    await hydrated(page);
    await mark(page, 'live');
    await never(page);
    await between.freeze();
    const answer = await page.context().request.post(`${address}/api/v1/execution/off`, {
      headers: { 'x-gantry': '1' },
      data: { reason: 'nobody hears this' },
    });
    assert.equal(answer.status(), 201);
    await page.getByRole('button', { name: 'execution off' }).waitFor({ timeout: 90_000 });
    await mark(page, 'live');
    assert.equal(await reloaded(page), false);
    await page.context().close();
  } finally {
    between.close();
    await behind.stop();
    await rm(own, { recursive: true, force: true });
  }
});
