import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Response } from 'express';
import { expect, onTestFinished, test } from 'vitest';
import { limitEachAssistant } from '../../src/platform/http/request-slots.ts';
import { eventually } from '../support/eventually.ts';

/** An answer that ends when it is closed. */
const anAnswer = () => {
  const events = Object.assign(new EventEmitter(), { locals: {}, closed: false, destroyed: false });
  return Object.assign(events as unknown as Response, {
    end: () => Object.assign(events, { closed: true }).emit('close'),
  });
};

const nextTick = () => new Promise((resolve) => setImmediate(resolve));

const workFor = (ms: number): void => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};

test('requests that only compute leave most of each tick to others, however many assistants send them', async () => {
  const [assistants, ofEach] = [16, 4];
  let done = 0;
  const works = Array.from({ length: assistants * ofEach }, async (_, nth) => {
    await sleep(1); // as requests come, each in a step of its own
    const res = anAnswer();
    await limitEachAssistant(`computing ${nth % assistants}`, res);
    workFor(3);
    done += 1;
    res.end();
  });

  const perTick: number[] = [];
  while (done < works.length) {
    const before = done;
    await nextTick();
    perTick.push(done - before);
  }
  await Promise.all(works);

  // A slice of 4 ms, and what began before it was over.
  expect(Math.max(...perTick)).toBeLessThanOrEqual(4);
});

/** Asks for forty turns, none of which ends before the test. */
const askForMany = (assistantId: string, kind: 'request' | 'message') => {
  const answers = Array.from({ length: 40 }, anAnswer);
  let begun = 0;
  const all = answers.map(async (res) => {
    await limitEachAssistant(assistantId, res, { kind });
    begun += 1;
  });
  onTestFinished(async () => {
    for (const res of answers) res.end();
    await Promise.allSettled(all);
  });
  return () => begun;
};

test('messages of an assistant are accepted together while others leave room', async () => {
  const all = [
    askForMany('with requests', 'request'),
    ...['alone', 'second', 'third'].map((assistantId) => askForMany(assistantId, 'message')),
  ];
  await eventually(() => expect(all.map((count) => count())).toEqual([4, 16, 8, 4]));

  await limitEachAssistant('last', anAnswer(), { kind: 'message' });
  expect(all.map((count) => count())).toEqual([4, 16, 8, 4]);
});

test('nothing is worked on for a caller who leaves before the slice of the request', async () => {
  const works = Array.from({ length: 8 }, async (_, nth) => {
    await sleep(1);
    const res = anAnswer();
    const turn = limitEachAssistant(`leaving ${nth}`, res);
    res.end();
    await turn;
    workFor(5);
  });

  const outcomes = await Promise.allSettled(works);

  expect(outcomes.map(({ status }) => status)).toEqual(works.map(() => 'rejected'));
});
