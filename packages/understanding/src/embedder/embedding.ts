import { LRUCache } from 'lru-cache';
import { withoutPiledMarks } from '../fold.ts';
import {
  type CountEmbedding,
  type Embedded,
  type EmbeddedKind,
  type Limits,
  mean,
  type Priority,
  type SharedVectors,
} from './backend.ts';
import type { SupervisedModel } from './model-process.ts';
import { joinTokens } from './token-vectors.ts';

const MAX_CHARACTERS = 2_000;
const encoder = new TextEncoder();

/**
 * The beginning of a text, normalised. The model would do this too, but after the text is cut into pieces: a piece of
 * characters that expand to many (U+FDFA) would then take several times as long.
 */
export const readable = (text: string): string =>
  withoutPiledMarks(text.slice(0, MAX_CHARACTERS).toWellFormed())
    .normalize('NFKC')
    .replaceAll('\0', ' ')
    .trim()
    .slice(0, MAX_CHARACTERS)
    .toWellFormed();

const fittingLength = (text: string, room: Uint8Array): number => {
  const { read } = encoder.encodeInto(text, room); // never half a character
  if (read === text.length) return read;
  const space = text.lastIndexOf(' ', read);
  return space > read / 2 ? space : read;
};

/**
 * Splits a text into at most `most` pieces of at most `bytes` bytes, between words if possible. The number of bytes
 * predicts the number of tokens, and so the time, better than the number of characters: about four bytes per token in
 * any script.
 */
export const piecesOf = (text: string, { bytes, most }: { bytes: number; most: number }): string[] => {
  const room = new Uint8Array(bytes);
  const pieces: string[] = [];
  let rest = text;
  while (pieces.length < most && (rest !== '' || pieces.length === 0)) {
    const length = fittingLength(rest, room);
    pieces.push(rest.slice(0, length));
    rest = rest.slice(length).trimStart();
  }
  return pieces;
};

type Refusal = 'busy' | 'full' | 'late' | 'failed';
type Answer = Embedded | Refusal;
/** A text for the model. `holder` is the assistant that it is for. */
type TextRequest = {
  text: string;
  kind: EmbeddedKind;
  priority: Priority;
  holder: string;
  /** When its turn asked for its first text. Undefined for this first text. */
  since?: number | undefined;
  /** Whether the vectors of its tokens are asked for too. */
  withTokens: boolean;
};
type Job = TextRequest & { answer: (answer: Answer) => void };

type Options = {
  run: SupervisedModel['embed'];
  limits: Pick<Limits, 'texts' | 'concurrency' | 'answerMs'>;
  /** How many texts may wait. Each holder gets a share. */
  capacity: Record<Priority, number>;
  /** The longest expected wait for the first text of a turn. */
  waitMs: number;
};

/**
 * While turns wait, the background gets a quarter of the model's time: its batch runs after three times as long for
 * turns.
 */
const TURN_TIMES = 3;
/**
 * While turns come more often than this, the background pauses after each batch for as long as the batch took, so that
 * the processors are free for the other work of these turns.
 */
const TURNS_ARE_RARE_MS = 1_000;
/** The weight of the latest batch in the mean time of a batch. */
const LATEST = 0.1;
/** The time after which a text that a holder was given counts only half. */
const HALF_LIFE_MS = 5_000;
/**
 * How many holders are remembered. Beyond it, the half with the fewest recent texts is forgotten. This hardly changes
 * whose turn is next.
 */
const MAX_HOLDERS = 1_000;
/**
 * After a text has failed, its holder's texts have batches of their own for this time: a text that is refused again and
 * again must not delay or fail those of others.
 */
const APART_MS = 10_000;

/**
 * What each holder was given lately. The holder that was given the least is next. So a holder with few texts waits for
 * one batch, and not for holders that flood the queue.
 */
const createShares = () => {
  const given = new Map<string, { amount: number; at: number }>();
  const now = (holder: string): number => {
    const share = given.get(holder);
    return share ? share.amount * 0.5 ** ((performance.now() - share.at) / HALF_LIFE_MS) : 0;
  };
  return {
    of: now,
    add: (holder: string): void => {
      given.set(holder, { amount: now(holder) + 1, at: performance.now() });
      if (given.size <= MAX_HOLDERS) return;
      const least = [...given.keys()].toSorted((one, other) => now(one) - now(other)).slice(0, MAX_HOLDERS / 2);
      for (const one of least) given.delete(one);
    },
  };
};

/** The waiting texts of one priority, by holder, each in order of arrival. */
const createLine = (capacity: number, isApart: (holder: string) => boolean) => {
  const byHolder = new Map<string, Job[]>();
  const shares = createShares();
  let size = 0;

  /** Returns false if the text no longer waits. */
  const remove = (job: Job): boolean => {
    const own = byHolder.get(job.holder) ?? [];
    const at = own.indexOf(job);
    if (at === -1) return false;
    own.splice(at, 1);
    size -= 1;
    if (own.length === 0) byHolder.delete(job.holder);
    return true;
  };

  /**
   * The first text of the holder that was given the least. `like`: only a text that can be in one batch with this one.
   */
  const next = (like?: Job): Job | undefined => {
    let least: { job: Job; share: number } | undefined;
    const isAlone = like !== undefined && isApart(like.holder);
    for (const [holder, [job]] of byHolder) {
      if (!job || (like && (job.kind !== like.kind || job.withTokens !== like.withTokens))) continue;
      if (like && holder !== like.holder && (isAlone || isApart(holder))) continue;
      const share = shares.of(holder);
      if (!least || share < least.share) least = { job, share };
    }
    return least?.job;
  };

  return {
    get size(): number {
      return size;
    },

    /** A holder may have as many texts waiting as there is room left, so there is always room for the next holder. */
    hasRoom: (holder: string, texts: number): boolean => (byHolder.get(holder)?.length ?? 0) + texts <= capacity - size,

    /**
     * How many texts go before the next one of a holder: its own, and those of other holders until these were given as
     * much.
     */
    countBefore: (holder: string): number => {
      const own = byHolder.get(holder)?.length ?? 0;
      const until = shares.of(holder) + own;
      let before = own;
      for (const [other, { length }] of byHolder) {
        if (other !== holder) before += Math.min(length, Math.max(0, Math.floor(until - shares.of(other)) + 1));
      }
      return before;
    },

    /** A text of a turn that already has a vector goes before its holder's other texts: that turn has waited before. */
    add: (job: Job): void => {
      const own = byHolder.get(job.holder) ?? [];
      if (job.since === undefined) own.push(job);
      else own.unshift(job);
      byHolder.set(job.holder, own);
      size += 1;
    },

    remove,

    takeBatch: (texts: number): Job[] => {
      const batch: Job[] = [];
      for (let job = next(); job && batch.length < texts; job = next(job)) {
        remove(job);
        shares.add(job.holder);
        batch.push(job);
      }
      return batch;
    },
  };
};

/** The mean time of the latest batches. Null until the first one has ended. */
const createPace = () => {
  let mean: number | null = null;
  return {
    get ms(): number | null {
      return mean;
    },
    note: (ms: number): void => {
      mean = mean === null ? ms : mean + LATEST * (ms - mean);
    },
  };
};

/**
 * The queue of texts for the model. Texts of turns go first, but the background gets a quarter of the time. Within
 * both, holders share: one with many texts does not delay the others. A turn that would wait too long is refused at
 * once. A turn that does wait too long is refused then. Both are answered from word matches only.
 */
const createTextQueue = ({ run, limits, capacity, waitMs }: Options) => {
  const failing = new LRUCache<string, true>({ max: MAX_HOLDERS, ttl: APART_MS });
  const isApart = (holder: string): boolean => failing.has(holder);
  const waiting = { turn: createLine(capacity.turn, isApart), background: createLine(capacity.background, isApart) };
  const pace = { turn: createPace(), background: createPace() };
  // With more than one slot, one slot is reserved for turns.
  const backgroundSlots = Math.max(1, limits.concurrency - 1);
  let running = 0;
  /** The time that the model has spent on turns since the background began to wait. */
  let turnMs = 0;
  let lastTurnAt = Number.NEGATIVE_INFINITY;
  let backgroundRests = false;

  const nextBatch = (): Job[] => {
    if (running >= limits.concurrency) return [];
    const hasHadLeast = turnMs >= TURN_TIMES * (pace.background.ms ?? pace.turn.ms ?? Number.POSITIVE_INFINITY);
    const mayGo = waiting.turn.size === 0 && running < backgroundSlots && !backgroundRests;
    const isBackgroundsTurn = hasHadLeast || mayGo;
    if (waiting.background.size === 0) turnMs = 0;
    else if (isBackgroundsTurn) {
      turnMs = 0;
      return waiting.background.takeBatch(limits.texts);
    }
    return waiting.turn.takeBatch(limits.texts);
  };

  const runBatch = async (jobs: Job[], { kind, priority, withTokens }: Job): Promise<void> => {
    running += 1;
    const startedAt = performance.now();
    const texts = jobs.map(({ text }) => text);
    const answers = await run(texts, kind, withTokens).catch(() => null);
    const ms = performance.now() - startedAt;
    running -= 1;
    if (answers) pace[priority].note(ms);
    if (priority === 'turn') {
      turnMs += ms;
      lastTurnAt = performance.now();
    } else if (performance.now() - lastTurnAt < TURNS_ARE_RARE_MS) {
      backgroundRests = true;
      setTimeout(() => {
        backgroundRests = false;
        startBatches();
      }, ms);
    }
    for (const [nth, job] of jobs.entries()) {
      const answer = answers?.[nth];
      if (!answer) failing.set(job.holder, true);
      job.answer(answer ?? 'failed');
    }
    startBatches();
  };

  const startBatches = (): void => {
    for (let jobs = nextBatch(); jobs[0] !== undefined; jobs = nextBatch()) void runBatch(jobs, jobs[0]);
  };

  /** How long the next text of a turn will wait, by the pace of the latest ones. */
  const expectedWaitMs = (holder: string): number => {
    const batches = Math.ceil(waiting.turn.countBefore(holder) / limits.texts) + (running < limits.concurrency ? 0 : 1);
    const share = waiting.background.size > 0 ? TURN_TIMES / (TURN_TIMES + 1) : 1;
    return (batches * (pace.turn.ms ?? 0)) / limits.concurrency / share;
  };

  const refusalOf = (
    texts: number,
    { priority, holder, since }: Pick<TextRequest, 'priority' | 'holder' | 'since'>,
  ): 'busy' | 'full' | null => {
    if (!waiting[priority].hasRoom(holder, texts)) return 'full';
    // A turn that already has a vector is not refused, because a decision with half of the evidence may be a wrong one.
    return priority === 'turn' && since === undefined && expectedWaitMs(holder) > waitMs ? 'busy' : null;
  };

  /**
   * Limits how long a turn waits in line, also if others pass it, and how long the model then takes. A turn that
   * already has a vector may wait in line for both times together, counted from its first text.
   */
  const limitTime = (job: Job, leaveLine: () => boolean): void => {
    const { answer, since } = job;
    const late = (): void => answer('late');
    const inWork = limits.answerMs;
    const inLine = since === undefined ? waitMs : Math.max(0, since + waitMs + inWork - performance.now());
    let timer = setTimeout(() => {
      if (leaveLine()) late();
      else timer = setTimeout(late, since === undefined ? inWork : 0);
    }, inLine);
    job.answer = (given) => {
      clearTimeout(timer);
      answer(given);
    };
  };

  return {
    /** Why this many texts cannot be added now. Null if they can. */
    refusalOf,

    add: (request: TextRequest): Promise<Answer> => {
      const line = waiting[request.priority];
      if (!line.hasRoom(request.holder, 1)) return Promise.resolve('full');
      const { promise, resolve } = Promise.withResolvers<Answer>();
      const job: Job = { ...request, answer: resolve };
      line.add(job);
      if (request.priority === 'turn') limitTime(job, () => line.remove(job));
      startBatches();
      return promise;
    },
  };
};

/**
 * How many texts may wait. A single assistant may use half. Turns hardly reach it, as they are refused if they would
 * wait too long.
 */
const QUEUE_CAPACITY = { turn: 1_000, background: 512 };
/** Cached vectors of questions: about 4,000 with the local model. Different visitors often ask the same question. */
const CACHED_BYTES = 8_000_000;
/** Estimated memory of a cached vector without its values and its text. */
const CACHED_OVERHEAD_BYTES = 250;

type EmbeddingOptions = {
  model: SupervisedModel;
  count: CountEmbedding;
  waitMs: number;
  /** Null while there are none. */
  shared: () => SharedVectors | null;
};

type EmbedOptions = Omit<TextRequest, 'text' | 'kind'>;

const NO_TOKENS = new Int8Array();

/** Embeds texts. Vectors of turns are cached, and the same text is never embedded twice at the same time. */
export const createEmbedding = ({ model, count, waitMs, shared }: EmbeddingOptions) => {
  const { limits } = model;
  const cached = new LRUCache<string, Embedded>({
    maxSize: CACHED_BYTES,
    sizeCalculation: ({ vector, tokens }, { length }) =>
      vector.byteLength + (tokens?.byteLength ?? 0) + 2 * length + CACHED_OVERHEAD_BYTES,
  });
  const inFlight = new Map<string, Promise<Embedded | null>>();
  const queue = createTextQueue({ run: model.embed, limits, capacity: QUEUE_CAPACITY, waitMs });

  const ask = async (pieces: string[], kind: EmbeddedKind, options: EmbedOptions): Promise<Embedded | null> => {
    const answers = await Promise.all(pieces.map((text) => queue.add({ text, kind, ...options })));
    const refusal = answers.find((answer) => typeof answer === 'string');
    count(kind, refusal ?? 'made');
    if (refusal !== undefined) return null;
    const made = answers.filter((answer) => typeof answer !== 'string');
    const lengths = pieces.map(({ length }) => length);
    const vector = mean(
      made.map((one) => one.vector),
      lengths,
    );
    if (!options.withTokens) return { vector };
    return {
      vector,
      tokens: joinTokens(
        made.map(({ tokens = NO_TOKENS }) => tokens),
        kind,
      ),
    };
  };

  /**
   * Takes the vectors from another process, or asks the model. Vectors of passages are not shared, because they are
   * stored.
   */
  const findOrAsk = async (
    key: string,
    text: string,
    kind: EmbeddedKind,
    options: EmbedOptions,
  ): Promise<Embedded | null> => {
    const others = kind === 'query' ? shared() : null;
    const found = await others?.find(key);
    if (found && (found.tokens || !options.withTokens)) {
      count(kind, 'shared');
      return found;
    }
    const pieces = piecesOf(text, { bytes: limits.pieceBytes, most: limits.pieces[kind] });
    const refusal = queue.refusalOf(pieces.length, options);
    if (refusal !== null) {
      count(kind, refusal);
      return null;
    }
    const made = await ask(pieces, kind, options);
    if (made) others?.keep(key, made);
    return made;
  };

  const embedOne = (text: string, kind: EmbeddedKind, options: EmbedOptions): Promise<Embedded | null> => {
    const { priority, holder, withTokens } = options;
    const key = `${model.model()} ${kind} ${text}`;
    const known = cached.get(key);
    if (known && (known.tokens || !withTokens)) {
      count(kind, 'cached');
      return Promise.resolve(known);
    }
    // A turn joins neither a request of low priority nor one of another assistant, which may wait longer.
    const flightKeyOf = (tokens: boolean): string => `${priority} ${holder} ${tokens} ${key}`;
    const flightKey = flightKeyOf(withTokens);
    const asked = inFlight.get(flightKeyOf(true)) ?? inFlight.get(flightKey);
    if (asked) {
      count(kind, 'joined');
      return asked;
    }
    const asking = findOrAsk(key, text, kind, options)
      .then((made) => {
        if (made && priority === 'turn') cached.set(key, made);
        return made;
      })
      .finally(() => inFlight.delete(flightKey));
    inFlight.set(flightKey, asking);
    return asking;
  };

  const allOrNull = (made: (Embedded | null)[]): Embedded[] | null => (made.every((one) => one !== null) ? made : null);

  return async (texts: string[], kind: EmbeddedKind, options: EmbedOptions): Promise<Embedded[] | null> => {
    if (!model.status().available) {
      count(kind, 'unavailable', texts.length);
      return null;
    }
    const read = texts.map(readable);
    if (options.priority === 'turn')
      return allOrNull(await Promise.all(read.map((text) => embedOne(text, kind, options))));
    // The texts are queued a few at a time, so that ten thousand entries do not fill the queue.
    const step = limits.texts * limits.concurrency;
    const made: Embedded[] = [];
    for (let at = 0; at < read.length; at += step) {
      const some = allOrNull(await Promise.all(read.slice(at, at + step).map((text) => embedOne(text, kind, options))));
      if (!some) return null;
      made.push(...some);
    }
    return made;
  };
};
