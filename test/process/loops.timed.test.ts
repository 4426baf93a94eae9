import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { conversationAfter } from '../kit/fill.ts';
import { anAssistant, aTurn, request, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { MESSAGE } from '../support/hostile-texts.ts';
import type { Step } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { type Kind, type RealProcess, startRealProcess } from '../kit/processes.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

// Each kind of process is real here, so that its loop does nothing but its own work. Its longest step is named.

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const folder = mkdtempSync(join(tmpdir(), 'loops-'));
const KINDS: Kind[] = ['api', 'reply', 'delivery', 'sources'];
const LONGEST_MS = 25;
/** A pause of the collector depends on the heap, and no step of ours can be shorter for it. */
const LONGEST_COLLECTION_MS = 50;
const TEXTS = ['покажисво', '😀', 'ສະບາຍດີ', 'where is my order? ', '"\\\n', 'a'];

type Watched = RealProcess & { file: string };
let processes: Watched[] = [];
let assistant: TestAssistant;
let bearer: string;

const start = async (kind: Kind): Promise<Watched> => {
  const file = join(folder, kind);
  const nodeArgs = ['--import', './test/support/watch-loop.ts'];
  return { ...(await startRealProcess(kind, { ...stack.env, WATCH_LOOP: file }, { nodeArgs })), file };
};

beforeAll(async () => {
  processes = await Promise.all(KINDS.map(start));
  assistant = await anAssistant(stack, { knowledge: [] });
  const rights = { scope: 'manage' as const, assistantIds: [assistant.assistantId], createdBy: null };
  // The first message loads and compiles what later ones use.
  for (const message of TEXTS) await ask(processes[0]?.url ?? '', message);
  bearer = (await stack.service.tokens.createToken({ name: 'a program', ...rights })).secret;
});

afterAll(async () => {
  await Promise.all(processes.map(({ kill }) => kill()));
  rmSync(folder, { recursive: true });
});

/** The longest step of each process while `work` runs. */
const watchAll = async (work: () => Promise<void>): Promise<Record<string, Step>> => {
  const signal = () => processes.forEach(({ child }) => child.kill('SIGUSR2'));
  signal();
  await work();
  signal();
  const stepOf = ({ kind, file }: Watched) =>
    eventually(() => [kind, JSON.parse(readFileSync(file, 'utf8'))] as [string, Step]);
  const steps = await Promise.all(processes.map(stepOf));
  for (const { file } of processes) rmSync(file);
  return Object.fromEntries(steps);
};

const ask = (url: string, message: string) =>
  request(`${url}/api/v1/chat`, { bearer: assistant.apiKey, body: aTurn({ session_id: randomUUID(), message }) });

const times = (count: number, work: (nth: number) => Promise<unknown>): Promise<unknown>[] =>
  Array.from({ length: count }, (_, nth) => work(nth));

type Work = [what: string, work: (url: string) => Promise<void>];
const SHORT: Work[] = [
  [
    'messages of the longest length',
    async (url) => {
      await Promise.all(
        times(30, async (nth) => {
          const text = TEXTS[nth % TEXTS.length] ?? '';
          const message = text
            .repeat(MESSAGE)
            .slice(0, MESSAGE)
            .toWellFormed()
            .replace(/\uFFFD$/, 'x');
          const { status } = await ask(url, message);
          expect(status).toBe(200);
        }),
      );
    },
  ],
  [
    'a history of the longest messages, its export and its search words',
    async (url) => {
      const { mongo } = stack.service;
      const { assistantId } = assistant;
      const { sessionKey } = await stack.service.assistants.getAssistant(assistantId);
      const stored = conversationAfter({ assistantId, sessionKey, sessionPrefix: randomUUID() }, 0, 250);
      for (const { entries } of stored.pages)
        for (const { messages } of entries) for (const message of messages) message.content = '😀'.repeat(8_000);
      const { conversationId } = stored.conversation;
      await mongo.collection('messages').insertMany(stored.pages as never);
      stored.conversation.updatedAt = new Date();
      await mongo.collection('conversations').insertOne(stored.conversation as never);
      const history = `${url}/api/v1/conversations/${conversationId}?limit=1000`;
      const exported = `${url}/operator/v1/conversations/${conversationId}/export`;
      const read = async (address: string, key: string) => {
        const answer = await fetch(address, { headers: { Authorization: `Bearer ${key}` } });
        expect(answer.status).toBe(200);
        expect((await answer.arrayBuffer()).byteLength).toBeGreaterThan(500_000);
      };
      await Promise.all([...times(3, () => read(history, assistant.apiKey)), read(exported, bearer)]);
      const found = `${url}/operator/v1/inbox?search=${encodeURIComponent(stored.conversation.sessionId)}`;
      await eventually(async () => {
        expect((await request<{ conversations: object[] }>(found, { bearer })).body.conversations).toHaveLength(1);
      });
    },
  ],
];

/** Each takes many seconds of work. */
const LONG: Work[] = [
  [
    'an import of the most entries, their list, a search and a question',
    async (url) => {
      const text = JSON.stringify(
        Array.from({ length: 9_000 }, (_, nth) => ({
          question: `Where is thing ${nth} kept?`,
          variants: [`How do I find the ${nth}th thing?`, `thing ${nth} ${randomUUID()}`],
          answer: `Thing ${nth} is in room ${nth}. ${'It is open all day. '.repeat(4)}`,
        })),
      );
      const path = `${url}/operator/v1/assistants/${assistant.assistantId}/knowledge`;
      const imported = await request(`${path}-import`, { method: 'POST', bearer, body: { format: 'json', text } });
      expect(imported).toMatchObject({ status: 200, body: { imported: 9_000 } });
      for (const query of ['', '?search=room+77', '-conflicts']) {
        expect((await request(`${path}${query}`, { bearer })).status).toBe(200);
      }
      await eventually(async () => {
        const { body } = await ask(url, 'Where is thing 77 kept?');
        expect(body.reply).toContain('room 77');
      });
    },
  ],
  [
    'the longest file as a source, and questions about it',
    async (url) => {
      const path = `${url}/operator/v1/assistants/${assistant.assistantId}`;
      const part = (nth: number) => `# Parcel ${nth}\n\n${`Parcel ${nth} is kept behind door ${nth}. `.repeat(12)}\n`;
      const text = Array.from({ length: 9_500 }, (_, nth) => part(nth)).join('\n');
      const uploaded = await fetch(`${path}/source-files?name=parcels.md`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${bearer}` },
        body: text,
      });
      const { sourceId } = (await uploaded.json()) as { sourceId: string };
      expect(uploaded.status).toBe(201);
      await eventually(async () => {
        const { body } = await request<{ state: string }>(`${path}/sources/${sourceId}`, { bearer });
        expect(body.state).toBe('ready');
      });
      await eventually(async () => {
        const { body } = await ask(url, 'Behind which door is parcel 77?');
        expect(body.reply).toContain('door 77');
      });
    },
  ],
];

test.each([...SHORT, ...sized({ everyday: [], long: LONG })])('%s: no process holds its loop', async (_what, work) => {
  const api = processes.find(({ kind }) => kind === 'api');
  const steps = await watchAll(() => work(api?.url ?? ''));
  for (const [kind, { ms, name }] of Object.entries(steps))
    expect(ms, `${kind}: ${name}`).toBeLessThan(
      atPace(name.startsWith('(garbage collector)') ? LONGEST_COLLECTION_MS : LONGEST_MS),
    );
});
