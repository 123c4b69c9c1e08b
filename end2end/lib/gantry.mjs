// Starts a complete Gantry for a test: `gantry up` in its own folder, on a free port, stopped with
// SIGINT.
//
// Its standard output has one JSON object per line (`--json`), its standard error the log. At the
// end of the test's process, a Gantry that still runs is told to stop. `cargo xtask test` finds
// processes that outlive the tests.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { access, chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const tree = resolve(dirname(fileURLToPath(import.meta.url)), '../..');

/** The program and the site under test: the last build, unless the environment names others. */
export const binary = resolve(process.env.GANTRY_BIN ?? join(tree, 'target/debug/gantry'));
export const site = resolve(process.env.GANTRY_SITE ?? join(tree, 'target/site'));
/** The folder of logs and screenshots. */
export const results = join(tree, 'end2end/results');

const startLimit = 120_000; // a cluster is created, migrated and seeded, on a busy machine
const stopLimit = 60_000;

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGTERM')));

/**
 * A folder for one Gantry's data. Other accounts may enter it, because root starts PostgreSQL as
 * another account.
 */
export async function dataFolder() {
  const folder = await mkdtemp(join(tmpdir(), 'gantry-end2end-'));
  await chmod(folder, 0o755);
  return folder;
}

/**
 * Starts `gantry up` and waits until it is ready. `name` is the name of its log in `results`.
 * `data` is the folder of an earlier start, to reuse its data. `uid` and `gid` run it as another
 * account. `program` and `env` replace the program and extend its environment. `port` is the port
 * to listen on, for example that of an earlier start.
 */
export async function start({ name = 'gantry', data, uid, gid, program = binary, env = {}, port = 0 } = {}) {
  await access(program).catch(() => assert.fail(`${program} does not exist: run cargo build`));
  const ownFolder = data === undefined;
  data ??= await dataFolder();
  const { DATABASE_URL, GANTRY_OWNER_URL, ...inherited } = process.env;
  // With a public address, the demo's people are created only on request.
  const demo = env.GANTRY_PUBLIC_ADDRESS ? ['--demo'] : [];
  const child = spawn(program, ['up', '--json', '--data', join(data, 'gantry'), '--listen', `127.0.0.1:${port}`, ...demo], {
    cwd: data,
    env: { ...inherited, GANTRY_SITE: site, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    uid,
    gid,
  });
  const gantry = new Gantry({ name, child, data, ownFolder });
  await gantry.readiness();
  return gantry;
}

class Gantry {
  #child;
  #ended;
  #ownFolder;
  #log = [];
  #messages = [];
  #listeners = new Set();

  constructor({ name, child, data, ownFolder }) {
    this.name = name;
    this.data = data;
    this.#child = child;
    this.#ownFolder = ownFolder;
    running.add(child);
    // A Gantry that a failed test left must not block the exit of the test's process. Waits for one
    // have timeouts.
    for (const handle of [child, child.stdout, child.stderr]) handle.unref();
    this.#ended = new Promise((done) => {
      child.on('error', (error) => done({ error }));
      child.on('close', (code, signal) => done({ code, signal }));
    }).finally(() => running.delete(child));
    createInterface({ input: child.stdout }).on('line', (line) => this.#readLine(line));
    createInterface({ input: child.stderr }).on('line', (line) => this.#log.push(line));
  }

  /** `http://127.0.0.1:PORT`, without a trailing slash. */
  address;
  /** The one-time links of this start: `{ person, role, url }`. */
  signIns = [];

  get pid() {
    return this.#child.pid;
  }

  /** Its standard output and log, in order. */
  log() {
    return this.#log.join('\n');
  }

  /** A person's one-time link, by role ("author", "reviewer") or by name. */
  signIn(who) {
    const found = this.signIns.find(({ person, role }) => person === who || role === who);
    assert.ok(found, `no sign-in link for ${who} in ${JSON.stringify(this.signIns.map(({ person, role }) => [person, role]))}`);
    return found.url;
  }

  async readiness() {
    const ready = await this.event('ready', startLimit).catch(async (error) => {
      await this.#end('SIGKILL');
      throw error;
    });
    this.address = ready.address.replace(/\/$/, '');
    this.signIns = ready.sign_in;
  }

  /** The first message with this `event`, past or future. */
  async event(kind, limit = 10_000) {
    const past = this.#messages.find(({ event }) => event === kind);
    if (past) return past;
    let listener, timer;
    const received = new Promise((resolve) => {
      listener = (message) => message.event === kind && resolve(message);
      this.#listeners.add(listener);
    });
    const timeout = new Promise((_, reject) => {
      timer = setTimeout(() => reject(this.#failure(`did not say "${kind}" within ${limit / 1000} s`)), limit);
    });
    const ended = this.#ended.then((end) => {
      throw this.#failure(`ended before it said "${kind}" (${describe(end)})`);
    });
    try {
      return await Promise.race([received, timeout, ended]);
    } finally {
      clearTimeout(timer);
      this.#listeners.delete(listener);
    }
  }

  /** Sends SIGINT. Fails unless all processes of this Gantry end successfully. */
  async stop() {
    const end = await this.#end('SIGINT');
    if (end.code !== 0) throw this.#failure(`did not stop cleanly (${describe(end)})`);
    const left = await processesWith(this.data);
    assert.deepEqual(left, [], `processes that ${this.name} left running`);
    if (this.#ownFolder) await rm(this.data, { recursive: true, force: true });
  }

  /** Kills this process, like a power failure. */
  async kill() {
    await this.#end('SIGKILL');
  }

  async #end(signal) {
    this.#child.kill(signal);
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), stopLimit);
    const end = await this.#ended;
    clearTimeout(timer);
    await this.#keepLog();
    return end;
  }

  #readLine(line) {
    this.#log.push(line);
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return; // it is in the log, and the test times out
    }
    this.#messages.push(message);
    for (const listener of [...this.#listeners]) listener(message);
  }

  #failure(message) {
    return new Error(`${this.name} ${message}; the end of its log:\n${this.#log.slice(-40).join('\n')}`);
  }

  async #keepLog() {
    await mkdir(results, { recursive: true });
    await writeFile(join(results, `${this.name}.log`), this.log() + '\n');
  }
}

/** Running processes with this text in their command line. */
export async function processesWith(text) {
  const found = [];
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''); // may have ended
    if (line.includes(text)) found.push(line.replaceAll('\0', ' ').trim());
  }
  return found;
}

function describe({ error, code, signal }) {
  return error?.message ?? (signal ? `signal ${signal}` : `exit code ${code}`);
}
