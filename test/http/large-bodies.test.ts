import { gzipSync } from 'node:zlib';
import { beforeAll, expect, test } from 'vitest';
import { type Answer, anAssistant, type ErrorBody, type TestAssistant } from '../support/builders.ts';
import { watchLoop } from '../support/loop.ts';
import { atPace } from '../support/pace.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ deliveryWorkers: 0, replyWorkers: 0 });
/** Half of the largest body. */
const HALF = 2 * 1024 * 1024 - 100;
let assistant: TestAssistant;
let bearer: string;

beforeAll(async () => {
  assistant = await anAssistant(stack, { knowledge: [] });
  const { assistantId } = assistant;
  const made = { name: 'a program', scope: 'manage' as const, assistantIds: [assistantId], createdBy: null };
  bearer = (await stack.service.tokens.createToken(made)).secret;
});

const importBody = async (json: string): Promise<Pick<Answer<ErrorBody>, 'status'> & { text: string }> => {
  const body = gzipSync(json);
  const answer = await fetch(`${stack.url}/operator/v1/assistants/${assistant.assistantId}/knowledge-import`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${bearer}`,
      'Content-Type': 'application/json',
      'Content-Encoding': 'gzip',
    },
    body,
  });
  return { status: answer.status, text: await answer.text() };
};

test.each([
  ['nested lists', `{"text":"x","z":${'['.repeat(HALF)}${']'.repeat(HALF)}}`],
  ['empty lists', `{"text":"x","z":[${'[],'.repeat(HALF / 2)}0]}`],
  ['empty objects after a text with quotes', `{"text":"${'\\"'.repeat(9)}","z":[${'{},'.repeat(HALF / 2)}0]}`],
])('a small compressed body of many %s holds up nobody', async (_of, json) => {
  await importBody('{"format":"csv","text":"question,answer\\na,b","dryRun":true}');
  const stop = watchLoop();

  const { status, text } = await importBody(json);

  const { ms, name } = stop();
  expect(ms, name).toBeLessThan(atPace(60));
  expect([status, text]).toEqual([422, expect.stringContaining('invalid_json')]);
});

test('a large text with many commas, brackets and quotes is imported', async () => {
  const row = '"a, [b] {c} ""d""",e\n';
  const text = `question,answer\n${row.repeat(9_000)}`;
  const { status, text: answer } = await importBody(JSON.stringify({ format: 'csv', text, dryRun: true }));

  expect([status, JSON.parse(answer)]).toEqual([200, { imported: 9_000, refused: [] }]);
});
