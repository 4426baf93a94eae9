import { Session, type Profiler } from 'node:inspector';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Processor time of this thread, because other programs do not affect it. */
export const workedMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

/** The longest work between two rounds of the event loop, in the quickest of three runs. */
export const longestStep = async (work: () => Promise<unknown>): Promise<number> => {
  const runs: number[] = [];
  for (let run = 0; run < 3; run += 1) {
    let [longest, since] = [0, workedMs()];
    let round: NodeJS.Immediate;
    const look = (): void => {
      const now = workedMs();
      [longest, since] = [Math.max(longest, now - since), now];
      round = setImmediate(look);
    };
    look();
    await work();
    look();
    clearImmediate(round!);
    runs.push(longest);
  }
  return Math.min(...runs);
};

/** The longest work between two ticks of the event loop, and the function of ours that did most of it. */
export type Step = { ms: number; name: string };

const SAMPLE_EVERY_US = 1_000;
const OURS = /^file:.*\/(src|workers|packages)\//;
const nowUs = (): number => Number(process.hrtime.bigint() / 1_000n);

/**
 * The innermost function of ours that took at least half of the samples between two times. A step that no function of
 * ours took half of is named by its largest function.
 */
const nameOf = (profile: Profiler.Profile, fromUs: number, toUs: number): string => {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(profile.nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])));
  const inside = new Map<string, { samples: number; depth: number }>();
  let at = profile.startTime;
  let samples = 0;
  for (const [index, id] of (profile.samples ?? []).entries()) {
    at += profile.timeDeltas?.[index] ?? 0;
    if (at < fromUs || at > toUs) continue;
    samples += 1;
    const frames: string[] = [];
    for (let node = nodes.get(id); node; node = nodes.get(parents.get(node.id) ?? -1)) {
      const { functionName, url, lineNumber } = node.callFrame;
      if (OURS.test(url)) frames.push(`${functionName || 'a function'} ${placeOf(url)}:${lineNumber + 1}`);
      else if (node.id === id) frames.push(`${functionName || 'a function'} ${url}`);
    }
    for (const [depth, frame] of [...new Set(frames)].toReversed().entries()) {
      const seen = inside.get(frame) ?? { samples: 0, depth };
      inside.set(frame, { samples: seen.samples + 1, depth: Math.max(seen.depth, depth) });
    }
  }
  const frames = [...inside].toSorted(([, one], [, other]) => other.samples - one.samples);
  const half = frames.filter(([, frame]) => frame.samples >= samples / 2);
  return half.toSorted(([, one], [, other]) => other.depth - one.depth)[0]?.[0] ?? frames[0]?.[0] ?? 'not sampled';
};

const placeOf = (url: string): string => relative(process.cwd(), fileURLToPath(url));

/**
 * Watches the event loop of this thread until it is stopped. Stopping is synchronous, so that a process can also do it
 * at its end. What the test itself does is counted too.
 */
export const watchLoop = (): (() => Step) => {
  const session = new Session();
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.setSamplingInterval', { interval: SAMPLE_EVERY_US });
  session.post('Profiler.start');
  const longest = { ms: 0, fromUs: 0, toUs: 0 };
  let [worked, since] = [workedMs(), nowUs()];
  const look = (): void => {
    const [now, nowAtUs] = [workedMs(), nowUs()];
    if (now - worked > longest.ms) Object.assign(longest, { ms: now - worked, fromUs: since, toUs: nowAtUs });
    [worked, since] = [now, nowAtUs];
  };
  const timer = setInterval(look, 1).unref();
  return () => {
    clearInterval(timer);
    look();
    let profile: Profiler.Profile | undefined;
    session.post('Profiler.stop', (_failure, stopped) => {
      profile = stopped.profile;
    });
    session.disconnect();
    return { ms: longest.ms, name: profile ? nameOf(profile, longest.fromUs, longest.toUs) : 'not profiled' };
  };
};
