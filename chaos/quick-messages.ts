import { setTimeout as sleep } from 'node:timers/promises';
import { requireNode } from '../src/platform/process/lifecycle.ts';
import type { Service } from '../src/service.ts';
import { openCountingReceiver } from '../test/kit/counting-receiver.ts';
import { withOwnService } from '../test/kit/own-service.ts';
import { type Kind, killAll, type RealProcess, startRealProcess } from '../test/kit/processes.ts';
import { createRandom, type Random } from '../test/kit/random.ts';
import { readArguments } from './support/arguments.ts';
import { printVerdicts, row, type Verdict } from './support/table.ts';

/**
 * Visitors write each question in three messages, while API processes and reply workers are killed. Every message must be
 * stored and announced once, in order, and each group must get one reply, which all of its callers see.
 *
 *   npm run chaos -- quick-messages                          200 sessions, 20 kills
 *   npm run chaos -- quick-messages --sessions 50 --kills 5 --seed 7
 */
requireNode();
const QUIET_S = 2;
const KINDS: Kind[] = ['api', 'api', 'reply', 'reply'];
const BETWEEN_KILLS_MS = 2_500;
const THINKS_MS = 6_000;
const AGAIN_AFTER_MS = 100;
const LOOKS_EVERY_MS = 700;
const ENDED_WITHIN_MS = 60_000;
const UNLIMITED = 1_000_000;
/** A machine that is too slow to send most groups in time proves nothing. */
const LEAST_SHARE_IN_TIME = 0.8;

const options = readArguments({ sessions: [200, 1, 1_000], kills: [20, 0, 1_000], seed: [1, 0, 999_999] });

type Turn = { turnId: string; status: string; messageId?: string; mergedInto?: string };
type Message = { messageId: string; turnId: string; role: string; content: string; mergedInto?: string };
/** One question in three messages. `inTime`: all were accepted while the first one waited. */
type Group = { turnIds: string[]; inTime: boolean; seen: Turn[] };
type Session = { name: string; conversationId: string; sent: string[]; groups: Group[] };

const openCaller = (apis: () => RealProcess[], apiKey: string, random: Random) => {
  /** Calls any API process until one answers. */
  const call = async (path: string, body?: object, key = ''): Promise<unknown> => {
    for (;;) {
      const all = apis();
      const { url } = all[random.below(all.length)] as RealProcess;
      const headers = {
        Authorization: `Bearer ${apiKey}`,
        ...(body && { 'Content-Type': 'application/json', Prefer: 'respond-async', 'Idempotency-Key': key }),
      };
      const sent = fetch(`${url}${path}`, body ? { method: 'POST', headers, body: JSON.stringify(body) } : { headers });
      const answer = await sent.then((one) => (one.ok ? one.json() : null)).catch(() => null);
      if (answer !== null) return answer;
      await sleep(AGAIN_AFTER_MS);
    }
  };
  return call;
};

const visit = async (
  session: Session,
  call: ReturnType<typeof openCaller>,
  { random, isOver }: { random: Random; isOver: () => boolean },
): Promise<void> => {
  const { name, sent, groups } = session;
  const turn = async (turnId: string): Promise<Turn> => (await call(`/api/v1/turns/${turnId}`)) as Turn;
  await sleep(random.next() * THINKS_MS);
  do {
    const startedAt = performance.now();
    const group: Group = { turnIds: [], inTime: true, seen: [] };
    for (const text of ['hi', 'When are you open?', 'on Sundays?']) {
      const message = `${sent.push('')} ${name} ${text}`;
      sent[sent.length - 1] = message;
      const said = { session_id: name, message };
      const answer = await call('/api/v1/chat', said, message.replaceAll(' ', '-'));
      const body = answer as Turn & { conversationId: string };
      session.conversationId = body.conversationId;
      group.turnIds.push(body.turnId);
      group.inTime &&= performance.now() - startedAt < QUIET_S * 1000;
    }
    const last = group.turnIds.at(-1) ?? '';
    while (['accepted', 'answering'].includes((await turn(last)).status)) await sleep(LOOKS_EVERY_MS);
    group.seen = await Promise.all(group.turnIds.map(turn));
    groups.push(group);
    await sleep(random.next() * THINKS_MS);
  } while (!isOver());
};

/** What is wrong with what a session got and what is stored of it. */
const faultsOf = ({ name, sent, groups }: Session, messages: Message[]): string[] => {
  const visitor = messages.filter(({ role }) => role === 'user');
  const replyTo = new Map(
    messages.filter(({ role }) => role === 'assistant').map((one) => [one.turnId, one.messageId]),
  );
  const byTurn = new Map(visitor.map((one) => [one.turnId, one]));
  const turnOf = new Map(visitor.map(({ messageId, turnId }) => [messageId, turnId]));
  const replyOf = (one: Message | undefined) => one && replyTo.get(turnOf.get(one.mergedInto ?? one.messageId) ?? '');
  const wrong: string[] = [];
  if (visitor.map(({ content }) => content).join() !== sent.join())
    wrong.push('other messages are stored than were sent');
  for (const { turnIds, inTime, seen } of groups) {
    const replies = turnIds.map((turnId) => replyOf(byTurn.get(turnId)));
    if (replies.includes(undefined)) wrong.push(`a message of ${turnIds.join()} has no reply`);
    if (seen.some(({ messageId }, nth) => messageId !== replies[nth])) wrong.push('a caller saw another reply');
    if (seen.some(({ mergedInto, turnId }) => mergedInto !== byTurn.get(turnId)?.mergedInto))
      wrong.push('a caller was told another message');
    if (inTime && new Set(replies).size !== 1) wrong.push(`a group of ${turnIds.join()} has several replies`);
  }
  return wrong.map((what) => `${name}: ${what}`);
};

const run = async (service: Service, base: Record<string, string>): Promise<boolean> => {
  const { sessions, kills, seed } = options;
  const env = { ...base, SEMANTIC: 'off' };
  const random = createRandom(seed);
  const receiver = await openCountingReceiver(createRandom(seed + 1), 10);
  // Without knowledge it never becomes unsure, so it hands no conversation over.
  const { assistantId } = await service.assistants.createAssistant({
    name: 'Chaos',
    quickMessageSeconds: QUIET_S,
    sessionLimitPerMinute: UNLIMITED,
  });
  await service.endpoints.addEndpoint(assistantId, { url: receiver.url, events: ['message.received'] });
  const { apiKey } = await service.assistants.createApiKey({ assistantId, name: 'chaos', limitPerMinute: UNLIMITED });
  const crew = await Promise.all(KINDS.map((kind) => startRealProcess(kind, env)));
  await startRealProcess('delivery', env);
  const call = openCaller(() => crew.filter(({ kind }) => kind === 'api'), apiKey, random);
  let over = false;
  const all = Array.from({ length: sessions }, (_, nth): Session => {
    return { name: `s${nth}`, conversationId: '', sent: [], groups: [] };
  });
  try {
    const visiting = Promise.all(all.map((one) => visit(one, call, { random, isOver: () => over })));
    for (let done = 0; done < kills; done += 1) {
      await sleep(BETWEEN_KILLS_MS * (0.5 + random.next()));
      const nth = random.below(crew.length);
      const { kind, port, kill } = crew[nth] as RealProcess;
      await kill();
      crew[nth] = await startRealProcess(kind, env, { port });
    }
    over = true;
    await visiting;
    const until = performance.now() + ENDED_WITHIN_MS;
    const outboxes = service.mongo.collection('conversations');
    while ((await outboxes.countDocuments({ 'outbox.0': { $exists: true } })) > 0 && performance.now() < until)
      await sleep(LOOKS_EVERY_MS);
    const faults: string[] = [];
    for (const one of all) {
      const history = await call(`/api/v1/conversations/${one.conversationId}`);
      const { messages } = history as { messages: Message[] };
      faults.push(...faultsOf(one, messages));
    }
    const groups = all.flatMap((one) => one.groups);
    const inTime = groups.filter((one) => one.inTime).length;
    const sent = all.reduce((sum, one) => sum + one.sent.length, 0);
    const once = [...receiver.times.values()].filter((times) => times === 1).length;
    for (const [what, value] of Object.entries({
      sessions,
      kills,
      messages: sent,
      groups: groups.length,
      'groups in time': inTime,
    }))
      console.log(row(what, value));
    for (const fault of faults.slice(0, 10)) console.log(`  ${fault}`);
    const verdicts: Verdict[] = [
      {
        rule: 'each message is stored once in order, each group has one reply',
        found: faults.length,
        kept: faults.length === 0,
      },
      { rule: 'each message is announced once', found: once, kept: once === sent && receiver.times.size === sent },
      { rule: 'messages are announced in order', found: receiver.inversions, kept: receiver.inversions === 0 },
      { rule: 'most groups were sent in time', found: inTime, kept: inTime >= groups.length * LEAST_SHARE_IN_TIME },
    ];
    return printVerdicts(verdicts);
  } finally {
    over = true;
    await killAll();
    await receiver.close();
  }
};

process.exitCode = (await withOwnService(run)) ? 0 : 1;
