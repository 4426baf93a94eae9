import { randomUUID } from 'node:crypto';
import { openOperators } from '../../src/operators/store.ts';
import { conversationModels, type StoredConversation } from '../../src/conversations/conversation.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { ascending, quantile } from '../../test/kit/quantiles.ts';
import type { Part } from '../support/figures.ts';
import { fill } from '../../test/kit/fill.ts';
import { signIn } from '../../test/kit/operator.ts';
import { openParley } from '../../test/kit/parley.ts';

const CONVERSATIONS = 100_000;
/** The inbox merges the conversations of all assistants, also of those without any. */
const ASSISTANTS = 120;
const LOOKS = 30;
const RARE = 30;
const DAY_MS = 86_400_000;
const EACH_MS = 1_000;

/**
 * What differs between the conversations. Every rare value occurs in 30 of the oldest conversations only, so that a
 * list in order of change must look at all of them. Every tenth conversation has the common values.
 */
const variationOf = (nth: number, total: number, ids: { me: string; other: string }): Partial<StoredConversation> => {
  const at = new Date(Date.now() - DAY_MS - nth * EACH_MS);
  const until = new Date(Date.now() + DAY_MS);
  const rank = Math.floor((total - 1 - nth) / RARE);
  const rare: Partial<StoredConversation>[] = [
    { language: 'is' },
    { channel: 'web' },
    { status: 'escalated', escalatedAt: at, escalationReason: 'manual', waitingSince: at },
    { tags: [{ tag: 'rare', color: null }] },
    { assigneeId: ids.me },
    { snoozedUntil: until, snoozedAt: new Date() },
    { attributes: [{ name: 'plan', value: 'rare' }] },
  ];
  const common: Partial<StoredConversation> = {
    status: 'resolved',
    tags: [{ tag: 'common', color: '#1e90ff' }],
    assigneeId: ids.other,
    attributes: [
      { name: 'plan', value: 'pro' },
      { name: 'age', value: nth % 90 },
    ],
  };
  const third = [1, 2, 3].includes(nth % 10) && { tags: [{ tag: 'third', color: null }] };
  const german = [4, 5, 6].includes(nth % 10) && { language: 'de' };
  return { updatedAt: at, createdAt: at, ...(nth % 10 === 0 && common), ...third, ...german, ...rare[rank] };
};

const filters = ({ other, assistantId }: { other: string; assistantId: string }) => ({
  all: '',
  'one assistant': `assistantId=${assistantId}`,
  'not snoozed': 'snoozed=false',
  'status=open, not snoozed, nobody': 'status=open&snoozed=false&assignee=none',
  'status=resolved': 'status=resolved',
  'status=escalated, 30': 'status=escalated',
  'language=en': 'language=en',
  'language=is, 30': 'language=is',
  'language, none': 'language=fi',
  'channel=web, 30': 'channel=web',
  'tag, every tenth': 'tag=common',
  'tag, 30': 'tag=rare',
  'tag, none': 'tag=nothing',
  'assignee=me, 30': 'assignee=me',
  'assignee=none': 'assignee=none',
  'assignee, every tenth': `assignee=${other}`,
  'snoozed, 30': 'snoozed=true',
  'attribute, every tenth': 'attribute=plan:pro',
  'attribute, 30': 'attribute=plan:rare',
  'attribute, one in 900': 'attribute=age:10',
  'attribute, none': 'attribute=plan:none',
  'tag and language, none': 'tag=common&language=is',
  'assignee and status, none': `assignee=${other}&status=escalated`,
  'a third by tag and a third by language, none': 'tag=third&language=de',
  'everything at once': 'status=resolved&language=en&channel=api&tag=common&snoozed=false',
});

/** What finds work. Deliveries and events that are none are looked for in all places. */
const IDS: Record<string, (conversation: StoredConversation) => string> = {
  'work by conversation': ({ conversationId }) => conversationId,
  'work by turn': ({ recent }) => recent[0]?.turnId ?? '',
  'work by session': ({ sessionId }) => sessionId,
  'work by the beginning of an id': ({ conversationId }) => conversationId.slice(0, 13),
  'work by event, none': () => randomUUID(),
  'work by delivery, none': () => `${randomUUID()}:${randomUUID()}`,
};

/** Measures the first page of the inbox and “Find work” over HTTP, with 100,000 conversations of one assistant. */
export const inbox: Part = async ({ scale }, say) => {
  const parley = await openParley('inbox');
  const owner = await parley.addAssistant();
  const api = await parley.start('API');
  for (let more = 1; more < ASSISTANTS; more += 1) await parley.service.assistants.createAssistant({ name: 'Other' });
  const { operatorId: me, get } = await signIn(parley, api);
  const { operators } = await openOperators(parley.service.mongo);
  const other = (await operators.invite({ email: 'other@example.com', role: 'agent' })).operator.operatorId;
  const conversations = Math.round(CONVERSATIONS * scale);
  say(`inbox: storing ${conversations} conversations`);
  const vary = (nth: number) => variationOf(nth, conversations, { me, other });
  await fill(parley, owner, { conversations, turnsEach: 3, deliveries: 0, vary });

  /** Looks for each of these by name, many times, and gives the slowest and the median of each. */
  const measure = async (looks: Record<string, (nth: number) => Promise<unknown[]>>) => {
    const slowest: Record<string, number> = {};
    const p50: Record<string, number> = {};
    for (const [name, look] of Object.entries(looks)) {
      const times: number[] = [];
      let found = 0;
      for (let nth = 0; nth < LOOKS; nth += 1) {
        const startedAt = performance.now();
        found = (await look(nth)).length;
        times.push(performance.now() - startedAt);
      }
      const sorted = ascending(times);
      slowest[name] = sorted.at(-1) ?? Number.NaN;
      p50[name] = quantile(sorted, 0.5);
      say(`inbox: ${name}: ${found} found, p50 ${p50[name].toFixed(1)} ms, slowest ${slowest[name].toFixed(1)} ms`);
    }
    return { slowest, p50 };
  };
  const pages = Object.entries(filters({ other, assistantId: owner.assistantId })).map(([name, query]) => {
    const look = async () => (await get<{ conversations: unknown[] }>(`/inbox?${query}`)).conversations;
    return [name, look] as const;
  });
  const { slowest, p50 } = await measure(Object.fromEntries(pages));
  const stored = collectionOf<StoredConversation>(conversationModels(parley.service.mongo).conversations);
  const some = await stored.aggregate<StoredConversation>([{ $sample: { size: LOOKS } }]).toArray();
  const searches = Object.entries(IDS).map(([name, idOf]) => {
    const look = async (nth: number) => {
      const id = idOf(some[nth % some.length] as StoredConversation);
      return (await get<{ work: unknown[] }>(`/work?search=${encodeURIComponent(id)}`)).work;
    };
    return [name, look] as const;
  });
  const work = await measure(Object.fromEntries(searches));
  const of = `${conversations.toLocaleString('en-US')} conversations over HTTP`;
  const what = `the first page of ${of}, whatever the filter`;
  const figures = [
    { id: 'inbox.slowest', what: `${what}: the slowest`, unit: 'ms', value: Math.max(...Object.values(slowest)) },
    {
      id: 'inbox.slowest-p50',
      what: `${what}: the slowest median`,
      unit: 'ms',
      value: Math.max(...Object.values(p50)),
    },
    {
      id: 'inbox.work-slowest',
      what: `work found among ${of}, whatever the id: the slowest`,
      unit: 'ms',
      value: Math.max(...Object.values(work.slowest)),
    },
  ];
  return { figures, detail: { slowest, p50, work } };
};
