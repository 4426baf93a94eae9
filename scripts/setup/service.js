import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';

const atLeast = (version, needed) => {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [neededMajor = 0, neededMinor = 0] = needed.split('.').map(Number);
  return major > neededMajor || (major === neededMajor && minor >= neededMinor);
};

/** Checks that a program runs and is new enough. Returns `{version}`, or `{why}` if the program cannot be used. */
const tryProgram = async (kind, path) => {
  const asked = await run(path, ['--version'], { timeoutMs: 10_000 });
  if (!asked.ok) return { why: `${path} does not run here: ${asked.reason}` };
  const version = kind.versionPattern.exec(asked.output)?.[1];
  if (version === undefined) return { why: `${path} does not tell its version` };
  return atLeast(version, kind.minimum) ? { version } : { why: `${path} is ${version}, ${kind.minimum} is needed` };
};

export const onPath = (names, env) =>
  (env.PATH ?? '')
    .split(delimiter)
    .filter(Boolean)
    .flatMap((folder) => names.map((name) => join(folder, name)))
    .filter((path) => existsSync(path));

const answers = (url, defaultPort) =>
  new Promise((resolve) => {
    // Of a list of hosts, only the first is checked. A `+srv` name is not checked, because it has no address to connect
    // to.
    const [, host, port] = /^[a-z]+:\/\/(?:[^@/]*@)?(\[[^\]]+\]|[^:,/?]+)(?::(\d+))?/.exec(url) ?? [];
    if (host === undefined) return resolve(url.includes('+srv://'));
    const socket = connect({ host: host.replace(/^\[|\]$/g, ''), port: Number(port ?? defaultPort), timeout: 3000 });
    const end = (reached) => {
      socket.destroy();
      resolve(reached);
    };
    socket
      .on('connect', () => end(true))
      .on('error', () => end(false))
      .on('timeout', () => end(false));
  });

const byUrl = async (kind, { env }) => {
  const url = env[kind.urlName];
  if (!url) return { why: `${kind.urlName} is not set` };
  if (await answers(url, kind.port)) return { found: { way: 'url' }, text: `${kind.urlName}` };
  // If a URL is set but unreachable, the set-up fails, because starting another service would hide the mistake.
  throw new SetupError(
    `${kind.urlName} is set, but nothing answers there. Start that ${kind.title}, or unset ${kind.urlName}.`,
  );
};

const byPath = async (kind, { env }) => {
  let why = `no ${kind.programs.join(' or ')} on PATH`;
  for (const path of onPath(kind.programs, env)) {
    const tried = await tryProgram(kind, path);
    if (tried.version) return { found: { way: 'path', program: path }, text: `${tried.version} (${path})` };
    why = tried.why;
  }
  return { why };
};

const byOwnProgram =
  (way) =>
  async (kind, { root }) => {
    const program = join(root, kind.own[way]);
    if (!existsSync(program)) return { why: `not yet in ${kind.own[way]}` };
    const tried = await tryProgram(kind, program);
    return tried.version ? { found: { way, program }, text: `${tried.version} (${kind.own[way]})` } : tried;
  };

const byDocker = async (kind, { env }) => {
  const engine = await run('docker', ['version', '--format', '{{.Server.Version}}'], { env, timeoutMs: 5000 });
  if (!engine.ok) return { why: 'no Docker engine answers' };
  const image = await run('docker', ['image', 'inspect', kind.image], { env, timeoutMs: 10_000 });
  if (!image.ok) return { why: `the image ${kind.image} is not here yet` };
  return { found: { way: 'docker', image: kind.image }, text: `${kind.image} (Docker)` };
};

const FINDERS = {
  url: byUrl,
  path: byPath,
  wheel: byOwnProgram('wheel'),
  download: byOwnProgram('download'),
  docker: byDocker,
  apt: byPath,
};

const findersOf = (kind) => kind.finders ?? FINDERS;

const find = async (kind, context, ways) => {
  for (const way of ways) {
    const { found, text } = await findersOf(kind)[way](kind, context);
    if (found) return { text, found };
  }
  return undefined;
};

/**
 * A set-up step that provides a service. `find` looks only for services that already exist. `make` tries several ways
 * to get one, in order, until one works.
 */
export const serviceStep = (kind) => {
  const forced = (env) => {
    const way = env[kind.setting];
    if (way && !kind.ways.includes(way)) {
      throw new SetupError(`${kind.setting}=${way}: must be one of ${kind.ways.join(', ')}`);
    }
    return way || undefined;
  };
  return {
    name: kind.title,
    key: kind.key,
    doing: 'looking for a way to install it',
    find: (context) => {
      const way = forced(context.env);
      return find(kind, context, way ? [way] : kind.ways.filter((one) => one !== 'apt').toSorted(ownFirst));
    },
    make: async (context, onLine) => {
      const way = forced(context.env);
      const reasons = [];
      for (const one of way ? [way] : kind.ways) {
        const why = kind.fetch[one] ? await kind.fetch[one](context, onLine) : null;
        const seen = why === null ? await findersOf(kind)[one](kind, context) : { why };
        if (seen.found) return;
        reasons.push(`  ${one}: ${seen.why}`);
      }
      throw new SetupError(
        `${kind.title} ${kind.minimum} or later could not be found or installed:\n${reasons.join('\n')}\n${kind.advice}`,
      );
    },
  };
};

const LOOK_ORDER = ['url', 'given', 'path', 'wheel', 'download', 'playwright', 'npm', 'docker'];
const ownFirst = (a, b) => LOOK_ORDER.indexOf(a) - LOOK_ORDER.indexOf(b);
