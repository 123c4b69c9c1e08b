// Asking the API as the person whose page it is, for what measures: it fills Gantry with much first.

import assert from 'node:assert/strict';

const PATIENCE = 600_000; // milliseconds: what asks for much is answered late

/** The answer to a GET, or to a POST with `data`. Who asked too often in a minute (docs/limits.md) asks again when told. */
export async function ask(page, path, data) {
  const headers = { 'X-Gantry': '1' };
  const answer = data
    ? await page.request.post(`/api/v1${path}`, { headers, data, timeout: PATIENCE })
    : await page.request.get(`/api/v1${path}`, { headers, timeout: PATIENCE });
  if (answer.status() === 429) {
    await new Promise((later) => setTimeout(later, 1_000 * Number(answer.headers()['retry-after'])));
    return ask(page, path, data);
  }
  assert.ok(answer.ok(), `${path}: ${answer.status()} ${await answer.text().then((text) => text.slice(0, 500))}`);
  return answer.json();
}
