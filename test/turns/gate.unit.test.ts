import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Request, Response } from 'express';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createRandom } from '../kit/random.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { createGate, type Gate, type PassedTurn } from '../../src/turns/gate.ts';
import type { Waiter } from '../../src/turns/waiters.ts';
import { sized } from '../support/size.ts';

/** The real one. */
const { setImmediate: atNextTick } = globalThis;
beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** How long a turn takes behind the gate if no other turn is there. */
const WORK_MS = 15;
const CALLER_PATIENCE_MS = 30_000;

/** Lets a millisecond pass. The function of Vitest waits for a real one. */
const aMillisecond = (): Promise<void> => {
  vi.advanceTimersByTime(1);
  return new Promise((done) => void atNextTick(done));
};

const aRequest = (key: string) => {
  const req = Object.assign(new IncomingMessage(new Socket()), { params: {} }) as unknown as Request;
  req.headers.authorization = `Bearer ${key.replaceAll(' ', '-')}`;
  const res = Object.assign(new ServerResponse(req), { locals: {} }) as unknown as Response;
  return { req, res };
};

const aGate = (isBusy = () => false): Gate =>
  createGate({ onRefused: () => undefined, logger: createLogger({ name: 'test', level: 'fatal' }), isBusy });

/** A turn behind the gate. `answer` is its reply. */
const follow = (
  passed: PassedTurn,
  { inOrder = true, outcome = 'failed' }: { inOrder?: boolean; outcome?: 'failed' | 'erased' } = {},
): (() => void) => {
  const { promise, resolve } = Promise.withResolvers<Awaited<Waiter['reply']>>();
  passed.follow({ turnId: '', reply: promise, arm: () => undefined, cancel: () => undefined });
  passed.stay(inOrder);
  return () => resolve({ turnId: '', conversationId: '', reply: { outcome } });
};

type Sender = { name: string; offered: (second: number) => number };
type Load = {
  seconds: number;
  /** Turns that can be answered in a second, at a time in seconds. */
  capacity: (second: number) => number;
  /** Turns that come in a second, of each assistant. */
  senders: Sender[];
  /** Every such turn is never answered. */
  stuckEvery?: number;
};
type Second = { accepted: number; refused: number; slowestMs: number; behindMs: number };
const NONE: Second = { accepted: 0, refused: 0, slowestMs: 0, behindMs: 0 };

/** Runs a service that answers turns in the order in which they passed the gate, in steps of a millisecond. */
const simulate = async ({ seconds, capacity, senders, stuckEvery = Number.POSITIVE_INFINITY }: Load) => {
  const gate = aGate();
  const behind: { sender: string; cameAt: number; passedAt: number; answer: () => void }[] = [];
  const figures = new Map(senders.map(({ name }) => [name, Array.from({ length: seconds }, () => ({ ...NONE }))]));
  const due = new Map<string, number>();
  let [canAnswer, count, now] = [0, 0, 0];
  const figureOf = (sender: string): Second =>
    figures.get(sender)?.[Math.min(seconds - 1, Math.floor(now / 1000))] ?? { ...NONE };
  const send = async (sender: string): Promise<void> => {
    const cameAt = now;
    const { req, res } = aRequest(sender);
    if (gate.refuses(req, res)) return void (figureOf(sender).refused += 1);
    const passing = gate.pass({ assistantId: sender, keyId: null, bytes: 100, req, res });
    const passed = await passing.catch(() => null);
    if (!passed) return void (figureOf(sender).refused += 1);
    figureOf(sender).accepted += 1;
    const answer = follow(passed);
    count += 1;
    if (count % stuckEvery !== 0) behind.push({ sender, cameAt, passedAt: now, answer });
  };
  for (; now < seconds * 1000; now += 1) {
    const second = Math.floor(now / 1000);
    for (const { name, offered } of senders) {
      let turns = (due.get(name) ?? 0) + offered(second) / 1000;
      for (; turns >= 1; turns -= 1) void send(name);
      due.set(name, turns);
    }
    while (behind[0] && now - behind[0].cameAt > CALLER_PATIENCE_MS) behind.shift()?.answer();
    for (canAnswer = Math.min(canAnswer + capacity(second) / 1000, 20); canAnswer >= 1; canAnswer -= 1) {
      const [oldest] = behind;
      if (!oldest || now - oldest.passedAt < WORK_MS) break;
      const figure = figureOf(oldest.sender);
      figure.slowestMs = Math.max(figure.slowestMs, now - oldest.cameAt);
      figure.behindMs = Math.max(figure.behindMs, now - oldest.passedAt);
      behind.shift()?.answer();
    }
    await aMillisecond();
  }
  return (name: string): Second[] => figures.get(name) ?? [];
};

const one = (offered: Sender['offered']): Sender[] => [{ name: 'one', offered }];
const sum = (figures: Second[], of: (figure: Second) => number): number =>
  figures.reduce((total, figure) => total + of(figure), 0);
const most = (figures: Second[], of: (figure: Second) => number): number => Math.max(...figures.map(of));
const slowest = (figures: Second[]): number => most(figures, ({ slowestMs }) => slowestMs);
const refusals = (figures: Second[]): number => sum(figures, ({ refused }) => refused);

test('an assistant that sends ten times what can be answered delays and refuses nobody else, and gets the rest', async () => {
  const neighbours = Array.from({ length: 9 }, (_, nth) => ({ name: `neighbour ${nth}`, offered: () => 30 }));
  const greedy = { name: 'greedy', offered: () => 6_000 };

  const seconds = sized({ everyday: 8, long: 15 });

  const of = await simulate({ seconds, capacity: () => 600, senders: [greedy, ...neighbours] });

  for (const { name } of neighbours) {
    expect(refusals(of(name)), name).toBe(0);
    expect(slowest(of(name).slice(3)), name).toBeLessThan(200);
  }
  expect(sum(of('greedy'), ({ accepted }) => accepted)).toBeGreaterThan(0.95 * seconds * (600 - 9 * 30));
  // The burst of the first second waits up to two, so its last turns are answered a little later than after three.
  expect(slowest(of('greedy').slice(4))).toBeLessThan(1_200);
});

test('bursts of one assistant delay another one by little more than the machine needs, also the first turns', async () => {
  const seconds = 10;
  const bursts = { name: 'bursts', offered: (second: number) => (second % 2 ? 700 : 0) };
  const neighbour = { name: 'neighbour', offered: () => 60 };

  const of = await simulate({ seconds, capacity: () => 200, senders: [bursts, neighbour] });

  expect(refusals(of('neighbour'))).toBe(0);
  expect(slowest(of('neighbour'))).toBeLessThan(450);
});

/** How a turn is answered: in the order of all and then after a time, or apart from all after a time. */
type Way = { thenMs?: number; inMs?: number; outcome?: 'failed' | 'erased' };

/** A service with a capacity, in turns a millisecond. `ask` resolves with the time of the turn, or null if it was refused. */
const aService = (capacity = 0.4) => {
  const gate = aGate();
  const queued: { passedAt: number; answer: () => void }[] = [];
  const apart: { until: number; answer: () => void }[] = [];
  let [now, canAnswer] = [0, 0];
  return {
    get now() {
      return now;
    },
    ask: async (name: string, { thenMs = 0, inMs, ...way }: Way = {}): Promise<number | null> => {
      const since = now;
      const { req, res } = aRequest(name);
      const passed = await gate.pass({ assistantId: name, keyId: null, bytes: 100, req, res }).catch(() => null);
      if (!passed) return null;
      const reply = follow(passed, way);
      await new Promise<void>((answered) => {
        const answer = () => (reply(), answered());
        const later = (ms: number) => void apart.push({ until: now + ms, answer });
        if (inMs !== undefined) later(inMs);
        else queued.push({ passedAt: now, answer: thenMs > 0 ? () => later(thenMs) : answer });
      });
      return now - since;
    },
    pass: async (): Promise<void> => {
      now += 1;
      for (const one of apart.filter(({ until }) => until <= now)) apart.splice(apart.indexOf(one), 1)[0]?.answer();
      for (canAnswer = Math.min(canAnswer + capacity, 20); canAnswer >= 1; canAnswer -= 1) {
        if (!queued[0] || now - queued[0].passedAt < WORK_MS) break;
        queued.shift()?.answer();
      }
      await aMillisecond();
    },
  };
};

test.each([
  ['for long', { slowUntil: 13_000, slowMs: 1_000, capacity: 0.4 }],
  ['during a probe', { slowUntil: 1_700, slowMs: 400, capacity: 0.15 }],
])('turns that waited for something else %s make no room for a queue', async (_, { slowUntil, slowMs, capacity }) => {
  const service = aService(capacity);
  const end = slowUntil + 9_000;
  const times: (number | null)[] = [];
  const keepAsking = async (nth: number): Promise<void> => {
    while (service.now < (nth < 400 ? end : slowUntil))
      await service.ask(`greedy ${nth % 4}`, service.now < slowUntil ? { inMs: slowMs } : {});
  };

  for (let nth = 0; nth < 480; nth += 1) void keepAsking(nth);
  while (service.now < end) {
    const isLate = service.now > slowUntil + 4_000;
    if (service.now % 200 === 0) void service.ask('neighbour').then((ms) => isLate && times.push(ms));
    await service.pass();
  }

  expect(times.length).toBeGreaterThan(20);
  expect(Math.max(...times.map((ms) => ms ?? Infinity))).toBeLessThan(350);
});

test('turns that an erasure answers make no room for a queue', async () => {
  const service = aService();
  const end = 8_000;
  const times: (number | null)[] = [];
  const keepAsking = async (nth: number): Promise<void> => {
    while (service.now < end) await service.ask(`greedy ${nth % 4}`);
  };

  for (let nth = 0; nth < 480; nth += 1) void keepAsking(nth);
  while (service.now < end) {
    const isLate = service.now > 3_000;
    for (let nth = 0; nth < 16 && service.now % 40 === 0; nth += 1)
      void service.ask(`erasing ${nth}`, { inMs: 25, outcome: 'erased' });
    if (service.now % 50 === 0) void service.ask('neighbour').then((ms) => isLate && times.push(ms));
    await service.pass();
  }

  expect(times.length).toBeGreaterThan(80);
  expect(Math.max(...times.map((ms) => ms ?? Infinity))).toBeLessThan(300);
});

test('turns that wait for the model are no overload, beside others that do not', async () => {
  for (const seed of sized({ everyday: [2, 3], long: [1, 2, 3, 4, 5, 6, 7, 8] })) {
    const service = aService();
    const random = createRandom(seed);
    const times: (number | null)[] = [];
    while (service.now < 40_000) {
      if (random.below(100) === 0) void service.ask('words', { inMs: WORK_MS });
      // Only a few at first, so that the time without a queue is short.
      if (service.now > 3_000 && random.below(12) === 0)
        void service.ask(`model ${random.below(20)}`, { inMs: 400 }).then((ms) => times.push(ms));
      await service.pass();
    }

    expect(times.filter((ms) => ms === null)).toHaveLength(0);
    expect(times.map((ms) => ms ?? Infinity).toSorted((a, b) => a - b)[times.length >> 1]).toBeLessThan(500);
  }
});

test('turns that are quick now and then do not harm those that wait for the model', async () => {
  for (const seed of sized({ everyday: [2], long: [1, 2, 3, 4, 5, 6, 7, 8] })) {
    const service = aService();
    const random = createRandom(seed);
    const [begin, end] = [2_000, 14_000];
    const keepAsking = async (name: string): Promise<void> => {
      while (service.now < end) {
        const isQuick = (service.now - begin) % 3_000 < 300;
        await service.ask(name, isQuick ? {} : { thenMs: 390 });
      }
    };
    const times: (number | null)[] = [];

    while (service.now < end) {
      for (let nth = 0; service.now === begin && nth < 40; nth += 1) void keepAsking(`greedy ${nth % 4}`);
      for (let nth = 0; nth < 5; nth += 1) {
        if (random.below(1_000) >= 16) continue;
        const asked = service.ask(`neighbour ${nth}`, { thenMs: 150 + random.below(200) });
        if (service.now > begin) void asked.then((ms) => times.push(ms));
      }
      await service.pass();
    }

    expect(times.length).toBeGreaterThan(700);
    expect(times.filter((ms) => ms === null)).toHaveLength(0);
    expect(times.map((ms) => ms ?? Infinity).toSorted((a, b) => a - b)[times.length >> 1]).toBeLessThan(400);
  }
});

test('with three times as many turns as can be answered, all capacity is used and no accepted turn waits long', async () => {
  const seconds = sized({ everyday: 10, long: 30 });

  const of = await simulate({ seconds, capacity: () => 300, senders: one(() => 900) });

  expect(sum(of('one'), ({ accepted }) => accepted)).toBeGreaterThan(0.98 * seconds * 300);
  expect(slowest(of('one'))).toBeLessThan(3_000);
  expect(slowest(of('one').slice(5))).toBeLessThan(1_200);
});

const capacities = sized({ everyday: [100, 1_500], long: [100, 300, 1_500, 4_000] });
test.each(capacities)('at %i turns a second, turns do not queue behind the gate', async (capacity) => {
  const of = await simulate({ seconds: 8, capacity: () => capacity, senders: one(() => 3 * capacity) });

  const late = of('one').slice(5);
  expect(most(late, ({ behindMs }) => behindMs)).toBeLessThan(capacity < 300 ? 400 : 200);
  expect(sum(late, ({ accepted }) => accepted)).toBeGreaterThan(0.95 * late.length * capacity);
});

test('after an overload, a light load is fast and not refused', async () => {
  const overload = sized({ everyday: 4, long: 10 });
  const offered = (second: number) => (second < overload ? 900 : 30);

  const of = await simulate({ seconds: overload + 8, capacity: () => 300, senders: one(offered) });

  const after = of('one').slice(overload);
  expect(refusals(after.slice(2))).toBe(0);
  expect(slowest(after.slice(2))).toBeLessThan(100);
});

test.each(sized({ everyday: [3], long: [3, 10] }))('turns go on while one in %i is stuck', async (stuckEvery) => {
  const of = await simulate({
    seconds: sized({ everyday: 8, long: 40 }),
    capacity: () => 1_000,
    senders: one(() => 300),
    stuckEvery,
  });

  expect(refusals(of('one'))).toBe(0);
});

test('a burst is bounded, and is answered soon', async () => {
  const offered = (second: number) => (second === 0 ? sized({ everyday: 20_000, long: 100_000 }) : 30);

  const of = await simulate({ seconds: 12, capacity: () => 300, senders: one(offered) });

  const [first, second, ...later] = of('one');
  expect((first?.accepted ?? 0) + (second?.accepted ?? 0)).toBeLessThan(1_200);
  expect(slowest(of('one'))).toBeLessThan(3_000);
  expect(refusals(later.slice(2))).toBe(0);
});

test('a stall of 0.9 s is no overload', async () => {
  const capacity = (second: number) => (second === 2 ? 60 : 600);

  const of = await simulate({ seconds: 6, capacity, senders: one(() => 300) });

  expect(refusals(of('one'))).toBe(0);
});

test('a stall of 0.7 s at a high rate is no overload', async () => {
  const gate = aGate();
  const waiting: (() => void)[] = [];
  let refused = 0;
  for (let now = 0; now < 5_000; now += 1) {
    const isStalled = now >= 2_000 && now < 2_700;
    const { req, res } = aRequest('one');
    if (gate.refuses(req, res)) refused += 1;
    else
      void gate.pass({ assistantId: 'one', keyId: null, bytes: 100, req, res }).then(
        (passed) => waiting.push(follow(passed)),
        () => (refused += 1),
      );
    await aMillisecond();
    for (let count = 0; count < 2 && !isStalled; count += 1) waiting.shift()?.();
  }

  expect(refused).toBe(0);
});

const pauses: [string, number][] = [
  ['three seconds', 3],
  ['ten seconds', 10],
  ['longer than callers wait', 40],
];
test.each(sized({ everyday: pauses.slice(0, 1), long: pauses }))(
  'while no turn is answered for %s, few are accepted, and afterwards all',
  async (_, dead) => {
    const capacity = (second: number) => (second >= 2 && second < 2 + dead ? 0 : 900);

    const of = await simulate({ seconds: dead + 8, capacity, senders: one(() => 300) });

    expect(sum(of('one').slice(3, 2 + dead), ({ accepted }) => accepted)).toBeLessThan(400);
    expect(refusals(of('one').slice(2 + dead + 2))).toBe(0);
  },
);

test('the keys of an assistant take turns', async () => {
  const gate = aGate();
  const order: string[] = [];
  const pass = async (keyId: string): Promise<void> => {
    const { req, res } = aRequest(keyId);
    const passed = await gate.pass({ assistantId: 'one', keyId, bytes: 100, req, res });
    order.push(keyId);
    answers.push(follow(passed));
  };
  const answers: (() => void)[] = [];
  for (let count = 0; count < 500; count += 1) void pass('busy');
  await vi.advanceTimersByTimeAsync(1); // the window is full
  for (let count = 0; count < 5; count += 1) void pass('quiet');
  await vi.advanceTimersByTimeAsync(1);
  const before = order.length;

  for (const answer of answers.splice(0, 20)) answer();
  await vi.advanceTimersByTimeAsync(1);

  expect(order.slice(before).filter((key) => key === 'quiet')).toHaveLength(5);
});

test.each([
  ['in a busy process rest', true, 8],
  ['do not rest if nobody has to wait for them', false, 16],
])(
  'sixteen turns of an assistant are accepted at once, and those that nothing follows %s',
  async (_how, isBusy, soon) => {
    const gate = aGate(() => isBusy);
    const passed: { name: string; turn: PassedTurn }[] = [];
    const pass = async (name: string): Promise<void> => {
      const { req, res } = aRequest(name);
      passed.push({ name, turn: await gate.pass({ assistantId: name, keyId: null, bytes: 100, req, res }) });
    };
    const counts = () => ['greedy', 'neighbour'].map((name) => passed.filter((one) => one.name === name).length);
    for (let count = 0; count < 40; count += 1) void pass('greedy');
    for (let count = 0; count < 16; count += 1) void pass('neighbour');
    await vi.advanceTimersByTimeAsync(10);
    expect(counts()).toEqual([16, 16]);
    const { req, res } = aRequest('unknown');
    expect(gate.refuses(req, res)).toBe(false);

    for (const [nth, { name, turn }] of passed.splice(0).entries()) {
      if (name !== 'greedy') continue;
      if (nth % 2) turn.leave();
      else follow(turn);
    }
    await vi.advanceTimersByTimeAsync(30);
    expect(counts()).toEqual([soon, 0]);
    await vi.advanceTimersByTimeAsync(20);

    expect(counts()).toEqual([16, 0]);
  },
);

test('turns whose acceptance takes long keep their places, whatever else is answered meanwhile', async () => {
  const gate = aGate();
  const passed: PassedTurn[] = [];
  const pass = async (name: string): Promise<PassedTurn> => {
    const { req, res } = aRequest(name);
    return gate.pass({ assistantId: name, keyId: null, bytes: 100, req, res });
  };
  for (let count = 0; count < 40; count += 1) void pass('greedy').then((turn) => passed.push(turn));

  for (let count = 0; count < 30; count += 1) {
    const answer = follow(await pass('neighbour'));
    await vi.advanceTimersByTimeAsync(20);
    answer();
  }
  await vi.advanceTimersByTimeAsync(1);
  expect(passed).toHaveLength(16);
  passed[0]!.leave();
  follow(passed[1]!);
  await vi.advanceTimersByTimeAsync(1);

  expect(passed).toHaveLength(18);
});

const fill = async (gate: Gate, name: string, inOrder: boolean): Promise<number> => {
  let passed = 0;
  const pass = async (): Promise<void> => {
    const { req, res } = aRequest(name);
    follow(await gate.pass({ assistantId: name, keyId: null, bytes: 100, req, res }), { inOrder });
    passed += 1;
  };
  for (let count = 0; count < 200; count += 1) void pass().catch(() => undefined);
  await vi.advanceTimersByTimeAsync(1);
  return passed;
};

const FOUR = ['one', 'two', 'three', 'four'];

test('while others hold all that may be in flight with turns that are never answered, one of an assistant passes', async () => {
  const gate = aGate();
  const held = [];
  for (const name of FOUR) held.push(await fill(gate, name, true));
  expect(held).toEqual([64, 32, 22, 16]);
  for (let nth = 0; nth < 100; nth += 1) await fill(gate, `another ${nth}`, true);

  expect(await fill(gate, 'neighbour', true)).toBe(1);
});

test('turns that wait behind others of their conversation do not hold the window', async () => {
  const gate = aGate();
  for (const name of FOUR) await fill(gate, name, false);
  const passed: (() => void)[] = [];
  for (let count = 0; count < 10; count += 1) {
    const { req, res } = aRequest('neighbour');
    const passing = gate.pass({ assistantId: 'neighbour', keyId: null, bytes: 100, req, res });
    void passing.then((turn) => passed.push(follow(turn)));
  }

  await vi.advanceTimersByTimeAsync(300);

  expect(passed).toHaveLength(10);
});

test('few turns that are never answered are no overload', async () => {
  const gate = aGate();
  let passed = 0;
  for (let count = 0; count < 99; count += 1) {
    const { req, res } = aRequest('one');
    const passing = gate.pass({ assistantId: 'one', keyId: null, bytes: 100, req, res });
    void passing.then((turn) => (follow(turn), (passed += 1)));
  }
  await vi.advanceTimersByTimeAsync(600);

  const { req, res } = aRequest('one');
  expect([passed, gate.refuses(req, res)]).toEqual([99, false]);
});

test('after every turn left, in whatever order and way, the gate is open', async () => {
  for (let seed = 1; seed <= sized({ everyday: 3, long: 20 }); seed += 1) {
    const random = createRandom(seed);
    const gate = aGate();
    const open: (() => void)[] = [];
    const comes = 20 + random.below(60);
    const pass = (): Promise<void> => {
      const { req, res } = aRequest(String(random.below(3)));
      if (gate.refuses(req, res)) return Promise.resolve();
      const leaves = random.below(4);
      if (leaves === 0) open.push(() => res.emit('close'));
      const passing = gate.pass({ assistantId: String(random.below(3)), keyId: null, bytes: 100, req, res });
      return passing.then(
        (passed) => void open.push(leaves === 1 ? passed.leave : follow(passed)),
        () => undefined,
      );
    };
    for (let step = 0; step < 2_000; step += 1) {
      await vi.advanceTimersByTimeAsync(random.below(20));
      if (random.below(100) < comes) void pass();
      else open.splice(random.below(open.length), 1)[0]?.();
    }
    for (let round = 0; round < 50 && open.length > 0; round += 1) {
      for (const leave of open.splice(0)) leave();
      await vi.advanceTimersByTimeAsync(100);
    }
    await vi.advanceTimersByTimeAsync(2_000);

    let passed = 0;
    for (let count = 0; count < 16; count += 1) {
      const { req, res } = aRequest('later');
      expect(gate.refuses(req, res), `seed ${seed}`).toBe(false);
      void gate.pass({ assistantId: 'later', keyId: null, bytes: 100, req, res }).then(() => (passed += 1));
    }
    await vi.advanceTimersByTimeAsync(1);
    expect(passed, `seed ${seed}`).toBe(16);
  }
});
