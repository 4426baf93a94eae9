import { randomUUID } from 'node:crypto';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { chatTurnOperations } from '../../src/turns/http/turn-routes.ts';
import type { Assistant } from '../../src/assistants/assistant.ts';
import { createSharedMemory } from '../../src/platform/process/lru.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { NO_CHANGES, NO_COUNTS, type StoredPassage, type StoredSource } from '../../src/sources/source.ts';
import { createPassages } from '../../src/sources/passage-index.ts';
import { anAssistant, anEntry, type TestAssistant } from '../support/builders.ts';
import { openStream } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openProvider, replyWith } from '../kit/provider.ts';
import { openReceiver, type Receiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { addPassages, setSource } from '../support/sources.ts';
import { useStack } from '../support/stack.ts';
import { NO_MODEL } from '../support/embedder.ts';

const stack = useStack({ replyWorkers: 2 });
const receivers: Receiver[] = [];
afterAll(async () => {
  for (const one of receivers) await one.close();
});

const URL = 'https://example.com/help/refunds';
const REFUNDS: Partial<StoredPassage> = {
  title: 'Refunds',
  path: ['Orders', 'Refunds'],
  text: 'A refund takes 14 working days. The money goes back to the card that paid for the order.',
  url: URL,
  anchor: 'how long',
};
const QUESTION = 'How long does a refund take?';
const SOURCE = { title: 'Refunds', url: `${URL}#how%20long`, quote: expect.stringContaining('14 working days') };
const OTHERS: Partial<StoredPassage>[] = [
  {
    title: 'Parcels',
    path: ['Parcels'],
    text: 'Parcels leave our house every evening at six.',
    url: `${URL}/../parcels`,
  },
  {
    title: 'Gifts',
    path: ['Gifts'],
    text: 'We wrap gifts in paper and add a card with your words.',
    url: `${URL}/../gifts`,
  },
];

type Passages = Partial<StoredPassage>[];
type Options = { passages?: Passages; threshold?: number; of?: TestAssistant };

/** An assistant whose source has these passages, and answers from them even if it is hardly sure. */
const aSource = async ({ passages = [REFUNDS, ...OTHERS], threshold = 0.01, of }: Options = {}) => {
  const { assistants } = stack.service;
  const assistant = of ?? (await anAssistant(stack, { input: { threshold }, knowledge: [] }));
  const { assistantId } = assistant;
  const ids = { assistantId, sourceId: randomUUID() };
  const source: Partial<StoredSource> = { assistantId, live: 0, removedAt: null, createdAt: new Date() };
  await stack.service.mongo.collection('sources').insertOne({ _id: ids.sourceId, ...source } as never);
  const publish = async (live: number, count = 1): Promise<void> => {
    await setSource(stack, ids, { live });
    await assistants.raisePassages(assistantId, async () => ({ live: count, drafted: 0 }));
  };
  await addPassages(stack, ids, passages);
  await publish(1, passages.length);
  const ask = async (message = QUESTION, query = '?include=sources') =>
    assistant.callOperation(chatTurnOperations.send, { body: { session_id: randomUUID(), message }, query });
  const whyOf = async (conversationId: string): Promise<Record<string, unknown>> => {
    const line = await eventually(() => {
      const found = stack.logs.findLast(
        (one) => one.msg === 'turn ended' && one.conversationId === conversationId && one.why !== undefined,
      );
      if (!found) throw new Error('no log line');
      return found;
    });
    return line.why as Record<string, unknown>;
  };
  return { ...assistant, ...ids, publish, ask, whyOf };
};

/** Asks in a new session until the sources are read. */
const answered = ({ ask }: Awaited<ReturnType<typeof aSource>>, message?: string) =>
  eventually(async () => {
    const answer = await ask(message);
    expect(answer.body.sources).not.toEqual([]);
    return answer.body;
  });

test('a reply quotes the passage and links to its place, and the sources come only if they are asked for', async () => {
  const source = await aSource();
  const { conversationId, messageId, ...reply } = await answered(source);
  const plain = (await source.ask(undefined, '')).body;
  const [withSources, without] = [
    (await source.history(conversationId, '?include=sources')).body.messages,
    (await source.history(conversationId)).body.messages,
  ];

  expect(reply).toEqual({
    reply: expect.stringContaining('14 working days'),
    suggestedActions: [{ label: 'Refunds', type: 'link', payload: SOURCE.url }],
    sources: [SOURCE],
  });
  expect(Object.keys(plain)).toEqual(['reply', 'suggestedActions', 'conversationId', 'messageId']);
  expect(plain.reply).toBe(reply.reply);
  expect(withSources.map((one) => one.sources)).toEqual([undefined, reply.sources]);
  expect(without.map((one) => Object.hasOwn(one, 'sources'))).toEqual([false, false]);
  expect(without.map(({ messageId: id }) => id)).toContain(messageId);
  const why = await source.whyOf(conversationId);
  expect(why).toMatchObject({ kind: 'answer', given: { sourceId: source.sourceId } });
  expect(JSON.stringify(why)).not.toContain('working days');
});

test('a stream, a turn that is polled, a joined and a replayed request have the sources that each asked for', async () => {
  const source = await aSource();
  await answered(source);
  const body = { session_id: randomUUID(), message: QUESTION };
  const stream = await openStream(`${stack.url}/api/v1/chat?include=sources`, { body, bearer: source.apiKey });
  const streamed = (await stream.ended).at(-1)?.data;

  const replayed = await source.callOperation(chatTurnOperations.send, { body, query: '?include=sources' });
  const polled = await source.call<{ turnId: string }>('/api/v1/chat?include=sources', {
    body: { ...body, session_id: randomUUID() },
    headers: { Prefer: 'respond-async' },
  });
  const location = polled.headers.get('Location') ?? '';
  const answerAt = (path: string) =>
    eventually(async () => {
      const turn = await source.call<{ status: string; sources?: unknown }>(path);
      expect(turn.body.status).toBe('answered');
      return turn.body;
    });

  expect(streamed).toMatchObject({ sources: [SOURCE] });
  expect(replayed.headers.get('Idempotent-Replayed')).toBe('true');
  expect(replayed.body.sources).toEqual([SOURCE]);
  expect(location).toBe(`/api/v1/turns/${polled.body.turnId}?include=sources`);
  expect((await answerAt(location)).sources).toEqual([SOURCE]);
  expect(Object.keys(await answerAt(`/api/v1/turns/${polled.body.turnId}`))).not.toContain('sources');
});

test('any other value of include is refused, and the reply of an entry has no sources', async () => {
  const assistant = await anAssistant(stack);
  const body = { session_id: randomUUID(), message: anEntry().question };

  const refused = await assistant.call<{ error: { code: string; field: string } }>('/api/v1/chat?include=why', {
    body,
  });
  const given = await assistant.callOperation(chatTurnOperations.send, { body, query: '?include=sources' });

  expect([refused.status, refused.body.error.field]).toEqual([422, 'include']);
  expect(given.body.sources).toEqual([]);
});

test('an endpoint gets the sources of replies only if it includes them', async () => {
  const source = await aSource();
  await answered(source);
  const open = async (include: 'sources'[]) => {
    const receiver = await openReceiver();
    receivers.push(receiver);
    await stack.service.endpoints.addEndpoint(source.assistantId, {
      url: receiver.url,
      events: ['message.sent'],
      include,
    });
    return receiver;
  };
  const [including, other] = [await open(['sources']), await open([])];

  // A process may notice new endpoints a second late.
  const sentTo = (receiver: Receiver) =>
    eventually(async () => {
      if (receiver.received.length === 0) await source.ask();
      expect(receiver.received.length).toBeGreaterThan(0);
      return (receiver.received[0]!.json as { payload: Record<string, unknown> }).payload;
    });

  expect((await sentTo(including)).sources).toEqual([SOURCE]);
  expect(Object.keys(await sentTo(other))).toEqual([
    'conversation_id',
    'message_id',
    'turn_id',
    'seq',
    'role',
    'content',
    'suggested_actions',
    'channel',
    'language',
  ]);
});

test('the passage of a file has no link, and is offered by its headings', async () => {
  const file = { url: null, anchor: null };
  const sure = await aSource({ passages: [{ ...REFUNDS, ...file }] });
  const unsure = await aSource({
    passages: [
      { ...REFUNDS, ...file },
      { ...REFUNDS, ...file, path: ['Refunds', 'Abroad'], text: 'A refund abroad takes 30 working days.' },
    ],
  });

  const given = await answered(sure);
  const { passages } = await unsure.whyOf((await answered(unsure)).conversationId);
  const [{ score }] = passages as [{ score: number }];
  await stack.service.assistants.updateAssistant(unsure.assistantId, { threshold: Math.min(1, score / 0.6) });
  const offered = await eventually(async () => {
    const { body } = await unsure.ask();
    expect(JSON.stringify(body.suggestedActions)).toContain('Orders: Refunds');
    return body;
  });

  expect(given).toMatchObject({ reply: expect.stringContaining('14'), sources: [{ title: 'Refunds', url: null }] });
  expect(given.suggestedActions).toBeUndefined();
  expect(offered.suggestedActions).toContainEqual({
    label: 'Orders: Refunds',
    type: 'reply',
    payload: 'Orders: Refunds',
  });
});

test('a removed source stops answering with the next turn, before its passages are deleted', async () => {
  const source = await aSource();
  await answered(source);

  await setSource(stack, source, { removedAt: new Date() });
  const after = await Promise.all([1, 2, 3, 4].map(() => source.ask()));

  expect(after.map(({ body }) => body.sources)).toEqual([[], [], [], []]);
  expect(JSON.stringify(after)).not.toContain('working days');
});

test('a new version is seen whole: no turn has a part of it, while passages are replaced and deleted', async () => {
  const versionId = randomUUID();
  const version = (name: string, since: number): Passages =>
    ['Monday', 'Tuesday', 'Wednesday'].map((day) => ({
      _id: `${versionId}:${name}:${day}`,
      title: 'Hours',
      path: ['Hours', day],
      text: `On ${day} the shop of version ${name} is open from nine to five.`,
      since,
    }));
  const source = await aSource({ passages: version('one', 1) });
  const passages = stack.service.mongo.collection<StoredPassage>('passages');
  const seenIn = async (): Promise<string[]> => {
    const { body } = await source.ask('When is the shop open on Tuesday?');
    const { passages: found = [] } = await source.whyOf(body.conversationId);
    return (found as { passageId: string }[]).map(({ passageId }) => passageId.split(':')[1] ?? '');
  };
  await eventually(async () => expect(await seenIn()).toEqual(['one', 'one', 'one']));

  await addPassages(stack, source, version('two', 2));
  await passages.updateMany({ sourceId: source.sourceId, since: 1 }, { $set: { until: 2 } });
  expect(await seenIn()).toEqual(['one', 'one', 'one']);
  await source.publish(2, 3);
  await passages.deleteMany({ sourceId: source.sourceId, until: 2 });
  const seen = await Promise.all(Array.from({ length: 6 }, seenIn));

  // The old version is deleted, so from now on only the new one answers, in both workers.
  expect(seen).toEqual(seen.map(() => ['two', 'two', 'two']));
});

test('a passage that is added later is found, and another assistant sees nothing of it', async () => {
  const source = await aSource({ passages: OTHERS });
  const neighbour = await aSource({ passages: OTHERS });
  await answered(source, 'Do you wrap gifts?');

  await addPassages(stack, source, [REFUNDS]);
  await source.publish(1, 3);

  await eventually(async () => expect((await source.ask()).body.sources).toEqual([SOURCE]));
  expect(JSON.stringify((await neighbour.ask()).body)).not.toContain('working days');
});

test('passages come in full with the token vectors of one kind, and not those of a removed source', async () => {
  const [kept, removed] = [await aSource(), await aSource()];
  const { passages } = stack.service;
  const idsOf = async ({ assistantId }: { assistantId: string }): Promise<string[]> => {
    const ids: string[] = [];
    for await (const listed of passages.listVisible({ assistantId }))
      ids.push(...listed.map(({ passageId }) => passageId));
    return ids;
  };
  const [own, others] = [await idsOf(kept), await idsOf(removed)];
  await setSource(stack, removed, { removedAt: new Date() });

  const read = await passages.readPassages([...own, ...others, 'gone'], {});
  const [tokens, ofOtherKind] = [await passages.readTokens(own, 'test'), await passages.readTokens(own, 'other')];

  expect([own.length, others.length, await idsOf(removed)]).toEqual([3, 3, []]);
  expect(read.passages.map(({ passageId }) => passageId)).toEqual(own);
  expect(read.passages).toContainEqual(expect.objectContaining({ ...REFUNDS, sourceId: kept.sourceId }));
  expect(read.gone).toBe(1);
  expect([[...tokens.values()].map(({ length }) => length), ofOtherKind.size]).toEqual([[96, 96, 96], 0]);
});

/** What a reply worker holds of passages, with a clock of its own. */
const aMemory = () => {
  const clock = { time: 0 };
  const hold = (maxBytes?: number, background = stack.service.passages) =>
    createPassages({
      store: stack.service.passages,
      background,
      embedder: NO_MODEL,
      reportLeftOut: stack.service.assistants.reportPassagesLeftOut,
      logger: createLogger({ name: 'test', level: 'silent' }),
      now: () => clock.time,
      memory: createSharedMemory({ now: () => clock.time, ...(maxBytes !== undefined && { maxBytes }) }),
    });
  return { clock, hold };
};
const anOwner = async (options?: Options): Promise<Assistant> =>
  stack.service.assistants.getAssistant((await aSource(options)).assistantId);

test('when the memory is full, the index that was not used for the longest time leaves, and one in use is not read again at once', async () => {
  const [first, second, third] = [await anOwner(), await anOwner(), await anOwner()];
  const { clock, hold } = aMemory();
  const { bytes } = (await hold().of(first)!.open())!.search.index;
  const held = hold(2.5 * bytes);
  const has = (one: Assistant) => !held.isLongWait(one);

  await held.of(first)!.open();
  clock.time += 120_000;
  await held.of(second)!.open();
  await held.of(third)!.open();
  expect([has(first), has(second), has(third)]).toEqual([false, true, true]);
  await held.of(first)!.open();

  // The second one was in use a moment ago: it answers without passages for a while, and waits for nothing.
  expect([has(first), held.of(second)!.current(), has(second), has(third)]).toEqual([true, null, true, true]);
  expect(await held.of(second)!.open()).toBeNull();
});

test('two large indexes in use do not push out a small one', async () => {
  const many = Array.from({ length: 100 }, (_, nth) => ({ ...REFUNDS, text: `Rule ${nth} of refunds.` }));
  const [small, one, other] = [await anOwner(), await anOwner({ passages: many }), await anOwner({ passages: many })];
  const { clock, hold } = aMemory();
  const { bytes } = (await hold().of(one)!.open())!.search.index;
  const held = hold(2.01 * bytes);

  await held.of(small)!.open();
  clock.time += 1_000;
  await held.of(one)!.open();
  await held.of(other)!.open();

  expect(await held.of(small)!.open()).not.toBeNull();
  expect([held.of(one)!.current(), held.of(other)!.current()].filter((index) => index !== null)).toHaveLength(1);
});

test('a smaller index does not wait while a large one is read', async () => {
  const [large, middle, small] = [await anOwner(), await anOwner(), await anOwner()];
  const { hold } = aMemory();
  const never = new Promise<never>(() => undefined);
  const { passages } = stack.service;
  const readStored: typeof passages.readStored = async function* (scope, kind) {
    if (scope.assistantId === large.assistantId) await never;
    yield* passages.readStored(scope, kind);
  };
  const held = hold(undefined, { ...passages, readStored });

  void held.of({ ...large, passages: { version: 1, count: 50_000 } })!.open();

  expect(await held.of(small)!.open()).not.toBeNull();
  expect(await held.of({ ...middle, passages: { version: 1, count: 5_000 } })!.open()).not.toBeNull();
});

test('while passages of an index are gone and the next index is read, further turns take no places of quick ones', async () => {
  const owner = await anOwner();
  const { hold } = aMemory();
  const { passages } = stack.service;
  const go = Promise.withResolvers<void>();
  let isHeld = false;
  const listVisible: typeof passages.listVisible = async function* (scope) {
    if (isHeld) await go.promise;
    yield* passages.listVisible(scope);
  };
  const held = hold(undefined, { ...passages, listVisible });
  const before = (await held.of(owner)!.open())!;
  isHeld = true;

  const next = held.of(owner)!.open(before);
  const meanwhile = held.isLongWait(owner);
  go.resolve();

  expect(await next).not.toBeNull();
  expect([meanwhile, held.isLongWait(owner)]).toEqual([true, false]);
});

test('an owner is told how many passages have no room in the memory of a worker, until there is room', async () => {
  const source = await aSource();
  const { assistants, passages } = stack.service;
  const paths: Partial<StoredSource> = {
    kind: 'file',
    name: 'a.md',
    url: null,
    include: [],
    exclude: [],
    schedule: 'off',
  };
  const read: Partial<StoredSource> = { state: 'ready', error: null, counts: NO_COUNTS, changed: NO_CHANGES, run: 1 };
  await setSource(stack, source, { ...paths, ...read, startedAt: null, endedAt: null, nextAt: null });
  const open = async (maxBytes?: number): Promise<number | undefined> => {
    const owner = await assistants.getAssistant(source.assistantId);
    const held = createPassages({
      store: passages,
      background: passages,
      embedder: NO_MODEL,
      reportLeftOut: assistants.reportPassagesLeftOut,
      logger: createLogger({ name: 'test', level: 'silent' }),
      ...(maxBytes !== undefined && { maxBytes }),
    });
    await held.of(owner)?.open();
    const operator = await anOperator(stack);
    return (await operator.get<{ leftOut: number }>(`/assistants/${source.assistantId}/sources`)).body.leftOut;
  };

  expect(await open()).toBe(0);
  expect(await open(1)).toBe(2);
  expect(await open()).toBe(0);
});

const aProvider = async (settings: { strict?: boolean } = {}) => {
  const provider = await openProvider();
  onTestFinished(provider.close);
  const source = await aSource();
  const { assistants } = stack.service;
  await assistants.updateAssistant(source.assistantId, settings);
  await assistants.setEngine(source.assistantId, {
    kind: 'openai',
    baseUrl: provider.baseUrl,
    model: 'm',
    apiKey: 'k',
  });
  await eventually(async () => {
    await source.ask();
    expect(JSON.stringify(provider.asked.at(-1)?.body.messages)).toContain('14 working days');
  });
  return { ...source, provider };
};

test('a provider gets numbered passages, and the numbers that it cites become sources that visitors do not see', async () => {
  const { provider, ask, whyOf, sourceId } = await aProvider();
  const prompt = provider.asked.at(-1)?.body.messages[0]?.content ?? '';
  const number = /\[(\d)\] Refunds/.exec(prompt)?.[1];
  provider.behave(replyWith('A refund takes 14', ` working days [${number}`, '].', ' Anything else?'));

  const { body } = await ask();

  expect(body).toMatchObject({
    reply: 'A refund takes 14 working days. Anything else?',
    suggestedActions: [{ label: 'Refunds', type: 'link', payload: SOURCE.url }],
    sources: [SOURCE],
  });
  const why = await whyOf(body.conversationId);
  expect(why).toMatchObject({ engine: 'openai', cited: [{ sourceId }] });
  expect(why.flagged).toBeUndefined();
});

const INVENTED: [name: string, reply: string, because: string][] = [
  ['a number', 'It takes 15 working days [1].', 'number'],
  ['no source', 'It takes some working days.', 'uncited'],
  ['a source that was not given', 'It takes 14 working days [9].', 'unknown source'],
  ['a name', 'Ask our friends at Paypal about it [1].', 'name'],
  ['an address', 'Write to help@shop.example about it [1].', 'address'],
];

test.each(sized({ everyday: INVENTED.slice(0, 2), long: INVENTED }))(
  'a reply with %s is flagged, and a strict assistant gives the quote in its place',
  async (_, invented, because) => {
    const lenient = await aProvider();
    const strict = await aProvider({ strict: true });
    for (const { provider } of [lenient, strict]) provider.behave(replyWith('Good question. ', invented));

    const [flagged, replaced] = [(await lenient.ask()).body, (await strict.ask()).body];

    expect(flagged.reply).toBe(`Good question. ${invented.replace(/ \[\d\]/, '')}`);
    const flags = [{ sentence: because === 'uncited' ? 0 : 2, because }];
    expect((await lenient.whyOf(flagged.conversationId)).flagged).toEqual(flags);
    expect(replaced).toMatchObject({ reply: expect.stringContaining('14 working days'), sources: [SOURCE] });
    expect(await strict.whyOf(replaced.conversationId)).toMatchObject({
      flagged: flags,
      strict: true,
    });
  },
);

test('a strict assistant gives nothing invented either where the provider says that it is not sure', async () => {
  const { provider, ask, whyOf } = await aProvider({ strict: true });

  provider.behave(replyWith('I am not sure, perhaps 99 €. Write to help@shop.example. [unsure]'));
  const invented = (await ask()).body;
  provider.behave(replyWith('I am not sure. Shall a person answer? [unsure]'));
  const honest = (await ask()).body;

  expect(invented.reply).not.toMatch(/99|shop\.example/);
  expect((await whyOf(invented.conversationId)).flagged).toEqual([
    { sentence: 1, because: 'number' },
    { sentence: 2, because: 'address' },
  ]);
  expect(honest.reply).toBe('I am not sure. Shall a person answer?');
});
