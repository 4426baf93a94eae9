import type { Limits, Priority, TextKind } from './backend.ts';

export type Refusal = 'full' | 'late' | 'failed';
export type Answer = Float32Array | Refusal;
type Job = { text: string; kind: TextKind; answer: (answer: Answer) => void };

type Options = {
  run: (texts: string[], kind: TextKind) => Promise<Float32Array[] | null>;
  limits: Pick<Limits, 'texts' | 'concurrency'>;
  /** How many texts may wait. */
  capacity: Record<Priority, number>;
  /** The time limit for the vector of a turn's text, including the wait. Background texts have no limit. */
  turnMs: number;
};

/**
 * The queue of texts for the model. Texts of turns go first. The queue has a size limit, and texts of turns have a
 * deadline. A turn without a vector is answered from word matches only.
 */
export const createTextQueue = ({ run, limits, capacity, turnMs }: Options) => {
  const waiting: Record<Priority, Set<Job>> = { turn: new Set(), background: new Set() };
  // With more than one slot, one slot is reserved for turns.
  const slots: Record<Priority, number> = {
    turn: limits.concurrency,
    background: Math.max(1, limits.concurrency - 1),
  };
  let running = 0;

  const removeBatch = (jobs: Set<Job>): Job[] => {
    const [first] = jobs;
    const batch = [...jobs].filter(({ kind }) => kind === first?.kind).slice(0, limits.texts);
    for (const job of batch) jobs.delete(job);
    return batch;
  };

  const nextBatch = (): Job[] => {
    if (waiting.turn.size > 0) return running < slots.turn ? removeBatch(waiting.turn) : [];
    return running < slots.background ? removeBatch(waiting.background) : [];
  };

  const runBatch = async (jobs: Job[], kind: TextKind): Promise<void> => {
    running += 1;
    const texts = jobs.map(({ text }) => text);
    const vectors = await run(texts, kind).catch(() => null);
    running -= 1;
    jobs.forEach((job, index) => job.answer(vectors?.[index] ?? 'failed'));
    startBatches();
  };

  const startBatches = (): void => {
    for (let jobs = nextBatch(); jobs[0] !== undefined; jobs = nextBatch()) void runBatch(jobs, jobs[0].kind);
  };

  return {
    hasCapacity: (priority: Priority, texts: number): boolean => waiting[priority].size + texts <= capacity[priority],

    add: (text: string, kind: TextKind, priority: Priority): Promise<Answer> => {
      if (waiting[priority].size >= capacity[priority]) return Promise.resolve('full');
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
      startBatches();
      return promise;
    },
  };
};
