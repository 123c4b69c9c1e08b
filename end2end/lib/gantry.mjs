// A whole Gantry for a test: `gantry up` in a folder of its own, on a free port, stopped with Ctrl-C's signal.
//
// Its standard output is one JSON object a line (`--json`), its log is standard error. A Gantry that a test forgot, or
// that outlives a failed test, is told to stop when the test's process ends; what is still there then is found by
// `cargo xtask test`, which looks for programs that outlive the tests.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { access, chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const tree = resolve(dirname(fileURLToPath(import.meta.url)), '../..');

/** The program and the site under test: those that were built last, unless the environment names others. */
export const binary = resolve(process.env.GANTRY_BIN ?? join(tree, 'target/debug/gantry'));
export const site = resolve(process.env.GANTRY_SITE ?? join(tree, 'target/site'));
/** Where logs and pictures go. */
export const results = join(tree, 'end2end/results');

const startLimit = 120_000; // a cluster is made, migrated and seeded, on a busy machine
const stopLimit = 60_000;

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGTERM')));

/** A folder for one Gantry's data, which other accounts may enter: started by root, PostgreSQL runs as another one. */
export async function dataFolder() {
  const folder = await mkdtemp(join(tmpdir(), 'gantry-end2end-'));
  await chmod(folder, 0o755);
  return folder;
}

/**
 * Starts `gantry up` and waits until it says that it is ready.
 *
 * `name` is that of its log in `results`; `data` is the folder of an earlier one, to find its data again; `uid`, `gid`
 * make it run as another account; `program` and `env` replace what is run and add to its environment; `port` is where to
 * listen, to come back where an earlier one was.
 */
export async function start({ name = 'gantry', data, uid, gid, program = binary, env = {}, port = 0 } = {}) {
  await access(program).catch(() => assert.fail(`${program} is not there: cargo build`));
  const ownFolder = data === undefined;
  data ??= await dataFolder();
  const { DATABASE_URL, GANTRY_OWNER_URL, ...inherited } = process.env;
  // With a public address, the demo's people are made only on request.
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
  #said = [];
  #listeners = new Set();

  constructor({ name, child, data, ownFolder }) {
    this.name = name;
    this.data = data;
    this.#child = child;
    this.#ownFolder = ownFolder;
    running.add(child);
    // A Gantry that a failed test forgot must not keep the tests' process waiting; what waits for one has a time limit.
    for (const handle of [child, child.stdout, child.stderr]) handle.unref();
    this.#ended = new Promise((done) => {
      child.on('error', (error) => done({ error }));
      child.on('close', (code, signal) => done({ code, signal }));
    }).finally(() => running.delete(child));
    createInterface({ input: child.stdout }).on('line', (line) => this.#hear(line));
    createInterface({ input: child.stderr }).on('line', (line) => this.#log.push(line));
  }

  /** `http://127.0.0.1:PORT`, without a slash at its end. */
  address;
  /** The one-time sign-ins of this start: `{ person, role, url }`. */
  signIns = [];

  get pid() {
    return this.#child.pid;
  }

  /** What it wrote, standard output and log, in the order in which it came. */
  log() {
    return this.#log.join('\n');
  }

  /** The link that signs a person in, once: by role ("author", "reviewer") or by name. */
  signIn(who) {
    const found = this.signIns.find(({ person, role }) => person === who || role === who);
    assert.ok(found, `no sign-in for ${who} among ${JSON.stringify(this.signIns.map(({ person, role }) => [person, role]))}`);
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

  /** The first thing that it said, or will say, with this `event`. */
  async event(kind, limit = 10_000) {
    const heard = this.#said.find(({ event }) => event === kind);
    if (heard) return heard;
    let listen, timer;
    const said = new Promise((found) => {
      listen = (said) => said.event === kind && found(said);
      this.#listeners.add(listen);
    });
    const late = new Promise((_, failed) => {
      timer = setTimeout(() => failed(this.#failure(`did not say "${kind}" within ${limit / 1000} s`)), limit);
    });
    const over = this.#ended.then((end) => {
      throw this.#failure(`ended before it said "${kind}" (${describe(end)})`);
    });
    try {
      return await Promise.race([said, late, over]);
    } finally {
      clearTimeout(timer);
      this.#listeners.delete(listen);
    }
  }

  /** Ctrl-C. Fails unless everything that belonged to this Gantry ended well. */
  async stop() {
    const end = await this.#end('SIGINT');
    if (end.code !== 0) throw this.#failure(`did not stop cleanly (${describe(end)})`);
    const left = await processesThatName(this.data);
    assert.deepEqual(left, [], `left running by ${this.name}`);
    if (this.#ownFolder) await rm(this.data, { recursive: true, force: true });
  }

  /** As if the machine had lost power, for this one process. */
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

  #hear(line) {
    this.#log.push(line);
    let said;
    try {
      said = JSON.parse(line);
    } catch {
      return; // shows in the log; what a test waits for then doesn't come
    }
    this.#said.push(said);
    for (const listen of [...this.#listeners]) listen(said);
  }

  #failure(what) {
    return new Error(`${this.name} ${what}; the end of its log:\n${this.#log.slice(-40).join('\n')}`);
  }

  async #keepLog() {
    await mkdir(results, { recursive: true });
    await writeFile(join(results, `${this.name}.log`), this.log() + '\n');
  }
}

/** Running programs with this text in their command line. */
export async function processesThatName(text) {
  const found = [];
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''); // ended meanwhile
    if (line.includes(text)) found.push(line.replaceAll('\0', ' ').trim());
  }
  return found;
}

function describe({ error, code, signal }) {
  return error?.message ?? (signal ? `signal ${signal}` : `exit code ${code}`);
}
