import { randomBytes } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { adminJson, useAdmin } from '../support/admin.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator, openOperatorClient, type OperatorClient } from '../support/operator-client.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const RUNS = sized({ everyday: 8, long: 40 });

const stack = useStack({ apis: 2, deliveryWorkers: 0, env: { TRUST_PROXY: 'true' } });
const command = useAdmin(stack);
/** Two clients of the same owner, one for each API process. */
let here: OperatorClient;
let there: OperatorClient;

type Channel = { connected: boolean; open: boolean; limitPerMinute: number };

beforeAll(async () => {
  here = await anOperator(stack);
  there = openOperatorClient(stack.urls[1] ?? '');
  there.setCookie(here.cookie());
});

const runs = <Result>(run: () => Promise<Result>): Promise<Result[]> =>
  Promise.all(Array.from({ length: RUNS }, () => run()));

const aChannel = async (change?: object): Promise<string> => {
  const { assistantId } = await stack.service.assistants.createAssistant({ name: 'Raced' });
  const path = `/assistants/${assistantId}/channel`;
  if (change) await here.call('PATCH', path, change);
  return path;
};

const read = async (path: string): Promise<Channel> => (await here.get<Channel>(path)).body;

test('a token and a limit set at the same time are both kept', async () => {
  const left = await runs(async () => {
    const path = await aChannel({ connected: true, token: null, limitPerMinute: 5 });
    await Promise.all([
      here.call('PATCH', path, { connected: true, token: 'verify-me' }),
      there.call('PATCH', path, { limitPerMinute: 7 }),
    ]);
    return read(path);
  });

  expect(left.filter(({ open }) => open)).toEqual([]);
  expect(left).toEqual(left.map(() => expect.objectContaining({ connected: true, open: false, limitPerMinute: 7 })));
});

test('a channel that is disconnected while its token is removed or its limit is changed stays disconnected', async () => {
  const left = await runs(async () => {
    const path = await aChannel({ connected: true, token: 'verify-me' });
    await Promise.all([
      here.call('PATCH', path, { connected: false }),
      there.call('DELETE', `${path}/token`),
      there.call('PATCH', path, { limitPerMinute: 7 }),
      here.call('PATCH', path, { connected: true, limitPerMinute: 7 }),
    ]);
    return read(path);
  });

  expect(left).toEqual(left.map(() => expect.objectContaining({ connected: false, open: false, limitPerMinute: 7 })));
});

test('of two tokens set at once, only the last one works', async () => {
  const answers = await runs(async () => {
    const { assistantId } = await anAssistant(stack);
    const path = `/assistants/${assistantId}/channel`;
    await Promise.all([
      here.call('PATCH', path, { connected: true, token: 'one' }),
      there.call('PATCH', path, { connected: true, token: 'two' }),
    ]);
    const url = `${stack.url}/api/v1/channels/webhook/${assistantId}`;
    return eventually(async () => {
      // Requests that fail are limited for each network.
      const headers = {
        'X-Forwarded-For': `2001:db8:${randomBytes(4)
          .toString('hex')
          .replace(/(?=.{4}$)/, ':')}::1`,
      };
      const tokens = ['one', 'two'];
      const all = await Promise.all(tokens.map((bearer) => request(url, { body: aTurn(), bearer, headers })));
      const statuses = all.map(({ status }) => status).toSorted();
      expect(statuses).toEqual([200, 401]);
      return statuses.join();
    });
  });

  expect(new Set(answers)).toEqual(new Set(['200,401']));
});

test('the admin command and the dashboard do not undo each other', async () => {
  const left = await Promise.all(
    Array.from({ length: sized({ everyday: 1, long: 4 }) }, async () => {
      const path = await aChannel({ connected: true, token: null });
      const [, , assistant = ''] = path.split('/');
      let ended = false;
      const limited = adminJson(command, 'channel', 'set', '--assistant', assistant, '--limit', '9').finally(() => {
        ended = true;
      });
      // While the command runs, the API sets a token again and again.
      while (!ended) await here.call('PATCH', path, { token: 'verify-me' });
      await limited;
      return read(path);
    }),
  );

  expect(left).toEqual(left.map(() => expect.objectContaining({ open: false, limitPerMinute: 9 })));
});
