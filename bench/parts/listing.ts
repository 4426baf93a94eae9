import { incrementId, type StoredFigures } from '../../src/insights/figures.ts';
import { HOUR_MS } from '../../src/platform/process/clock.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import type { Part } from '../support/figures.ts';
import { fill, RARE_ENDPOINT } from '../../test/kit/fill.ts';
import { signIn } from '../../test/kit/operator.ts';
import { openParley, type Parley } from '../../test/kit/parley.ts';

const DELIVERIES = 1_000_000;
const LOOKS = 30;
const ROUGHLY_HALFWAY_MS = 86_400_000 + (DELIVERIES / 2) * 50;

/**
 * The filters of the list of deliveries. The rare values occur only in the oldest deliveries, so that a query must read
 * to the end.
 */
const filters = (scale: number): Record<string, string> => {
  const halfway = new Date(Date.now() - ROUGHLY_HALFWAY_MS * scale).toISOString();
  return {
    all: '',
    'deep in the past': `to=${halfway}`,
    'outcome=delivered': 'outcome=delivered',
    'outcome=rejected': 'outcome=rejected',
    'outcome=unknown': 'outcome=unknown',
    'outcome=queued, none': 'outcome=queued',
    'outcome=sending, none': 'outcome=sending',
    'outcome=not_sent, none': 'outcome=not_sent',
    'event=message.received': 'event=message.received',
    'event=webhook.test, 30': 'event=webhook.test',
    'event=tag.added, none': 'event=tag.added',
    'endpoint, 30': `endpointId=${RARE_ENDPOINT}`,
    'endpoint and failures, none': `endpointId=${RARE_ENDPOINT}&outcome=rejected`,
    'status=500': 'status=500',
    'status=404, 30': 'status=404',
    'status=503, none': 'status=503',
  };
};

/** The slowest look at the overview, with figures of every hour of 30 days. */
const timeOverview = async ({ service }: Parley, assistantId: string, look: () => Promise<void>): Promise<number> => {
  const hours = Array.from({ length: 30 * 24 }, (_, nth): StoredFigures => {
    const hour = new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS - nth * HOUR_MS);
    const own = { assistantId, hour };
    const buckets = Object.fromEntries(Array.from({ length: 30 }, (__, bucket) => [String(bucket), bucket]));
    return { _id: incrementId(own), ...own, turns: 500, answered: 400, notAnswered: 100, buckets };
  });
  await collectionOf(service.insights.figures.model).insertMany(hours);
  let slowest = 0;
  for (let nth = 0; nth < LOOKS; nth += 1) {
    const startedAt = performance.now();
    await look();
    slowest = Math.max(slowest, performance.now() - startedAt);
  }
  return slowest;
};

/** Measures the operators' list of deliveries over HTTP, with one million deliveries of one assistant. */
export const listing: Part = async ({ scale }, say) => {
  const parley = await openParley('listing');
  const owner = await parley.addAssistant();
  const deliveries = Math.round(DELIVERIES * scale);
  say(`listing: storing ${deliveries} deliveries`);
  await fill(parley, owner, { conversations: 10, turnsEach: 1, deliveries });
  const api = await parley.start('API');
  const { get } = await signIn(parley, api);
  const ask = (query: string) =>
    get<{ nextCursor: string | null; deliveries: unknown[] }>(`/assistants/${owner.assistantId}/deliveries?${query}`);
  const slowest: Record<string, number> = {};
  for (const [name, query] of Object.entries(filters(scale))) {
    let found = 0;
    slowest[name] = 0;
    for (let look = 0; look < LOOKS; look += 1) {
      const startedAt = performance.now();
      found = (await ask(query)).deliveries.length;
      slowest[name] = Math.max(slowest[name], performance.now() - startedAt);
    }
    say(`listing: ${name}: ${found} found, the slowest of ${LOOKS} ${slowest[name].toFixed(1)} ms`);
  }
  const startedAt = performance.now();
  const counted = await parley.service.deliveries.countOutcomes(owner.assistantId, new Date(0));
  slowest['all counted by outcome'] = performance.now() - startedAt;
  say(
    `listing: all counted by outcome, ${JSON.stringify(counted)}: ${slowest['all counted by outcome'].toFixed(0)} ms`,
  );
  const overviewMs = await timeOverview(parley, owner.assistantId, async () => {
    await get(`/assistants/${owner.assistantId}/overview?days=30`);
  });
  say(`listing: the overview of 30 days, the slowest of ${LOOKS} ${overviewMs.toFixed(1)} ms`);
  const { 'all counted by outcome': counting = Number.NaN, ...pages } = slowest;
  const value = Math.max(...Object.values(pages));
  const what = `a page of ${deliveries.toLocaleString('en-US')} deliveries over HTTP, whatever the filter: the slowest`;
  const figures = [
    { id: 'listing.slowest', what, unit: 'ms', value },
    { id: 'listing.overview', what: 'the overview of 30 days over HTTP: the slowest', unit: 'ms', value: overviewMs },
    { id: 'listing.counted', what: 'all of them counted by outcome, for the overview', unit: 'ms', value: counting },
  ];
  return { figures, detail: { slowest } };
};
