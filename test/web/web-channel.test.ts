import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { chatConversationOperations } from '../../src/conversations/http.ts';
import { anAssistant } from '../support/builders.ts';
import { openStream } from '../support/event-stream.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { openReceiver } from '../kit/receiver.ts';
import { aScriptedEngine } from '../support/scripted-engine.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { webOperations } from '../../src/web-channel/operations.ts';
import { startAnonymous } from '../../src/web-channel/access.ts';
import { atSite, aVisitor, aWebAssistant, SITE, signUser } from '../support/visitor.ts';

const ROUTE = { label: 'Directions', type: 'link' as const, payload: '/directions' };
const { engine } = aScriptedEngine(({ message, onDelta }) => {
  if (message !== 'Where are you?') return {};
  onDelta?.('At the ');
  return { text: 'At the lake.', suggestedActions: [ROUTE], why: { engine: 'scripted' } };
});
const stack = useStack({ engine });

const NEVER_SHOWN = /operatorId|email|note|tags|attributes|why|leadScore|escalationReason|sessionId|handed/i;

test('a visitor asks, gets a streamed reply, and sees an operator’s reply at once, and nothing else', async () => {
  const assistant = await aWebAssistant(stack);
  const receiver = await openReceiver();
  await stack.service.endpoints.addEndpoint(assistant.assistantId, { url: receiver.url });
  const visitor = await aVisitor(stack, assistant.assistantId);

  const stream = await openStream(`${stack.url}/api/v1/web/${assistant.assistantId}/messages`, {
    body: { message: 'Where are you?' },
    bearer: visitor.token,
    headers: { Origin: SITE },
  });
  const events = await stream.ended;
  expect(events.map(({ event }) => event)).toEqual(['accepted', 'delta', 'delta', 'message']);
  const last = events.at(-1)?.data as { conversationId: string; suggestedActions: unknown };
  expect(last.suggestedActions).toEqual([ROUTE]);

  const { transitions } = stack.service.conversations;
  const where = { conversationId: last.conversationId, assistantId: assistant.assistantId };
  await transitions.addTag(where, { tag: 'angry', color: null });
  await transitions.setAttributes(where, [{ name: 'plan', value: 'pro' }]);
  await visitor.escalate('wants a person');
  const waiting = visitor.read('?after=2&status=escalated&wait=25');
  await transitions.replyAsOperator(where, 'Hello, I look after you now.');
  const { body } = await waiting;

  expect(body).toMatchObject({ status: 'escalated', opensAt: null, seq: 3, hasMore: false });
  expect(body.messages).toMatchObject([{ seq: 3, role: 'person', content: 'Hello, I look after you now.' }]);
  const whole = await visitor.read();
  expect(whole.body.messages.map(({ role, content }) => `${role}: ${content}`)).toEqual([
    'visitor: Where are you?',
    'assistant: At the lake.',
    'person: Hello, I look after you now.',
  ]);
  expect(JSON.stringify([body, whole.body])).not.toMatch(NEVER_SHOWN);
  const [created] = await receiver.waitFor((all) => all.length >= 3);
  expect(created?.json).toMatchObject({ event: 'conversation.created', payload: { channel: 'web' } });
  const { body: listed } = await assistant.callOperation(chatConversationOperations.list);
  expect(listed.conversations).toMatchObject([
    { channel: 'web', conversationId: last.conversationId, escalationReason: 'wants a person' },
  ]);
});

test('a read ends when the status changes, and tells when people answer next', async () => {
  const week = [{ day: (new Date().getUTCDay() + 3) % 7, from: '09:00', to: '10:00' }];
  const input = { openingHours: { timeZone: 'Etc/UTC', week } };
  const { assistantId } = await aWebAssistant(stack, {}, { input });
  const visitor = await aVisitor(stack, assistantId);
  const { conversationId } = (await visitor.say('hello')).body;
  await visitor.escalate();
  const { seq } = (await visitor.read()).body;

  const waiting = visitor.read(`?after=${seq}&status=escalated&wait=25`);
  await stack.service.conversations.transitions.resolve({ conversationId, assistantId }, randomUUID());
  const { body } = await waiting;

  expect(body).toMatchObject({ status: 'resolved', messages: [] });
  expect(new Date(body.opensAt ?? 0).getUTCHours()).toBe(9);
  expect((await visitor.read('?status=nowhere')).body).toMatchObject({ error: { field: 'status' } });
});

test('only pages of allowed origins and the hosted page are answered, and a page that is off is not there', async () => {
  const { assistantId } = await aWebAssistant(stack);
  const { service } = stack;
  const address = `${stack.url}/api/v1/web/${assistantId}/sessions`;
  const preflight = async (origin: string) => {
    const { status, headers } = await fetch(address, { method: 'OPTIONS', headers: { Origin: origin } });
    return [status, headers.get('access-control-allow-origin'), headers.get('access-control-allow-headers')];
  };

  expect(await preflight(SITE)).toEqual([204, SITE, 'Authorization, Content-Type, Idempotency-Key']);
  for (const foreign of ['https://evil.example', 'http://shop.example', `${SITE}.evil.example`, 'null'])
    expect(await preflight(foreign)).toEqual([403, null, null]);
  const evil = await atSite(stack, assistantId, 'https://evil.example').start();
  expect([evil.status, evil.headers.get('access-control-allow-origin')]).toEqual([403, null]);
  for (const own of [stack.url, null]) expect((await atSite(stack, assistantId, own).start()).status).toBe(201);
  const { headers, body } = await atSite(stack, assistantId).settings();
  expect(headers.get('vary')).toContain('Origin');
  expect(body).toEqual({
    title: 'Test assistant',
    greeting: '',
    starters: [],
    accent: '#2557d6',
    theme: 'auto',
    side: 'end',
  });

  const { token } = await aVisitor(stack, assistantId);
  await service.assistants.setWeb(assistantId, { enabled: false });
  await eventually(async () => expect((await atSite(stack, assistantId).start()).status).toBe(404));
  const read = await fetch(address.replace('sessions', 'messages'), { headers: { Authorization: `Bearer ${token}` } });
  expect([read.status, (await fetch(`${stack.url}/w/${assistantId}`)).status]).toEqual([404, 404]);
  expect((await atSite(stack, randomUUID()).start()).status).toBe(404);
});

test('a visitor sees its own conversation only, and tokens cannot be forged', async () => {
  const { assistantId } = await aWebAssistant(stack);
  const other = await aWebAssistant(stack);
  const [one, two] = [await aVisitor(stack, assistantId), await aVisitor(stack, assistantId)];
  const key = randomUUID();
  await one.say('my secret', { 'Idempotency-Key': key });

  const twice = await one.say('my secret', { 'Idempotency-Key': key });
  expect(twice.headers.get('idempotent-replayed')).toBe('true');
  expect((await one.read()).body.messages).toHaveLength(2);
  expect((await one.say('other text', { 'Idempotency-Key': key })).status).toBe(422);
  // Another visitor who takes the same key learns nothing from it.
  expect((await two.say('mine', { 'Idempotency-Key': key })).status).toBe(200);
  expect(JSON.stringify((await two.read()).body)).not.toContain('secret');

  const [claims = '', signature = ''] = one.token.split('.');
  const forged = Buffer.from(JSON.stringify({ s: 'web_mine', x: 9_999_999_999 })).toString('base64url');
  const elsewhere = await aVisitor(stack, other.assistantId);
  for (const bearer of [null, 'x', claims, `${claims}.`, `${forged}.${signature}`, `${one.token}.x`, elsewhere.token]) {
    const { status, headers } = await one.call(webOperations.read, { bearer });
    expect([bearer, status, headers.get('www-authenticate')]).toEqual([bearer, 401, 'Bearer']);
  }
});

test('a signed user has one conversation in every browser, and nobody else can claim it', async () => {
  const { assistantId } = await aWebAssistant(stack);
  const other = await aWebAssistant(stack);
  const { assistants, mongo } = stack.service;
  const site = atSite(stack, assistantId);
  expect((await site.start(signUser('wsec_none', 'ada'))).status).toBe(401); // nobody signs yet
  const { secret } = await assistants.rotateWebIdentity(assistantId);
  const { secret: secretOfOther } = await assistants.rotateWebIdentity(other.assistantId);
  await eventually(async () => expect((await site.start(signUser(secret, 'eve'))).status).toBe(201));

  const phone = await aVisitor(stack, assistantId, signUser(secret, 'ada'));
  await phone.say('from my phone');
  const laptop = await aVisitor(stack, assistantId, signUser(secret, 'ada'));
  const { body } = await laptop.read();
  expect(body.messages.map(({ content }) => content)).toEqual(['from my phone', 'echo: from my phone']);
  const stored = await mongo.collection('conversations').findOne({ conversationId: body.conversationId });
  expect(stored?.sessionId).toMatch(/^web_[\w-]{22}_ada$/);

  const good = signUser(secret, 'ada');
  for (const forged of [
    signUser(secretOfOther, 'ada'),
    { ...good, id: 'eve' },
    { ...good, expires: good.expires + 1 },
    signUser(secret, 'ada', Math.floor(Date.now() / 1000) - 1),
    { ...good, signature: '0'.repeat(64) },
  ])
    expect((await site.start(forged)).body).toMatchObject({ error: { code: 'invalid_user_signature' } });
  for (const wrong of [
    { ...good, id: '' },
    { ...good, id: 'x'.repeat(201) },
    { ...good, signature: 'ABC' },
    { id: 'ada' },
  ])
    expect((await site.start(wrong)).status).toBe(422);

  await assistants.rotateWebIdentity(assistantId);
  await eventually(async () => expect((await laptop.read()).status).toBe(401));
  expect((await site.start(good)).status).toBe(401);
  const document = JSON.stringify(await mongo.collection('assistants').findOne({ _id: assistantId as never }));
  expect(document).not.toContain('wsec_');
});

test('a session has a limit of messages of its own, and bodies are bounded', async () => {
  const { assistantId } = await aWebAssistant(stack, {}, { input: { sessionLimitPerMinute: 3 } });
  const [busy, neighbour] = [await aVisitor(stack, assistantId), await aVisitor(stack, assistantId)];

  const wrong = await busy.say('x'.repeat(8_001));
  expect(wrong.body).toMatchObject({ error: { field: 'message' } });
  expect((await busy.say('x'.repeat(70_000))).status).toBe(413);
  expect((await busy.say('x', { 'Idempotency-Key': 'with a blank' })).body).toMatchObject({
    error: { field: 'Idempotency-Key' },
  });
  const allowed = await Promise.all(Array.from({ length: 3 }, () => busy.say('hello')));

  expect(allowed.map(({ status }) => status)).toEqual([200, 200, 200]);
  const refused = await busy.say('hello');
  expect([refused.status, Number(refused.headers.get('retry-after')) > 0]).toEqual([429, true]);
  expect((await neighbour.say('hello')).status).toBe(200);
  expect((await busy.read()).status).toBe(200);
});

test('more reads of one session than a browser has tabs do not wait', async () => {
  const { assistantId } = await aWebAssistant(stack);
  const [visitor, neighbour] = [await aVisitor(stack, assistantId), await aVisitor(stack, assistantId)];
  const ended: string[] = [];
  const wait = (who: typeof visitor, name: string) => who.read('?after=0&wait=25').then(() => ended.push(name));

  const waiting = [...Array.from({ length: 4 }, () => wait(visitor, 'tab')), wait(neighbour, 'neighbour')];
  // Each tab waits by now. One more is answered at once, so many of them end before the wait of one.
  for (let nth = 0; nth < 20; nth += 1) await visitor.read('?after=0&wait=25');
  expect(ended).toEqual([]);
  await visitor.say('hello');
  await Promise.all(waiting.slice(0, 4));
  expect(ended).toEqual(['tab', 'tab', 'tab', 'tab']);
  await neighbour.say('hello');
  await Promise.all(waiting);
});

test('a long conversation is read in parts, the latest first, without a gap', async () => {
  const { assistantId } = await aWebAssistant(stack);
  const visitor = await aVisitor(stack, assistantId);
  const { conversationId } = (await visitor.say('first')).body;
  const { transitions } = stack.service.conversations;
  for (let nth = 2; nth <= 120; nth += 1)
    await transitions.replyAsOperator({ conversationId, assistantId }, `message ${nth}`);

  const latest = (await visitor.read()).body;
  const before = (await visitor.read('?before=71')).body;
  const first = (await visitor.read('?before=21')).body;
  const after = (await visitor.read('?after=20')).body;

  const numbers = (all: typeof latest) => [...new Set(all.messages.map(({ seq }) => seq))];
  const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, nth) => from + nth);
  expect([latest.seq, latest.hasEarlier, numbers(latest)]).toEqual([120, true, range(71, 120)]);
  expect([before.hasEarlier, numbers(before)]).toEqual([true, range(21, 70)]);
  expect([first.hasEarlier, numbers(first), first.messages.length]).toEqual([false, range(1, 20), 21]);
  expect([after.seq, after.hasMore, numbers(after)]).toEqual([70, true, range(21, 70)]);
});

test('after an erasure nothing is left to read, and a read that waits ends', async () => {
  const assistant = await aWebAssistant(stack);
  const visitor = await aVisitor(stack, assistant.assistantId);
  const { conversationId } = (await visitor.say('forget me')).body;

  const waiting = visitor.read('?after=1&wait=25');
  await assistant.callOperation(chatConversationOperations.erase, { params: { id: conversationId } });

  expect((await waiting).body).toMatchObject({ conversationId: null, messages: [], seq: 0 });
  expect((await visitor.escalate()).status).toBe(404);
});

test('after a read of many long messages, the visitors of its network wait in proportion to its bytes', async () => {
  const { assistantId } = await aWebAssistant(stack);
  const visitor = await aVisitor(stack, assistantId);
  for (let nth = 0; nth < 10; nth += 1) expect((await visitor.say(`${nth} ${'文'.repeat(7_900)}`)).status).toBe(200);

  const begun = performance.now();
  const reads = await Promise.all([visitor.read(), visitor.read(), visitor.read()]);

  expect(performance.now() - begun).toBeGreaterThan(400);
  for (const { body } of reads) expect(body.messages).toHaveLength(20);
});

const VISITORS = sized({ everyday: 20, long: 200 });
test(`${VISITORS} visitors at once each get their own reply once, while another assistant is answered`, async () => {
  const { assistantId } = await aWebAssistant(stack);
  const neighbour = await aWebAssistant(stack);
  // Sessions of one network have a limit, so these are made as the service makes them.
  const stored = await stack.service.assistants.getAssistant(assistantId);
  const site = atSite(stack, assistantId);
  const tokens = Array.from({ length: VISITORS }, () => startAnonymous(stored).token);

  // A slow machine refuses some with 503 at first, and the widget sends them again.
  const send = (bearer: string, nth: number) =>
    eventually(async () => {
      const headers = { 'Idempotency-Key': `message-${nth}` };
      const answer = await site.call(webOperations.send, { bearer, body: { message: `I am ${nth}` }, headers });
      expect(answer.status).not.toBe(503);
      return answer;
    });
  const answers = await Promise.all(tokens.map(send));
  const other = await (await aVisitor(stack, neighbour.assistantId)).say('hello');

  expect(answers.map(({ body }) => body.reply)).toEqual(tokens.map((_, nth) => `echo: I am ${nth}`));
  expect(other.status).toBe(200);
  expect(await stack.service.mongo.collection('conversations').countDocuments({ assistantId })).toBe(VISITORS);
});

test('the widget’s files weigh little, any site may load them, and their names change with them', async () => {
  const script = await fetch(`${stack.url}/widget.js`);
  const text = await script.text();
  const [, name = ''] = /"(widget\/app-[\w-]{8}\.js)"/.exec(text) ?? [];
  const file = await fetch(`${stack.url}/${name}`, { headers: { 'Accept-Encoding': 'gzip' } });
  const code = await file.text();

  expect(script.headers.get('cache-control')).toBe('public, max-age=300');
  expect(file.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
  for (const { headers } of [script, file]) {
    expect(headers.get('access-control-allow-origin')).toBe('*');
    expect(headers.get('cross-origin-resource-policy')).toBe('cross-origin');
    expect(headers.get('content-type')).toMatch(/javascript/);
  }
  const built = readFileSync(join(import.meta.dirname, '../../packages/widget/dist', `${name}.gz`));
  expect(gunzipSync(built).toString()).toBe(code);
  expect(built.length + gzipSync(text).length).toBeLessThanOrEqual(25_000);
  // A strict policy of the host page forbids these.
  expect(code).not.toMatch(
    /innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createElement\(["'`]style/,
  );
});

test('the hosted page has the widget, the visitor’s language, and nothing of its own that a policy must allow', async () => {
  const { assistantId } = await aWebAssistant(stack, { title: 'Help & <advice>' });

  const { headers, status, text } = await fetch(`${stack.url}/w/${assistantId}`, {
    headers: { 'Accept-Language': 'ar-EG,en;q=0.5' },
  }).then(async (response) => ({
    ...response,
    headers: response.headers,
    status: response.status,
    text: await response.text(),
  }));

  expect([status, headers.get('content-language')]).toEqual([200, 'ar-EG']);
  expect(text).toContain('<title>Help &#38; &#60;advice&#62;</title>');
  expect(text).toContain(`data-assistant="${assistantId}"`);
  const policy = headers.get('content-security-policy') ?? '';
  expect(policy).toContain("script-src 'self'");
  expect(policy).not.toContain('unsafe');
});

test('owners set the channel and its secret, which is shown once, and agents cannot', async () => {
  const { assistantId } = await anAssistant(stack);
  const [owner, agent] = [await anOperator(stack), await anOperator(stack, 'agent')];
  const path = `/assistants/${assistantId}/web`;

  const changed = await owner.call('PATCH', path, { enabled: true, origins: [SITE], accent: '#ff0000' });
  const made = await owner.post<{ secret: string; web: { identity: unknown } }>(`${path}/identity`);
  const read = await owner.get(path);

  expect(changed.body).toMatchObject({ enabled: true, page: `/w/${assistantId}`, theme: 'auto', identity: null });
  expect(made.body.secret).toMatch(/^wsec_[\w-]{43}$/);
  expect(read.body).toMatchObject({ accent: '#ff0000', identity: { createdAt: expect.any(String) } });
  expect(JSON.stringify(read.body)).not.toMatch(/wsec_|sealed/);
  for (const origin of ['shop.example', 'https://shop.example/', 'https://*.example', 'ftp://shop.example', 'null'])
    expect((await owner.call('PATCH', path, { origins: [origin] })).body).toMatchObject({
      error: { field: 'origins.0' },
    });
  for (const wrong of [{ accent: 'red' }, { starters: ['1', '2', '3', '4', '5'] }, { title: 'a\nb' }])
    expect((await owner.call('PATCH', path, wrong)).status).toBe(422);
  expect((await agent.get(path)).status).toBe(403);
  const { body: trail } = await owner.get<{ lines: { action: string }[] }>(`/audit?target=${assistantId}`);
  expect(JSON.stringify(trail)).toContain('web.rotate_identity');
  expect(JSON.stringify(trail)).not.toContain('wsec_');
  expect((await owner.call('DELETE', `${path}/identity`)).body).toMatchObject({ identity: null });
});
