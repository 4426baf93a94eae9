import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../test/kit/random.ts';
import type { Crew, Post } from './crew.ts';
import { PAUSE_MS } from './limits.ts';
import type { Store } from './store.ts';

const SKEW_MS = 11 * 60_000;
const STALLS = 3;
const STALL_EVERY_MS = 700;
/** Well before a process that hangs ends itself (15 s). */
const GRACEFUL_WITHIN_MS = 10_000;

type Field = {
  crew: Crew;
  redis: Store;
  mongodb: Store;
  flushRedis: () => Promise<void>;
  random: Random;
  /** Called when MongoDB was told to refuse writes. */
  refused: (at: number) => void;
  /** Called with a sentence for each thing that a fault must not cause. */
  report: (what: string) => void;
};

/** A process may need longer to stop, and end with an error, while a store is away. */
type Calm = { storesDisturbedSince: (at: number) => boolean };

type Fault = { name: string; target: object; run: () => Promise<void> };

const faultsOnProcess = (post: Post, { crew, random, report, storesDisturbedSince }: Field & Calm): Fault[] => {
  const on = (name: string, run: () => Promise<unknown>): Fault => ({
    name: `${name} ${post.kind}`,
    target: post,
    run: async () => void (await run()),
  });
  const skewMs = random.next() < 0.5 ? SKEW_MS : -SKEW_MS;
  const pause = async (): Promise<void> => {
    const { child } = post.process;
    child.kill('SIGSTOP');
    await sleep(PAUSE_MS);
    child.kill('SIGCONT');
  };
  /** The event loop of the process is busy for 500 ms, several times (test/kit/stall.ts). */
  const stall = async (): Promise<void> => {
    await crew.untilReady([post]); // before that, a process has no handler for the signal
    for (let count = 0; count < STALLS; count += 1) {
      post.process.child.kill('SIGUSR2');
      await sleep(STALL_EVERY_MS);
    }
  };
  const restart = async (): Promise<void> => {
    await crew.untilReady([post]); // before that, a process has no handler for the signal
    const startedAt = performance.now();
    const disturbed = storesDisturbedSince(startedAt);
    const code = await crew.replace(post, 'SIGTERM');
    const ms = performance.now() - startedAt;
    if (disturbed || storesDisturbedSince(startedAt)) return;
    if (code !== 0) report(`${post.kind} ended with ${code} on SIGTERM`);
    if (ms > GRACEFUL_WITHIN_MS) report(`${post.kind} took ${(ms / 1000).toFixed(1)} s to stop`);
  };
  return [
    on('kill', () => crew.replace(post, 'SIGKILL')),
    on('kill', () => crew.replace(post, 'SIGKILL')),
    on('pause', pause),
    on('stall', stall),
    on('restart', restart),
    on('skew the clock of', () => crew.replace(post, 'SIGKILL', skewMs)),
  ];
};

const faultsOnStores = ({ redis, mongodb, flushRedis, refused }: Field): Fault[] => [
  { name: 'flush Redis', target: redis, run: flushRedis },
  ...[redis, mongodb].flatMap((target) =>
    target.faults.map(({ name, run }): Fault => ({ name, target, run: () => run(refused) })),
  ),
];

type FaultPlan = { everyMs: number; isOver: () => boolean; say: (line: string) => void };

/**
 * Injects random faults until the run is over, about one every `everyMs`. Faults on different targets overlap, and a
 * target has one fault at a time. About a third of the faults concern the stores. Returns how often each was injected.
 */
export const injectFaults = async (field: Field, { everyMs, isOver, say }: FaultPlan): Promise<Map<string, number>> => {
  const { crew, random } = field;
  const counts = new Map<string, number>();
  const busy = new Set<object>();
  const running = new Set<Promise<void>>();
  const startedAt = performance.now();
  const stores: object[] = [field.redis, field.mongodb];
  let storesCalmSince = Number.NEGATIVE_INFINITY;
  const storesDisturbedSince = (at: number): boolean => stores.some((store) => busy.has(store)) || storesCalmSince > at;
  const choose = (): Fault => {
    const post = crew.posts[random.below(crew.posts.length)] as Post;
    const some =
      random.next() < 0.33 ? faultsOnStores(field) : faultsOnProcess(post, { ...field, storesDisturbedSince });
    return some[random.below(some.length)] as Fault;
  };
  while (!isOver()) {
    const { name, target, run } = choose();
    if (!busy.has(target)) {
      busy.add(target);
      counts.set(name, (counts.get(name) ?? 0) + 1);
      say(`${((performance.now() - startedAt) / 1000).toFixed(1).padStart(6)} s  ${name}`);
      const fault = run()
        .catch((cause: unknown) => field.report(`${name} failed: ${String(cause)}`))
        .finally(() => {
          busy.delete(target);
          if (stores.includes(target)) storesCalmSince = performance.now();
          running.delete(fault);
        });
      running.add(fault);
    }
    await sleep(everyMs * (0.5 + random.next()));
  }
  await Promise.all(running);
  return counts;
};
