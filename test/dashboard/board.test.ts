import { Queue } from 'bullmq';
import { expect, test } from 'vitest';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { problemOf } from '../support/problem.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack();

const look = async (path: string, cookie: string | null, method = 'GET') => {
  const headers = { Origin: stack.url, 'Sec-Fetch-Site': 'same-origin', ...(cookie && { Cookie: cookie }) };
  const response = await fetch(`${stack.url}/operator/queues${path}`, { method, headers });
  return { status: response.status, headers: response.headers, text: await response.text() };
};

test('the queue board needs an owner’s sign-in for its page, files and API', async () => {
  const agent = await anOperator(stack, 'agent');

  for (const path of ['', '/', '/static/js/main.js', '/api/queues', '/queue/turns']) {
    const stranger = await look(path, null);
    const refused = await look(path, agent.cookie());

    expect([path, stranger.status, JSON.parse(stranger.text)]).toMatchObject([
      path,
      401,
      { error: { code: 'not_signed_in' } },
    ]);
    expect([path, refused.status, JSON.parse(refused.text)]).toMatchObject([
      path,
      403,
      { error: { code: 'forbidden' } },
    ]);
  }
});

test('an owner sees only ids of jobs, and the page loads nothing from other hosts', async () => {
  const owner = await anOperator(stack);
  const receiver = await openReceiver();
  const { chat, assistantId, apiKey } = await anAssistant(stack);
  await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const { body } = await chat(aTurn({ message: 'zebra crossing' }));
  await receiver.waitFor((all) => all.length >= 2);

  const page = await look('/', owner.cookie());
  const script = /static\/js\/main[^"]+/.exec(page.text)?.[0];
  const files = await look(`/${script}`, owner.cookie());
  const jobs = await eventually(async () => {
    const both = await Promise.all(
      ['turns', 'deliveries'].map((name) => look(`/api/queues?activeQueue=${name}&status=completed`, owner.cookie())),
    );
    const text = both.map((one) => one.text).join('\n');
    expect(text).toContain(body.conversationId.slice(0, 13));
    expect(text).toContain('turnIds');
    return text;
  });

  const links = [...jobs.matchAll(/"href":"([^"]+)"/g)].map(([, href = '']) => new URL(href, stack.url));
  const ids = new Set(links.map(({ searchParams }) => searchParams.get('find') ?? ''));
  const found = await Promise.all(
    [...ids].map((id) => owner.get<{ work: { conversationId: string }[] }>(`/work?search=${encodeURIComponent(id)}`)),
  );

  expect(found.length).toBeGreaterThanOrEqual(2);
  for (const { body: told } of found)
    expect(told.work.map(({ conversationId }) => conversationId)).toContain(body.conversationId);
  expect(page.text).toContain('"showMetrics":true');
  expect([page.status, files.status]).toEqual([200, 200]);
  expect(page.text).not.toMatch(/https?:\/\//);
  expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
  expect(page.headers.get('x-powered-by')).toBeNull();
  expect(jobs).not.toMatch(/zebra|whsec_|session-/);
  expect(jobs).not.toContain(apiKey);
});

test('a failed job shows the kind and frames of its error, never its message', async () => {
  const owner = await anOperator(stack);
  const { redis, partitions } = stack.service;
  const queue = new Queue('turns', { connection: redis, prefix: String(partitions.tags[0]) });
  const { id } = await queue.add('turns', { turns: 'zebra' });
  await eventually(async () => expect(await queue.getFailedCount()).toBe(1));
  const failedReason = 'cannot answer "zebra"\n  zebra, and sk_zebra\n    at zebra (file:///zebra.ts:1:2)';
  const stack0 = `TypeError: ${failedReason}\n    at answer (file:///app/answer.ts:1:2)`;
  const said = { failedReason, stacktrace: JSON.stringify([stack0]) };
  await redis.hset(queue.toKey(String(id)), said);

  const list = await look('/api/queues?activeQueue=turns&status=failed', owner.cookie());
  const one = await look(`/api/queues/turns/${id}`, owner.cookie());

  for (const { status, text } of [list, one]) {
    expect(status).toBe(200);
    expect(text).toContain('TypeError: the message is in the worker’s log');
    expect(text).toContain('file:///app/answer.ts:1:2');
    expect(text).not.toContain('zebra');
  }
});

test('an unknown path or id gives the common error body', async () => {
  const owner = await anOperator(stack);
  const paths = [
    '/api/queues/turns/no-such-zebra',
    '/api/queues/zebra/1',
    '/api/queues/turns/1/zebra',
    '/api/zebra',
    '/static/zebra.js',
    '/%E0%A4%A',
  ];

  for (const path of paths) {
    const { status, headers, text } = await look(path, owner.cookie());
    expect([path, problemOf({ status, headers, body: JSON.parse(text) as unknown })]).toEqual([path, '404 not_found']);
    expect(text).not.toContain('zebra');
  }
});

test('the board is read-only, for owners too', async () => {
  const owner = await anOperator(stack);
  const paths = [
    '/api/queues/turns/clean/completed',
    '/api/queues/deliveries/pause',
    '/api/queues/pause',
    '/api/queues/turns/add',
  ];

  for (const path of paths) {
    for (const method of ['PUT', 'POST', 'DELETE', 'PATCH']) {
      const { status, text } = await look(path, owner.cookie(), method);
      expect([path, method, status, JSON.parse(text)]).toMatchObject([
        path,
        method,
        405,
        { error: { code: 'method_not_allowed' } },
      ]);
    }
  }
});

test('a page of the board has 100 jobs at most, whatever its address asks for', async () => {
  const owner = await anOperator(stack);
  const [{ assistantId }, receiver] = [await anAssistant(stack), await openReceiver()];
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url });
  const { deliveries } = stack.service.queues;
  for (let nth = 0; nth < 150; nth += 1) {
    const id = `${nth}:${endpoint.endpointId}`;
    await deliveries.of(id).add('wake', { conversations: [], assistants: [], deliveries: [id] });
  }
  const jobsOf = async (query: string) => {
    const { text } = await look(`/api/queues?activeQueue=deliveries&status=completed&${query}`, owner.cookie());
    const { queues } = JSON.parse(text) as {
      queues: { name: string; jobs: unknown[]; counts: { completed: number } }[];
    };
    return queues.find(({ name }) => name === 'deliveries')!;
  };
  await eventually(async () => expect((await jobsOf('page=1')).counts.completed).toBeGreaterThanOrEqual(150));

  const { jobs } = await jobsOf('page=1&jobsPerPage=20000');

  await receiver.close();
  expect(jobs).toHaveLength(100);
});
