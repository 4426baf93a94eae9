import { expect, test } from 'vitest';
import type { DraftKnowledge } from '../../src/assistants/drafts/draft-reads.ts';
import { createDraftVectors } from '../../src/assistants/knowledge/semantic-search.ts';
import { anEmbedder } from '../support/embedder.ts';

/** A draft that adds entries of two texts each. */
const aDraft = (assistantId: string, entries: number, revision = 1): DraftKnowledge => {
  const added = Array.from({ length: entries }, (_, nth) => ({
    entryId: `${assistantId}-${nth}`,
    question: `question ${nth} of ${assistantId} ${revision}`,
    answer: `answer ${nth} of ${assistantId} ${revision}`,
    language: null,
    variants: [],
    tags: [],
    actions: [],
  }));
  const edited = new Set(added.map(({ entryId }) => entryId));
  const settings = {} as DraftKnowledge['settings']; // not read
  return { assistantId, entries: added, leftOut: 0, bytes: 0, settings, sources: {}, edited, version: 1, revision };
};

/** A call of the model takes a second, so that one `prepare` makes a few texts. */
const openVectors = () => {
  let ms = 0;
  const embedder = anEmbedder();
  embedder.gate = () => {
    ms += 1_000;
  };
  const { prepare } = createDraftVectors({
    vectors: { read: async function* () {} },
    vectorsOf: async () => null,
    embedder,
    now: () => ms,
  });
  return prepare;
};

test('a draft does not wait until larger ones of others are ready', async () => {
  const prepare = openVectors();
  const large = Array.from({ length: 16 }, (_, nth) => aDraft(`large ${nth}`, 1_000));
  const neighbour = aDraft('neighbour', 51);
  let isReady = false;

  for (let round = 0; round < 4; round += 1) {
    for (const draft of large) expect(await prepare(draft)).toBe(false);
    isReady = await prepare(neighbour);
  }

  expect(isReady).toBe(true);
});

test('of many drafts with few texts, each is ready after some calls', async () => {
  const prepare = openVectors();
  let waiting = Array.from({ length: 50 }, (_, nth) => aDraft(`few ${nth}`, 50));

  for (let round = 0; round < 20; round += 1) {
    const ready = new Set<DraftKnowledge>();
    for (const draft of waiting) if (await prepare(draft)) ready.add(draft);
    waiting = waiting.filter((draft) => !ready.has(draft));
  }

  expect(waiting.map(({ assistantId }) => assistantId)).toEqual([]);
});

test('drafts that change all the time do not keep their places', async () => {
  const prepare = openVectors();
  const neighbour = aDraft('neighbour', 100);
  const places = Array.from({ length: 32 }, (_, nth) => `changing ${nth}`);
  let isReady = false;

  for (let round = 0; round < 30 && !isReady; round += 1) {
    for (const assistantId of places) await prepare(aDraft(assistantId, 40, round));
    isReady = await prepare(neighbour);
  }

  expect(isReady).toBe(true);
});
