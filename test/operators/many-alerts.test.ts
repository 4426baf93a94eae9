import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import type { AlertKind } from '../../src/alerts/alert.ts';
import type { alertOperations } from '../../src/insights/http/overview.ts';
import type { Timing } from '../../src/platform/process/time-limits.ts';
import { anAssistant, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import type { AnswerOf } from '../kit/operations.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver } from '../kit/receiver.ts';
import { longTest, sized } from '../support/size.ts';
import { openStack } from '../support/stack.ts';

const HOUR_MS = 3_600_000;
const QUICK: Partial<Timing> = { alertEveryMs: 100, alertEndsAfterMs: 200, alertEventsLateMs: 600 };

type Alert = AnswerOf<typeof alertOperations.list>['alerts'][number];

/** A service whose alerts are told, and one assistant in it. `alertsOf` reads with a token for this assistant alone. */
const aNeighbour = async (timing: Partial<Timing> = {}) => {
  const operations = await openReceiver();
  const stack = await openStack({
    replyWorkers: 0,
    deliveryWorkers: 0,
    timing: { ...QUICK, ...timing },
    env: { ALERT_WEBHOOK_URL: operations.url, ALERT_WEBHOOK_SECRET: 'whsec_of_the_operations_team' },
  });
  onTestFinished(async () => {
    await stack.close();
    await operations.close();
  });
  const owner = await anOperator(stack);
  const { assistantId, keyId } = await anAssistant(stack);
  const asked = { name: 'a program', scope: 'read', assistantIds: [assistantId] };
  const { secret: bearer } = (await owner.post<{ secret: string }>('/tokens', asked)).body;
  const { endpoints, mongo } = stack.service;
  const alertsOf = async (kind: AlertKind, target: string): Promise<Alert[]> => {
    const { body } = await request<{ alerts: Alert[] }>(`${stack.url}/operator/v1/alerts?limit=200`, { bearer });
    return body.alerts.filter((one) => one.kind === kind && one.target === target);
  };
  const stateOf = (state: Alert['state']) => (kind: AlertKind, target: string) =>
    eventually(async () => expect(await alertsOf(kind, target)).toMatchObject([{ state }]));
  const anEndpoint = async () =>
    (await endpoints.addEndpoint(assistantId, { url: 'http://127.0.0.1:9/' })).endpoint.endpointId;
  return {
    owner,
    mongo,
    assistantId,
    keyId,
    anEndpoint,
    alertsOf,
    begun: stateOf('open'),
    ended: stateOf('ended'),
    pause: (id: string) =>
      endpoints.pauseEndpoint(id, { reason: 'retry_after', until: new Date(Date.now() + HOUR_MS) }),
    resume: (id: string) => owner.post(`/endpoints/${id}/resume`),
    toldOf: (target: string): string[] =>
      operations.received
        .flatMap(({ json }) => (json as { alerts: Alert[] }).alerts)
        .filter((alert) => alert.target === target)
        .map(({ state }) => state),
  };
};

const many = <One>(count: number, make: (nth: number) => One): One[] =>
  Array.from({ length: count }, (_, nth) => make(nth));

longTest('2,100 paused endpoints of others neither end an alert nor keep one from beginning', async () => {
  const { mongo, anEndpoint, begun, ended, alertsOf, pause, resume, toldOf } = await aNeighbour();
  const [first, second] = [await anEndpoint(), await anEndpoint()];
  await pause(first);
  await begun('endpoint_paused', first);
  const stored = await mongo.collection('endpoints').findOne({});
  const others = many(2_100, (nth) => ({
    ...stored,
    _id: randomUUID() as never,
    assistantId: `other-${nth % 210}`,
    place: Math.floor(nth / 210),
    pause: { reason: 'gone', until: null },
  }));

  await mongo.collection('endpoints').insertMany(others);
  const countOthers = () => mongo.collection('alerts').countDocuments({ open: true, target: { $ne: first } });
  await eventually(async () => expect(await countOthers()).toBeGreaterThan(1_900));
  await pause(second);
  await begun('endpoint_paused', second);
  await resume(second);
  await ended('endpoint_paused', second);

  expect(await alertsOf('endpoint_paused', first)).toMatchObject([{ state: 'open' }]);
  await eventually(() => expect(toldOf(second)).toEqual(['open', 'ended']));
  expect(toldOf(first)).toEqual(['open']);
});

longTest('late events of many conversations of others hide no late event', async () => {
  const { mongo, assistantId, anEndpoint, alertsOf } = await aNeighbour();
  const endpointId = await anEndpoint();
  const lateOf = (own: string, endpoint: string) => ({
    _id: randomUUID() as never,
    conversationId: randomUUID(),
    assistantId: own,
    outbox: [{ eventId: randomUUID(), at: new Date(Date.now() - 60_000), endpoints: [endpoint] }],
  });

  // They come first in the index.
  await mongo.collection('conversations').insertMany(many(1_500, (nth) => lateOf('other', `!${nth % 15}`)));
  await mongo.collection('conversations').insertOne(lateOf(assistantId, endpointId));

  await eventually(async () => expect(await alertsOf('events_late', endpointId)).toMatchObject([{ state: 'open' }]));
});

test('an assistant whose waiting visitors cannot be read keeps its alert, and that of another ends', async () => {
  const { mongo, assistantId, ended } = await aNeighbour();
  const waitingAt = (target: unknown) => {
    const own = { _id: randomUUID() as never, kind: 'person_waits', key: `person_waits:${String(target)}`, target };
    const since = new Date(Date.now() - HOUR_MS);
    const times = { beganAt: since, seenAt: since, endedAt: null };
    return { ...own, ...times, assistantId: target, details: {}, open: true, acknowledged: null };
  };
  const unreadable = { $unknown: 'MongoDB refuses to look for this' };

  await mongo.collection('alerts').insertMany([waitingAt(unreadable), waitingAt(assistantId)]);

  await ended('person_waits', assistantId);
  const open = await mongo.collection('alerts').find({ open: true }).toArray();
  expect(open.map(({ target }) => target)).toEqual([unreadable]);
});

test('a few assistants that have all alerts, one after the other, keep none of another from beginning', async () => {
  const { mongo, anEndpoint, alertsOf, pause } = await aNeighbour({ alertEndsAfterMs: HOUR_MS });
  const now = new Date();
  const others = many(2_000, (nth) => ({
    _id: randomUUID() as never,
    kind: 'quota_reached',
    key: `quota_reached:${nth}`,
    target: `${nth}`,
    assistantId: `other-${nth % 10}`,
    details: {},
    beganAt: now,
    seenAt: now,
    endedAt: null,
    open: true,
    acknowledged: null,
  }));
  await mongo.collection('alerts').insertMany(others);
  const endpoints = await Promise.all(many(3, anEndpoint));

  for (const endpoint of endpoints) await pause(endpoint);

  for (const endpoint of endpoints)
    await eventually(async () =>
      expect(await alertsOf('endpoint_paused', endpoint)).toMatchObject([{ state: 'open' }]),
    );
});

test('used-up quotas of others, which are no limits any more, hide no quota', async () => {
  const { mongo, owner, assistantId, keyId, alertsOf } = await aNeighbour();
  await owner.call('PATCH', `/keys/${keyId}`, { turnsPerMonth: 10 });
  const [from, until] = [new Date(), new Date()];
  from.setUTCDate(1);
  until.setUTCMonth(until.getUTCMonth() + 1, 1);
  const usedUp = (own: string, target: string) => ({
    _id: `key:${target}:${from.toISOString().slice(0, 10)}` as never,
    kind: 'key',
    target,
    assistantId: own,
    from,
    until,
    limit: 10,
    used: 10,
    level: 2,
  });

  // They come first in the index.
  await mongo.collection('allowances').insertMany(many(600, (nth) => usedUp(`!${nth % 6}`, randomUUID())));
  await mongo.collection('allowances').insertOne(usedUp(assistantId, keyId));

  await eventually(async () => expect(await alertsOf('quota_reached', keyId)).toMatchObject([{ state: 'open' }]));
});

longTest('failing providers of 600 others do not end the alert of one', async () => {
  const { mongo, assistantId, anEndpoint, begun, ended, alertsOf, pause, resume } = await aNeighbour();
  const hour = new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS);
  const failing = (own: string, engineErrors: number) => ({
    _id: randomUUID() as never,
    assistantId: own,
    hour,
    engineErrors,
    answered: engineErrors,
  });
  await mongo.collection('figures').insertOne(failing(assistantId, 3));
  await begun('provider_failing', assistantId);

  await mongo.collection('figures').insertMany(many(600, (nth) => failing(`other-${nth}`, 1_000)));
  await eventually(async () =>
    expect(await mongo.collection('alerts').countDocuments({ open: true })).toBeGreaterThan(500),
  );
  const later = await anEndpoint();
  await pause(later);
  await begun('endpoint_paused', later);
  await resume(later);
  await ended('endpoint_paused', later);

  expect(await alertsOf('provider_failing', assistantId)).toMatchObject([{ state: 'open' }]);
});

test('an endpoint that is paused and resumed in a loop is told once more, and ends when the loop is over', async () => {
  const { anEndpoint, begun, ended, pause, resume, toldOf } = await aNeighbour({ alertReturnsWithinMs: 6_000 });
  const flapping = await anEndpoint();
  /** Some rounds, in which an alert that nothing keeps would begin and end. */
  const someRounds = async (): Promise<void> => {
    const other = await anEndpoint();
    await pause(other);
    await begun('endpoint_paused', other);
    await resume(other);
    await ended('endpoint_paused', other);
  };
  await pause(flapping);
  await begun('endpoint_paused', flapping);
  await resume(flapping);
  await ended('endpoint_paused', flapping);

  for (let nth = 0; nth < sized({ everyday: 1, long: 4 }); nth += 1) {
    await pause(flapping);
    await someRounds();
    await resume(flapping);
    await someRounds();
  }

  const inLoop = ['open', 'ended', 'open'];
  expect(toldOf(flapping)).toEqual(inLoop);
  await ended('endpoint_paused', flapping);
  await eventually(() => expect(toldOf(flapping)).toEqual([...inLoop, 'ended']));
});
