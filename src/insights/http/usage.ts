import * as z from 'zod';
import type { AssistantStore } from '../../assistants/store.ts';
import type { DeliveryStore } from '../../events/store.ts';
import { csvLine, sendJson } from '../../platform/http/json-body.ts';
import { createRestedWork, takeRoomForList } from '../../platform/http/request-slots.ts';
import { ESCALATION_REASONS, type StoredFigures } from '../figures.ts';
import type { Insights } from '../store.ts';
import { sumOf } from '../summary.ts';
import { dayOf, type DayRange, USAGE_COUNTERS, type UsageCounter } from '../usage.ts';
import { type AllowanceStore, placeOf } from '../../turns/allowances.ts';
import { DAY_MS, serverDate } from '../../platform/process/clock.ts';
import { invalid } from '../../platform/process/errors.ts';
import { inSlices } from '../../platform/process/slices.ts';
import { mapAtMost } from '../../platform/process/slots.ts';
import { type Handled, handled, inTurns, operation, uuid, WRITTEN } from '../../operators/operation.ts';
import { createReadHours } from './overview.ts';

const DAYS_MAX = 92;
const count = z.int().min(0);
const Day = z.iso.date().meta({ description: 'A day in UTC.', example: '2026-05-04' });

const counts = Object.fromEntries(USAGE_COUNTERS.map((name) => [name, count])) as Record<UsageCounter, typeof count>; // one for each name
const OfAll = z.object({
  ...counts,
  escalated: count,
  resolved: count,
  deliveries: z.object({ delivered: count, rejected: count, not_sent: count, unknown: count }),
});

const UsageView = z
  .object({
    from: Day,
    to: Day,
    totals: OfAll,
    days: z.array(z.object({ day: Day, ...OfAll.shape })).meta({ description: 'Every day, the oldest first.' }),
    keys: z.array(
      z.object({
        keyId: uuid.nullable().meta({ description: 'Null: turns that came without an API key, by the channel.' }),
        name: z.string().nullable().meta({ description: 'Null if the key is gone.' }),
        ...counts,
      }),
    ),
  })
  .meta({ id: 'Usage' });

const shared = {
  method: 'get',
  audience: 'owners',
  resource: 'assistant',
  query: z.object({
    from: Day.optional().meta({ description: 'The first day. The first of the month if omitted.' }),
    to: Day.optional().meta({ description: `The last day, at most ${DAYS_MAX} days. Today if omitted.` }),
  }),
} as const;

const AllowanceView = z
  .object({
    limit: z.int(),
    used: count.meta({ description: 'With what is reserved for turns and calls that are being made.' }),
    until: z.iso.datetime().meta({ description: 'When it begins again at zero.' }),
  })
  .meta({ id: 'Allowance' });

const LimitsView = z
  .object({
    turns: AllowanceView.nullable().meta({ description: 'New turns of this month. Null: no quota.' }),
    tokens: AllowanceView.nullable().meta({ description: 'Tokens of the provider of this day. Null: no budget.' }),
    keys: z
      .array(AllowanceView.extend({ keyId: uuid, name: z.string() }))
      .meta({ description: 'New turns of this month of keys that have a quota.' }),
  })
  .meta({ id: 'Limits' });

export const usageOperations = {
  read: operation({
    ...shared,
    path: '/assistants/:id/usage',
    id: 'getUsage',
    isLarge: 'inTurn',
    summary: 'Read what an assistant used, by day and by key; kept for 400 days',
    description: 'Each message counts once, a few seconds after it was stored. Playground turns do not count.',
    answer: UsageView,
  }),
  limits: operation({
    method: 'get',
    path: '/assistants/:id/limits',
    id: 'getLimits',
    audience: 'owners',
    resource: 'assistant',
    summary: 'Read what is used of the quotas and the budget of an assistant',
    answer: LimitsView,
  }),
  download: operation({
    ...shared,
    path: '/assistants/:id/usage.csv',
    id: 'downloadUsage',
    summary: 'Download the usage of each day and key as CSV',
    answer: z.string(),
    contentType: 'text/csv',
    answerHeaders: { 'Content-Disposition': z.string() },
    answerExample: 'day,key_id,key,turns\r\n2026-05-04,018f…,Website,120\r\n',
  }),
};

type Query = { from?: string | undefined; to?: string | undefined };

const nameOf = (day: Date): string => day.toISOString().slice(0, 10);

const rangeOf = ({ from, to }: Query): DayRange => {
  const last = to === undefined ? dayOf(serverDate()) : new Date(to);
  const first = from === undefined ? new Date(`${nameOf(last).slice(0, 8)}01`) : new Date(from);
  const days = (last.getTime() - first.getTime()) / DAY_MS + 1;
  if (days < 1) throw invalid('from', 'invalid', 'must not be after `to`');
  if (days > DAYS_MAX) throw invalid('from', 'too_large', `at most ${DAYS_MAX} days can be read at once`);
  return { from: first, to: new Date(last.getTime() + DAY_MS) };
};

const NOTHING = Object.fromEntries(USAGE_COUNTERS.map((name) => [name, 0])) as Record<UsageCounter, number>; // one for each name

const withFigures = async (used: Record<UsageCounter, number> = NOTHING, hours: StoredFigures[] = []) => {
  const { escalated, resolved, deliveries } = await inSlices(sumOf(hours));
  return {
    ...used,
    escalated: ESCALATION_REASONS.reduce((sum, reason) => sum + escalated[reason], 0),
    resolved,
    deliveries,
  };
};

const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant' | 'listApiKeys'>;
  allowances: Pick<AllowanceStore, 'readUsed'>;
  insights: Insights;
  deliveries: DeliveryStore;
};

export const usageRoutes = ({ assistants, allowances, insights, deliveries }: Dependencies): Handled[] => {
  const readHours = createReadHours({ insights, deliveries });
  const { usage } = insights;
  // One that is read may wait for its place as a large answer.
  const rested = createRestedWork();
  const namesOf = async (assistantId: string): Promise<Map<string | null, string>> =>
    new Map((await assistants.listApiKeys(assistantId)).map(({ keyId, name }) => [keyId, name]));

  return [
    handled(usageOperations.read, async ({ params: { id = '' }, query, costly, takeRoom, signal }) => {
      const range = rangeOf(query);
      const read = async () => {
        const byDay = await usage.sumBy('day', id, range);
        const byKey = await usage.sumBy('keyId', id, range);
        const hours = await readHours(id, range.from, range.to);
        const names = await namesOf(id);
        const used = new Map(byDay.map(({ _id, ...sums }) => [nameOf(_id), sums]));
        const own = hours.filter(({ hour }) => hour >= range.from && hour < range.to);
        const hoursOf = Map.groupBy(own, ({ hour }) => nameOf(hour));
        const dayCount = (range.to.getTime() - range.from.getTime()) / DAY_MS;
        const days = Array.from({ length: dayCount }, (_, nth) =>
          nameOf(new Date(range.from.getTime() + nth * DAY_MS)),
        );
        const sums = { ...NOTHING };
        for (const one of used.values()) for (const name of USAGE_COUNTERS) sums[name] += one[name];
        return {
          from: nameOf(range.from),
          to: nameOf(new Date(range.to.getTime() - DAY_MS)),
          totals: await withFigures(sums, own),
          days: await mapAtMost(1, days, async (day) => ({
            day,
            ...(await withFigures(used.get(day), hoursOf.get(day))),
          })),
          keys: byKey
            .map(({ _id: keyId, ...one }) => ({ keyId, name: names.get(keyId) ?? null, ...one }))
            .toSorted((one, other) => other.turns - one.turns),
        };
      };
      const inTurn = async () => {
        const view = await costly(read);
        await takeRoom();
        return view;
      };
      return rested(id, inTurn, signal);
    }),

    handled(usageOperations.limits, async ({ params: { id = '' } }) => {
      const { turnsPerMonth, tokensPerDay } = await assistants.getAssistant(id);
      const limited = (await assistants.listApiKeys(id)).filter(({ revokedAt }) => revokedAt === null);
      const all = [
        { kind: 'assistant' as const, target: id, limit: turnsPerMonth, name: '' },
        { kind: 'tokens' as const, target: id, limit: tokensPerDay, name: '' },
        ...limited.map(({ keyId, turnsPerMonth: limit, name }) => ({
          kind: 'key' as const,
          target: keyId,
          limit,
          name,
        })),
      ];
      const set = all.flatMap((one) =>
        one.limit === null ? [] : [{ ...one, limit: one.limit, place: placeOf({ ...one, assistantId: id }) }],
      );
      const used = await allowances.readUsed(set.map(({ place }) => place));
      const shown = set.map(({ place, ...one }, nth) => ({
        ...one,
        view: { limit: one.limit, used: used[nth] ?? 0, until: place.to.toISOString() },
      }));
      const viewOf = (kind: string) => shown.find((one) => one.kind === kind)?.view ?? null;
      const keys = shown.filter(({ kind }) => kind === 'key');
      return {
        turns: viewOf('assistant'),
        tokens: viewOf('tokens'),
        keys: keys.map(({ target: keyId, name, view }) => ({ keyId, name, ...view })),
      };
    }),

    handled(usageOperations.download, async ({ params: { id = '' }, query, ...call }) => {
      const { res, signal } = call;
      const range = rangeOf(query);
      const names = await namesOf(id);
      const heading = csvLine(['day', 'key_id', 'key', ...USAGE_COUNTERS.map(snakeCase)]);
      async function* pages(): AsyncGenerator<string, undefined> {
        for await (const page of usage.streamDays(id, range))
          yield page
            .map(({ day, keyId, ...one }) => {
              const counts = USAGE_COUNTERS.map((name) => one[name] ?? 0);
              return csvLine([nameOf(day), keyId ?? '', names.get(keyId) ?? '', ...counts]);
            })
            .join('');
      }
      async function* lines(): AsyncGenerator<string> {
        yield heading;
        yield* inTurns(pages(), call);
      }
      res.setHeader('Content-Disposition', `attachment; filename="usage-${nameOf(range.from)}.csv"`);
      await takeRoomForList(call.req, res);
      await sendJson(res, lines(), signal, 'text/csv');
      return WRITTEN;
    }),
  ];
};
