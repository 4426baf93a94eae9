import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../scripts/services.ts';
import { isReady, type Kind, type RealProcess, spawnProcess } from '../../test/kit/processes.ts';

export const KINDS: readonly Kind[] = ['api', 'reply', 'delivery', 'sources'];
const READY_WITHIN_MS = 60_000;
const LOOK_EVERY_MS = 100;
const STALLS = ['--import', './test/kit/stall.ts'];

/** A place in the crew. Its port stays the same when its process is replaced. */
export type Post = {
  kind: Kind;
  port: number;
  process: RealProcess;
  /** True once the process has been ready. */
  ready: boolean;
};

/**
 * The processes of a run, `each` of each kind or one that does everything (`'all'`), with a supervisor. A process that ends by itself before it was ever
 * ready is started again, because its stores may be down. A process that was ready must not end by itself.
 */
export const openCrew = async (
  { MONGODB_URL: mongodb = '', ...env }: Record<string, string>,
  { plant, each }: { plant: string | null; each: number | 'all' },
) => {
  const posts: Post[] = [];
  const crashes: string[] = [];
  let closing = false;

  const launch = async (kind: Kind, port: number, skewMs = 0): Promise<RealProcess> => {
    // With its name in the address, MongoDB can refuse writes of one kind of process.
    const named = `${mongodb}${mongodb.includes('?') ? '&' : '?'}appName=${kind}`;
    const process = await spawnProcess(kind, { ...env, MONGODB_URL: named }, { plant, port, skewMs, nodeArgs: STALLS });
    process.child.once('exit', (code, signal) => void onExit(process, code ?? signal));
    void watchReady(process);
    return process;
  };

  const postOf = (process: RealProcess): Post | undefined => posts.find((post) => post.process === process);

  const put = async (post: Post, skewMs = 0): Promise<void> => {
    post.ready = false;
    post.process = await launch(post.kind, post.port, skewMs);
  };

  const watchReady = async (process: RealProcess): Promise<void> => {
    while (!closing && process.child.exitCode === null && process.child.signalCode === null) {
      const post = postOf(process);
      if (await isReady(process)) {
        if (post) post.ready = true;
        return;
      }
      await sleep(LOOK_EVERY_MS);
    }
  };

  const onExit = async (process: RealProcess, how: number | string | null): Promise<void> => {
    const post = postOf(process);
    if (closing || !post || process.isTold) return;
    if (post.ready) crashes.push(`${post.kind} ended by itself with ${how}`);
    await put(post);
  };

  const untilReady = async (some = posts): Promise<void> => {
    const until = performance.now() + READY_WITHIN_MS;
    while (some.some(({ ready }) => !ready) && performance.now() < until) await sleep(LOOK_EVERY_MS);
  };

  const kinds: readonly Kind[] =
    each === 'all' ? [each] : KINDS.flatMap((kind) => Array.from({ length: each }, () => kind));
  for (const kind of kinds) {
    const port = await freePort();
    const post = { kind, port, ready: false, process: await launch(kind, port) };
    posts.push(post);
  }
  await untilReady();

  return {
    posts,
    crashes,
    /** Ends a process and starts its replacement. Returns the exit code. */
    replace: async (post: Post, signal: 'SIGKILL' | 'SIGTERM', skewMs = 0): Promise<number | null> => {
      const { child } = post.process;
      await post.process.kill(signal);
      await put(post, skewMs);
      return child.exitCode;
    },
    apis: (): string[] =>
      posts.filter(({ kind }) => kind === 'api' || kind === 'all').map(({ process }) => process.url),
    untilReady,
    close: async (): Promise<void> => {
      closing = true;
      await Promise.all(posts.map(({ process }) => process.kill()));
    },
  };
};

export type Crew = Awaited<ReturnType<typeof openCrew>>;
