// Clients that generators make from the OpenAPI document work against the server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { start } from './lib/gantry.mjs';

const run = promisify(execFile);
const testFolder = dirname(fileURLToPath(import.meta.url));

// The export of the audit is one JSON object per line. A client reads it as text.
const config = 'content_type_overrides:\n  application/jsonl: text/plain\n';

const headers = { 'X-Gantry': '1' };

/** Signs in with a one-time link. Returns the cookie of the session. */
async function signIn(gantry, who) {
  const token = new URL(gantry.signIn(who)).hash.replace(/^#token=/, '') || new URL(gantry.signIn(who)).searchParams.get('token');
  const signedIn = await fetch(`${gantry.address}/sign-in`, {
    method: 'POST', headers, body: new URLSearchParams({ token }), redirect: 'manual',
  });
  return signedIn.headers.getSetCookie().map((cookie) => cookie.split(';')[0]).join('; ');
}

/** Creates a token of the person of a one-time link. */
async function createToken(gantry, who, scopes) {
  const cookie = await signIn(gantry, who);
  const created = await fetch(`${gantry.address}/api/v1/tokens`, {
    method: 'POST', headers: { ...headers, cookie, 'Content-Type': 'application/json' }, body: JSON.stringify({ name: 'client', days: 1, scopes }),
  });
  assert.equal(created.status, 201, await created.clone().text());
  return (await created.json()).token;
}

test('a generated Python client runs operations', { timeout: 300_000 }, async (t) => {
  const environment = (await run(join(testFolder, '../scripts/openapi-client'))).stdout.trim();
  const folder = await mkdtemp(join(tmpdir(), 'gantry-client-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const gantry = await start({ name: 'openapi' });
  try {
    const document = await fetch(`${gantry.address}/api/v1/openapi.json`).then((answer) => answer.text());
    await writeFile(join(folder, 'openapi.json'), document);
    await writeFile(join(folder, 'config.yml'), config);
    const { stdout, stderr } = await run(join(environment, 'bin/openapi-python-client'), [
      'generate', '--meta', 'none', '--fail-on-warning', '--config', 'config.yml',
      '--path', 'openapi.json', '--output-path', join(folder, 'gantry_client'),
    ], { cwd: folder, env: { ...process.env, PATH: `${join(environment, 'bin')}:${process.env.PATH}` } });
    assert.doesNotMatch(stdout + stderr, /warning/i);
    const token = await createToken(gantry, 'author', ['viewer', 'operator']);
    const program = resolve(testFolder, 'lib/openapi_client.py');
    const ran = await run(join(environment, 'bin/python'), [program, gantry.address], {
      cwd: folder, env: { ...process.env, PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: '1', GANTRY_TOKEN: token },
    });
    const operations = new Set(ran.stdout.trim().split('\n'));
    assert.ok(operations.size >= 10, ran.stdout);
  } finally {
    await gantry.stop();
  }
});

test('a generated Rust client runs operations', { timeout: 600_000 }, async () => {
  const program = (await run(join(testFolder, '../scripts/rust-client'))).stdout.trim();
  const gantry = await start({ name: 'openapi-rust' });
  try {
    const env = {
      GANTRY_SERVER: gantry.address,
      GANTRY_TOKEN: await createToken(gantry, 'author', ['viewer', 'operator']),
      GANTRY_SESSION: await signIn(gantry, 'reviewer'),
    };
    const operations = new Set((await run(program, { env })).stdout.trim().split('\n'));
    assert.ok(operations.size >= 10, [...operations].join(', '));
  } finally {
    await gantry.stop();
  }
});
