// Calls the API as the user of a page, to create the data for benchmarks.

import assert from 'node:assert/strict';

const REQUEST_TIMEOUT = 600_000; // milliseconds: large requests are slow

/**
 * Sends a GET, or a POST with `data`, and returns the response. Repeats it as the rate limit
 * requires (docs/limits.md).
 */
export async function callApi(page, path, data) {
  const headers = { 'X-Gantry': '1' };
  const answer = data
    ? await page.request.post(`/api/v1${path}`, { headers, data, timeout: REQUEST_TIMEOUT })
    : await page.request.get(`/api/v1${path}`, { headers, timeout: REQUEST_TIMEOUT });
  if (answer.status() === 429) {
    await new Promise((later) => setTimeout(later, 1_000 * Number(answer.headers()['retry-after'])));
    return callApi(page, path, data);
  }
  assert.ok(answer.ok(), `${path}: ${answer.status()} ${await answer.text().then((text) => text.slice(0, 500))}`);
  return answer.json();
}
