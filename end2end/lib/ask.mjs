// Calls the API as the user of a page, to create the data for benchmarks.

import assert from 'node:assert/strict';

const PATIENCE = 600_000; // milliseconds: large requests are slow

/**
 * Sends a GET, or a POST with `data`, and returns the response. Repeats it as the rate limit
 * requires (docs/limits.md).
 */
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
