import { setImmediate as tick } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { judgeReply } from '../../src/evaluation/question.ts';
import { readQuestions } from '../../src/evaluation/question-files.ts';
import { toJson } from '../../src/platform/http/json-body.ts';

/** How often other work of the process got its turn meanwhile. */
const turnsWhile = async (work: Promise<unknown>): Promise<number> => {
  let [turns, ended] = [0, false];
  const other = (async () => {
    while (!ended) {
      await tick();
      turns += 1;
    }
  })();
  await work.finally(() => {
    ended = true;
  });
  await other;
  return turns;
};

test('other work runs while blank rows of a file of questions are read', async () => {
  const turns = await turnsWhile(readQuestions('csv', `question,expect\n${`${','.repeat(16_000)}\n`.repeat(64)}`));

  expect(turns).toBeGreaterThan(5);
});

test.each([
  ['csv', `question,expect\n${',\n'.repeat(340_000)}`],
  ['jsonl', ' \n'.repeat(340_000)],
] as const)('blank rows of %s count as rows', async (format, text) => {
  await expect(readQuestions(format, text)).rejects.toMatchObject({ details: [{ field: 'text', code: 'too_many' }] });
});

test('other work runs while a reply is compared with 20,000 entries', async () => {
  const question = 'ﬁ'.repeat(400);
  const entries = Array.from({ length: 20_000 }, (_, nth) => ({ entryId: `${nth}`, question, answer: 'same' }));
  const judge = (entry: string) =>
    judgeReply({ kind: 'entry', entry }, { kind: 'answered', text: 'same', actions: [], sources: [] }, { entries });

  expect(await turnsWhile(judge('ﬁ'.repeat(490)))).toBeGreaterThan(5);
  expect([await judge('19999'), await judge(question.toUpperCase())]).toEqual(['right', 'right']);
});

test('an answer with much beside its lists is refused', async () => {
  const send = (head: object) => toJson(head, { list: [[{}]] }).next();

  await expect(send({ rows: ['x'.repeat(300_000)] })).rejects.toThrow('beside its lists');
  expect((await send({ rows: ['x'.repeat(50_000)] })).value).toContain('"list":[{}]');
});
