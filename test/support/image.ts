import { chmod, copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Ended, launch, type Program } from '../kit/processes.ts';
import { buildImage, makeReachable, seal, type Stage, unseal } from './dockerfile.ts';

const ROOT = join(import.meta.dirname, '../..');
/** The id of the image's user. Without root, a test runs as its own user, in a read-only folder. */
const NODE_UID = 1000;

export type Image = {
  stage: Stage;
  /** The environment that the image sets. */
  env: Record<string, string>;
  as: { uid?: number; gid?: number };
  /** Runs a command in a container with this environment and waits for its end. */
  run: (command: string[], env?: Record<string, string>) => Promise<Ended>;
  start: (command: string[], env: Record<string, string>) => Program;
  /** The folder of the image. Its PATH has the fake `docker`. */
  folder: string;
  close: () => Promise<void>;
};

/** Builds our image as a folder. Its processes start as in Docker: as another user, with no inherited environment. */
export const openImage = async (): Promise<Image> => {
  const folder = await mkdtemp(join(tmpdir(), 'parley-image-'));
  const bin = join(folder, 'bin');
  const tmp = join(folder, 'tmp');
  await mkdir(bin);
  await mkdir(tmp);
  await copyFile(process.execPath, join(bin, 'node'));
  const PATH = `${bin}:/usr/bin:/bin`;
  const stage = await buildImage(ROOT, folder, PATH);
  await makeReachable(folder);
  await chmod(tmp, 0o777);

  const isRoot = process.getuid?.() === 0;
  const as = isRoot && stage.user !== 'root' ? { uid: NODE_UID, gid: NODE_UID } : {};
  if (!isRoot) await seal(stage.workdir);

  const own = Object.entries(stage.env).map(([name, value]) => [name, value.replace(/^\/tmp\//, `${tmp}/`)]);
  // The image has Node, and no other program.
  const env = { HOME: tmp, ...(Object.fromEntries(own) as Record<string, string>), PATH: bin };
  const start = ([command = '', ...args]: string[], more: Record<string, string> = {}): Program =>
    launch(command, args, { cwd: stage.workdir, env: { ...env, ...more }, ...as });

  await writeFile(
    join(bin, 'docker'),
    `#!/bin/sh\nexec '${process.execPath}' '${join(ROOT, 'test/support/fake-docker.ts')}' "$@"\n`,
    { mode: 0o755 },
  );
  return {
    stage,
    env,
    as,
    start,
    run: (command, more) => start(command, more).ended,
    folder,
    close: async () => {
      if (!isRoot) await unseal(stage.workdir);
      await rm(folder, { recursive: true, force: true });
    },
  };
};
