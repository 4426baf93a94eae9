import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The format of a file that `node --cpu-prof` writes. Times are in µs on the clock of `process.hrtime`. */
type CpuProfile = {
  nodes: { id: number; callFrame: { functionName: string; url: string }; children?: number[] }[];
  startTime: number;
  samples: number[];
  timeDeltas: number[];
};

export type Window = { fromUs: number; toUs: number };

type Frame = CpuProfile['nodes'][number]['callFrame'];

/**
 * Rules that assign code to a step. Frames are tried from the innermost to the outermost, and the first matching rule
 * decides. Node's own functions are recognised by their file, native functions by their caller.
 */
const STEPS: [step: string, place: RegExp][] = [
  ['limit', /rate-limit(er-flexible)?\b/],
  ['BSON encode', /\/bson\/.*#(serialize|calculate|internalCalc|setBuffer|writeInto)/i],
  ['BSON decode', /\/bson\/.*#(deserialize|internalDeserialize|read|toUTF8|get)/i],
  ['BSON other', /\/bson\//],
  ['MongoDB driver', /\/node_modules\/(mongodb|mongoose|mongodb-connection-string-url)\//],
  ['BullMQ', /\/node_modules\/(bullmq|msgpackr|uuid)\//],
  ['Redis client', /\/node_modules\/(ioredis|redis-parser|denque|standard-as-callback|cluster-key-slot|@ioredis)\//],
  [
    'Express',
    /\/node_modules\/(express|router|path-to-regexp|parseurl|send|etag|vary|content-type|qs|helmet|proxy-addr|type-is|content-disposition|depd|mime-types|fresh|accepts)\//,
  ],
  [
    'log',
    /\/node_modules\/(pino|sonic-boom|fast-redact|@pinojs|on-exit-leak-free|thread-stream|safe-stable-stringify|quick-format-unescaped)\/|logger\.ts|loggable\.ts/,
  ],
  ['validate', /\/node_modules\/zod\/|process\/validation\.ts/],
  ['undici', /\/node_modules\/undici\//],
  ['metrics', /\/node_modules\/prom-client\//],
  ['batches', /process\/batch\.ts|platform\/mongo\//],
  ['read body', /http\/json-body\.ts/],
  ['Redis client', /platform\/redis\//],
  ['accept', /conversations\/(accept|duplicates)|turns\/(start-turn|gate)|assistants\/access/],
  ['language', /understanding\/src\/(language|lexicon|fold)\.ts/],
  ['publish', /turns\/waiters\.ts/],
  ['answer', /understanding\/src\/|src\/replies\/(engines|guard|lead-score|ask-engine)|knowledge\/semantic-search/],
  ['commit', /conversations\/|src\/replies\//],
  ['send', /events\/sending\/send|events\/signature|http\/address-guard/],
  ['deliver', /workers\/delivery\/|src\/events\//],
  ['HTTP', /node:(_http|internal\/http|http)/],
  ['sockets and streams', /node:(net|internal\/stream|stream|internal\/streams|dns|buffer|internal\/buffer)/],
  [
    'timers, promises, events',
    /node:(events|internal\/(timers|process|async_hooks|promise|event_target)|async_hooks|timers)/,
  ],
  ['other of Node', /node:/],
  ['other of ours', /\/(src|workers)\//],
];

const stepOf = (frames: Frame[]): string | null => {
  const leaf = frames[0]?.functionName;
  if (leaf === '(idle)') return null;
  if (leaf === '(garbage collector)') return 'garbage';
  if (leaf === '(program)' || leaf === '(root)') return 'native: loop, system calls';
  for (const { url, functionName } of frames) {
    if (url === '') continue;
    const place = `${url}#${functionName}`;
    const step = STEPS.find(([, pattern]) => pattern.test(place));
    if (step) return step[0];
  }
  return 'native: loop, system calls';
};

/** CPU time in µs by step and by function, within the given time span. */
export const attribute = (profile: CpuProfile, { fromUs, toUs }: Window) => {
  const byId = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(
    profile.nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)),
  );
  const pathOf = (id: number): Frame[] => {
    const frames: Frame[] = [];
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at)) {
      const node = byId.get(at);
      if (node) frames.push(node.callFrame);
    }
    return frames;
  };
  const known = new Map<number, { step: string | null; place: string }>();
  const placeOf = (id: number) => {
    const found = known.get(id);
    if (found) return found;
    const frames = pathOf(id);
    const inner = frames.find(({ url }) => url !== '') ?? frames[0];
    const file = inner?.url.replace(/^.*\/node_modules\//, '').replace(/^.*?\/(src|workers)\//, '$1/') ?? '';
    const made = { step: stepOf(frames), place: `${file} ${inner?.functionName ?? ''}` };
    known.set(id, made);
    return made;
  };
  const steps = new Map<string, number>();
  const functions = new Map<string, number>();
  let at = profile.startTime;
  for (const [index, id] of profile.samples.entries()) {
    const delta = profile.timeDeltas[index] ?? 0;
    at += delta;
    if (at < fromUs || at > toUs) continue;
    const { step, place } = placeOf(id);
    if (step === null) continue;
    steps.set(step, (steps.get(step) ?? 0) + delta);
    functions.set(`${step}: ${place}`, (functions.get(`${step}: ${place}`) ?? 0) + delta);
  }
  return { steps, functions };
};

/** The profile of a process that has ended. */
export const readProfile = (folder: string): CpuProfile => {
  // A process writes one profile per thread. The one with the most samples is used.
  const read = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as CpuProfile);
  const [longest] = read.toSorted((one, other) => other.samples.length - one.samples.length);
  if (!longest) throw new Error('the process left no profile');
  return longest;
};
