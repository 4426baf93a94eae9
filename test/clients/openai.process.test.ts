import { randomUUID } from 'node:crypto';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import OpenAI, { AuthenticationError, RateLimitError, UnprocessableEntityError } from 'openai';
import { expect, test } from 'vitest';
import { findPython, ROOT } from '../../scripts/services/installed.ts';
import { anAssistant } from '../support/builders.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();
const REPLY = 'We are open from 9 to 5.';
const asking = () => ({
  model: 'parley',
  user: randomUUID(),
  messages: [{ role: 'user' as const, content: 'When are you open?' }],
});
const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${stack.url}/v1`, apiKey, maxRetries: 0 });
const failureOf = (call: Promise<unknown>): Promise<unknown> => call.then(() => null).catch((cause: unknown) => cause);

test('OpenAI’s package for Node sends, streams, lists and fails as with its own service', async () => {
  const { apiKey, history } = await anAssistant(stack);
  const client = clientOf(apiKey);
  const body = asking();

  const answer = await client.chat.completions.create(body);
  let streamed = '';
  let usage: object | null | undefined;
  const stream = { ...asking(), stream: true as const, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create(stream)) {
    streamed += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage;
  }
  const models = await client.models.list();
  const again = await client.chat.completions.create({
    ...body,
    messages: [...body.messages, { role: 'assistant', content: REPLY }, { role: 'user', content: 'And on Sunday?' }],
  });

  const { parley } = answer as unknown as { parley: { conversationId: string } };
  expect(answer.choices[0]?.message.content).toBe(REPLY);
  expect(streamed).toBe(REPLY);
  expect(usage).toEqual(answer.usage);
  expect(models.data.map(({ id }) => id)).toEqual(['parley']);
  const { messages } = (await history(parley.conversationId)).body;
  expect(messages.map(({ content }) => content)).toEqual([
    'When are you open?',
    REPLY,
    'And on Sunday?',
    again.choices[0]?.message.content,
  ]);
});

test('its errors are those that the package knows', async () => {
  const { apiKey } = await anAssistant(stack, { limitPerMinute: 1 });
  const client = clientOf(apiKey);
  const { user: _user, ...nobody } = asking();

  const stranger = await failureOf(clientOf('sk_wrong').chat.completions.create(asking()));
  const noSession = await failureOf(client.chat.completions.create(nobody));
  const limited = await failureOf(client.chat.completions.create(asking()));

  expect(stranger).toBeInstanceOf(AuthenticationError);
  expect(stranger).toMatchObject({ code: 'invalid_api_key', type: 'invalid_request_error' });
  expect(noSession).toBeInstanceOf(UnprocessableEntityError);
  expect(noSession).toMatchObject({ code: 'validation_failed', param: 'user' });
  expect(limited).toBeInstanceOf(RateLimitError);
  expect(limited).toMatchObject({ code: 'rate_limited', type: 'rate_limit_error' });
});

test('what the package sends again after a broken connection is stored once', async () => {
  const { apiKey, history } = await anAssistant(stack);
  let calls = 0;
  // The first answer is lost after the service has sent it.
  const losing: typeof fetch = async (input, init) => {
    const answer = await fetch(input, init);
    calls += 1;
    if (calls > 1) return answer;
    await answer.text();
    throw new TypeError('the connection broke');
  };

  const answer = await new OpenAI({ baseURL: `${stack.url}/v1`, apiKey, fetch: losing }).chat.completions.create(
    asking(),
  );

  const { parley } = answer as unknown as { parley: { conversationId: string } };
  expect(calls).toBe(2);
  expect((await history(parley.conversationId)).body.messages).toHaveLength(2);
});

test('OpenAI’s package for Python runs the example of the page', async () => {
  const { apiKey } = await anAssistant(stack);
  const page = await readFile(join(ROOT, 'docs/chat-api.md'), 'utf8');
  const [, example = ''] = /```python\n(.*?)```/s.exec(page) ?? [];
  const program = example.replace('http://127.0.0.1:3000', stack.url).replace('sk_…', apiKey);
  const streamed = `
for chunk in client.chat.completions.create(model="parley", user="visitor-43", stream=True,
        messages=[{"role": "user", "content": "When are you open?"}]):
    print(chunk.choices[0].delta.content or "", end="")`;
  const found = findPython();

  const { stdout } = await promisify(execFile)(found.program, ['-c', program + streamed], {
    env: { ...process.env, PYTHONPATH: found.folder, PYTHONDONTWRITEBYTECODE: '1', PYTHONUTF8: '1' },
  });

  expect(stdout).toMatch(new RegExp(`^${REPLY} [0-9a-f-]{36}\n${REPLY}$`));
});
