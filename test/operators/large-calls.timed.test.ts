import { randomUUID } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { PROPOSALS_MAX, SOURCES_MAX, type StoredSource } from '../../src/sources/source.ts';
import { anAssistant, request } from '../support/builders.ts';
import { type Step, watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { sized } from '../support/size.ts';
import { addProposals } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';

// What a token may call again and again, with the texts that cost most.

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const PROPOSALS = sized({ everyday: PROPOSALS_MAX / 2, long: PROPOSALS_MAX });
const MIB = 1024 * 1024;
const TRIES = 3;
let assistantId: string;
let bearer: string;
let sourceId: string;

const range = (count: number) => Array.from({ length: count }, (_, nth) => nth);
/** A text of characters that have three bytes. */
const long = (length: number, nth = 0): string => `${nth} `.padEnd(length, '語');
const urlOf = (path: string): string => `${stack.url}/operator/v1/assistants/${assistantId}${path}`;

beforeAll(async () => {
  const { sources, tokens } = stack.service;
  ({ assistantId } = await anAssistant(stack, { knowledge: [] }));
  const rights = { scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
  bearer = (await tokens.createToken({ name: 'a program', ...rights })).secret;
  ({ sourceId } = await sources.add(assistantId, { kind: 'site', url: 'http://127.0.0.1:9/' }));
});

/** The answer, and the longest step of the loop until it was there. */
const watched = async (path: string, body?: object) => {
  const stop = watchLoop();
  const headers = { Authorization: `Bearer ${bearer}`, 'Content-Type': 'application/json' };
  const sent = body ? { method: 'POST', body: JSON.stringify(body) } : {};
  const answer = await fetch(urlOf(path), { headers, ...sent });
  const bytes = Buffer.from(await answer.arrayBuffer());
  const step = stop();
  return { step, status: answer.status, body: JSON.parse(bytes.toString()) };
};

/** The try with the shortest steps: what comes by chance, such as a collection of garbage, is not in all of them. */
const shortest = async <Watched extends { step: Step }>(work: () => Promise<Watched>): Promise<Watched> => {
  const tries: Watched[] = [];
  for (let left = TRIES; left > 0; left -= 1) tries.push(await work());
  return tries.reduce((best, one) => (one.step.ms < best.step.ms ? one : best));
};

test('sources with many long paths are listed in short steps', async () => {
  const many = 4 * SOURCES_MAX; // more than there can be
  const sources = stack.service.mongo.collection<StoredSource>('sources');
  const stored = await sources.findOne({ _id: sourceId });
  const globs = range(20).map((nth) => `/${long(199, nth)}`);
  const other = { ...(stored as StoredSource), include: globs, exclude: globs };
  await sources.insertMany(range(many - 1).map(() => ({ ...other, _id: randomUUID() })));

  const { step, body } = await shortest(() => watched('/sources'));

  expect(body.sources).toHaveLength(many);
  expect(body.sources.at(-1)?.include).toEqual(globs);
  expect(step.ms, step.name).toBeLessThan(atPace(25));
});

test('many long proposals are accepted in short steps', async () => {
  const proposals = range(PROPOSALS).map((nth) => ({ question: long(500, nth), answer: long(4_000, nth) }));
  await addProposals(stack, { assistantId, sourceId }, proposals);

  const { step, body } = await watched('/proposed-entries/accept', { proposalIds: null });

  expect(body).toEqual({ entries: PROPOSALS });
  expect(step.ms, step.name).toBeLessThan(atPace(40));
});

test('a file of questions with a line of 1 MiB is refused in short steps', async () => {
  const set = await request<{ setId: string }>(urlOf('/question-sets'), { bearer, body: { name: 'Long' } });
  const path = `/question-sets/${set.body.setId}/import`;
  const text = 'x'.repeat(20_000).padEnd(MIB - 100, ',');

  const refused = () => watched(path, { format: 'csv', text });
  const { step, status, body } = await shortest(refused);

  expect([status, body.error.field]).toEqual([422, 'text']);
  expect(step.ms, step.name).toBeLessThan(atPace(18));
});
