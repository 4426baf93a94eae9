import type { Limits, Priority, TextKind } from './backend.ts';

export type Refusal = 'full' | 'late' | 'failed';
export type Answer = Float32Array | Refusal;
type Job = { text: string; kind: TextKind; answer: (answer: Answer) => void };

type Options = {
  run: (texts: string[], kind: TextKind) => Promise<Float32Array[] | null>;
  limits: Pick<Limits, 'texts' | 'concurrency'>;
  /** How many texts may wait, and how long one may take (none: as long as it takes). */
  longest: Record<Priority, number>;
  turnMs: number;
};

/**
 * Texts on their way to the model: those of turns go first, whatever else waits. Bounded, and bounded in time for turns:
 * a caller who gets no vector has an answer without one.
 */
export const createQueue = ({ run, limits, longest, turnMs }: Options) => {
  const waiting: Record<Priority, Set<Job>> = { turn: new Set(), background: new Set() };
  // One place stays free for turns where there is more than one.
  const places: Record<Priority, number> = {
    turn: limits.concurrency,
    background: Math.max(1, limits.concurrency - 1),
  };
  let running = 0;

  const takeFrom = (jobs: Set<Job>): Job[] => {
    const [first] = jobs;
    const taken = [...jobs].filter(({ kind }) => kind === first?.kind).slice(0, limits.texts);
    for (const job of taken) jobs.delete(job);
    return taken;
  };

  const take = (): Job[] => {
    if (waiting.turn.size > 0) return running < places.turn ? takeFrom(waiting.turn) : [];
    return running < places.background ? takeFrom(waiting.background) : [];
  };

  const work = async (jobs: Job[], kind: TextKind): Promise<void> => {
    running += 1;
    const texts = jobs.map(({ text }) => text);
    const vectors = await run(texts, kind).catch(() => null);
    running -= 1;
    jobs.forEach((job, index) => job.answer(vectors?.[index] ?? 'failed'));
    next();
  };

  const next = (): void => {
    for (let jobs = take(); jobs[0] !== undefined; jobs = take()) void work(jobs, jobs[0].kind);
  };

  return {
    hasRoom: (priority: Priority, texts: number): boolean => waiting[priority].size + texts <= longest[priority],

    add: (text: string, kind: TextKind, priority: Priority): Promise<Answer> => {
      if (waiting[priority].size >= longest[priority]) return Promise.resolve('full');
      const { promise, resolve } = Promise.withResolvers<Answer>();
      const job: Job = { text, kind, answer: resolve };
      waiting[priority].add(job);
      if (priority === 'turn') {
        const timer = setTimeout(() => {
          waiting.turn.delete(job);
          resolve('late');
        }, turnMs);
        job.answer = (answer) => {
          clearTimeout(timer);
          resolve(answer);
        };
      }
      next();
      return promise;
    },
  };
};
