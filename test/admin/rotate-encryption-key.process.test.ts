import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { launch } from '../kit/processes.ts';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import { type Service, startMongod } from '../../scripts/services.ts';
import { runAdmin } from '../support/admin.ts';
import { anAssistant, aTurn, request } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { withFailPoint } from '../support/fail-point.ts';
import { openProvider } from '../kit/provider.ts';
import { openReceiver } from '../kit/receiver.ts';
import { sized } from '../support/size.ts';
import { newEnvironment, openStack, type Stack } from '../support/stack.ts';
import { atSite, aWebAssistant, signUser } from '../support/visitor.ts';

const [OLD, NEW] = [randomBytes(32).toString('base64'), randomBytes(32).toString('base64')];
const BOTH = `${NEW},${OLD}`;
const HOOK = 'http://127.0.0.1:9/';
/** Shorter than a silent connection may be. */
const HELD_MS = 2_000;

let mongod: Service;
beforeAll(async () => {
  mongod = await startMongod({ failPoints: true });
});
afterAll(() => mongod.dispose());

/** A service with this key and without workers; `beside`: on the same data. */
const open = async (ENCRYPTION_KEY: string, beside?: Stack): Promise<Stack> => {
  const { MONGODB_URL = '', ...env } = newEnvironment();
  const url = new URL(mongod.url);
  url.pathname = new URL(MONGODB_URL).pathname;
  const own = beside?.env ?? { ...env, MONGODB_URL: url.href };
  const stack = await openStack({ env: { ...own, ENCRYPTION_KEY }, replyWorkers: 0, deliveryWorkers: 0 });
  onTestFinished(() => stack.close());
  return stack;
};

type Report = { secrets: number; resealed: number; older: number; unreadable: string[] };

const rotate = async ({ env }: Stack, ...args: string[]): Promise<{ status: number; report: Report; text: string }> => {
  const { status, stdout, stderr } = await runAdmin(env, ['rotate-encryption-key', '--json', ...args]);
  expect(stderr).toBe('');
  return { status, report: JSON.parse(stdout) as Report, text: stdout };
};

type Held = { opid: number; lsid: { id: unknown; uid: unknown } };

/** The command of the process that is killed, if MongoDB works on one. */
const heldAt = async (stack: Stack, command: string, collection: string | null): Promise<Held> => {
  const match = { [`command.${command}`]: collection ?? 1, active: true, appName: 'killed' };
  const [held] = await stack.service.mongo
    .getClient()
    .db('admin')
    .aggregate<Held>([{ $currentOp: {} }, { $match: match }], { readConcern: { level: 'local' } })
    .toArray();
  if (!held) throw new Error(`${command} is not held`);
  return held;
};

/** Runs the command, and `meanwhile` while its write, or the commit of another process, is held at a fail point. */
const holding = async (
  stack: Stack,
  [command, collection]: [string, string | null],
  { first, meanwhile }: { first: () => Promise<unknown>; meanwhile: () => Promise<unknown> },
): Promise<void> => {
  const namespace = collection === null ? {} : { namespace: `${stack.service.mongo.name}.${collection}` };
  const failPoint = { failCommands: [command], blockConnection: true, blockTimeMS: HELD_MS, ...namespace };
  const during = async (reached: () => Promise<unknown>): Promise<void> => {
    const begun = first();
    await reached();
    await meanwhile();
    await begun;
  };
  await withFailPoint(mongod.url, failPoint, during, { times: 1 });
};

test('secrets work before, while and after their key is rotated, and then without the old one', async () => {
  const before = await open(OLD);
  const receiver = await openReceiver();
  onTestFinished(receiver.close);
  const provider = await openProvider();
  onTestFinished(provider.close);
  const { assistants, endpoints } = before.service;
  const shop = await aWebAssistant(before);
  const { endpoint, secret: first } = await endpoints.addEndpoint(shop.assistantId, {
    url: receiver.url,
    headers: [{ name: 'X-Own', value: 'mine' }],
  });
  const { secret: second } = await endpoints.rotateSecret(endpoint.endpointId, 24);
  const { secret: signing } = await assistants.rotateWebIdentity(shop.assistantId);
  const bot = await anAssistant(before);
  const setKey = (name: string) =>
    assistants.setEngine(bot.assistantId, {
      kind: 'openai',
      baseUrl: `${provider.baseUrl}/${name}`,
      model: 'm',
      apiKey: `sk-${name}`,
    });
  await setKey('one');
  await assistants.updateAssistant(bot.assistantId, { drafts: true });
  await setKey('two');
  await assistants.drafts.publish(bot.assistantId, { name: null, note: null });
  await setKey('three');
  const draft = await assistants.drafts.find(bot.assistantId);

  const askWith = async ({ url }: Stack, name: string) => {
    await request(`${url}/api/v1/chat`, { body: aTurn(), bearer: bot.apiKey });
    expect(provider.asked.at(-1)).toMatchObject({
      path: `/v1/${name}/chat/completions`,
      authorization: `Bearer sk-${name}`,
    });
  };
  const check = async (stack: Stack) => {
    const { body } = await request(`${stack.url}/api/v1/chat`, { body: aTurn(), bearer: shop.apiKey });
    const mine = ({ body: sent }: { body: Buffer }) => sent.includes(body.conversationId);
    const received = (await receiver.waitFor((all) => all.filter(mine).length >= 2)).filter(mine);
    const verdicts = received.flatMap(({ body: sent, headers }) =>
      [first, second].map((secret) => verifyWebhook(sent, headers['x-factory-signature'], [secret]).ok),
    );
    expect(verdicts).toEqual([true, true, true, true]);
    expect(received.map(({ headers }) => headers['x-own'])).toEqual(['mine', 'mine']);
    expect((await atSite(stack, shop.assistantId).start(signUser(signing, 'ada'))).status).toBe(201);
    await askWith(stack, 'two');
  };
  const withWorkers = async (stack: Stack, work: () => Promise<unknown>) => {
    const workers = [await stack.startReplyWorker(), await stack.startDeliveryWorker()];
    await work();
    for (const worker of workers) await worker.close();
  };

  await withWorkers(before, () => check(before));
  const both = await open(BOTH, before);
  await withWorkers(both, async () => {
    await check(both);
    const dry = await rotate(both, '--dry-run');
    const [run] = await Promise.all([rotate(both), check(both)]);
    await check(both);
    const again = await rotate(both);

    expect(dry).toMatchObject({ status: 1, report: { secrets: 8, resealed: 0, older: 8 } });
    expect(run).toMatchObject({ status: 0, report: { secrets: 8, resealed: 8, older: 0, unreadable: [] } });
    expect(again).toMatchObject({ status: 0, report: { secrets: 8, resealed: 0, older: 0, unreadable: [] } });
  });
  const after = await open(NEW, before);
  await withWorkers(after, async () => {
    await check(after);
    const { drafts } = after.service.assistants;
    await drafts.rollBack(bot.assistantId, 1, { note: null });
    await eventually(() => askWith(after, 'one'));
    await drafts.publish(bot.assistantId, { name: null, note: null });
    await eventually(() => askWith(after, 'three'));
  });

  expect(draft?.revision).toBe((await before.service.assistants.getAssistant(bot.assistantId)).draftRevision! - 2);
  expect(await rotate(after)).toMatchObject({ status: 0, report: { older: 0, unreadable: [] } });
  const { lines } = await after.service.audit.list({ limit: 10 });
  expect(lines.filter(({ action }) => action === 'secrets.reseal')).toMatchObject([
    { actor: 'command', details: { secrets: '8' } },
  ]);
});

const KILLS = [
  // Half of the endpoints are sealed, and no assistant.
  ['an endpoint', 'update', 'endpoints', { skip: 3 }, 6],
  // The six endpoints and half of the assistants are sealed, after six reading transactions.
  ['an assistant', 'commitTransaction', null, { skip: 6 + 3 }, 0],
] as const;

test.for(sized({ everyday: KILLS.slice(1), long: [...KILLS] }))(
  'killed while it seals the secrets of %s, it goes on when it is run again',
  async ([, command, collection, mode, unreached]) => {
    const before = await open(OLD);
    for (let nth = 0; nth < 6; nth += 1) {
      const { assistantId } = await anAssistant(before);
      await before.service.endpoints.addEndpoint(assistantId, { url: HOOK });
      await before.service.assistants.rotateWebIdentity(assistantId);
    }
    const both = await open(BOTH, before);
    const own = new URL(both.env['MONGODB_URL'] ?? '');
    own.searchParams.set('appName', 'killed');
    const failPoint = { failCommands: [command], blockConnection: true, blockTimeMS: 60_000, appName: 'killed' };
    const namespace = collection && { namespace: `${both.service.mongo.name}.${collection}` };
    const held = () => heldAt(both, command, collection);
    const admin = both.service.mongo.getClient().db('admin');

    await withFailPoint(
      mongod.url,
      { ...failPoint, ...namespace },
      async (reached) => {
        const { PATH = '' } = process.env;
        const env = { PATH, ...both.env, MONGODB_URL: own.href };
        const { kill } = launch(process.execPath, ['scripts/admin.ts', 'rotate-encryption-key'], {
          env,
          stdio: 'ignore',
        });
        await reached();
        const { opid, lsid } = await held();
        await kill();
        await admin.command(collection ? { killOp: 1, op: opid } : { killAllSessionsByPattern: [{ lsid }] });
        await eventually(() => expect(held()).rejects.toThrow('is not held'));
      },
      mode,
    );
    const left = await rotate(both, '--dry-run');
    const second = await rotate(both);

    // A driver repeats a command whose answer is late, so that fewer than half may be sealed, but never none or all.
    const { older } = left.report;
    expect(left).toMatchObject({ status: 1, report: { secrets: 12 } });
    expect(older).toBeGreaterThan(unreached);
    expect(older).toBeLessThan(unreached + 6);
    expect(second).toMatchObject({ status: 0, report: { secrets: 12, resealed: older, older: 0, unreadable: [] } });
    expect(await rotate(await open(NEW, before))).toMatchObject({ status: 0, report: { unreadable: [] } });
  },
);

test('what people change meanwhile is kept: a rotated secret, a new key and a roll back', async () => {
  const before = await open(OLD);
  const { assistants, endpoints } = before.service;
  const { assistantId } = await anAssistant(before);
  const { endpoint } = await endpoints.addEndpoint(assistantId, { url: HOOK });
  const setKey = (id: string, apiKey: string) =>
    assistants.setEngine(id, { kind: 'openai', baseUrl: HOOK, model: 'm', apiKey });
  await setKey(assistantId, 'sk-first');
  const both = await open(BOTH, before);
  const rotated: string[] = [];

  await endpoints.rotateSecret(endpoint.endpointId);
  await holding(both, ['update', 'endpoints'], {
    first: () => rotate(both),
    meanwhile: async () => rotated.push((await endpoints.rotateSecret(endpoint.endpointId)).secret),
  });
  await setKey(assistantId, 'sk-second');
  await holding(both, ['update', 'assistants'], {
    first: () => rotate(both),
    meanwhile: () => setKey(assistantId, 'sk-third'),
  });
  const { assistantId: changed } = await anAssistant(before, { input: { drafts: true } });
  await setKey(changed, 'sk-of-version-2');
  await assistants.drafts.publish(changed, { name: null, note: null });
  await assistants.setEngine(changed, { kind: 'retrieval' });
  await assistants.drafts.publish(changed, { name: null, note: null });
  await holding(both, ['commitTransaction', null], {
    first: () => assistants.drafts.rollBack(changed, 2, { note: null }),
    meanwhile: () => rotate(both),
  });

  const after = await open(NEW, before);
  const row = await after.service.endpoints.readForSending(endpoint.endpointId);
  expect(after.service.endpoints.openSecrets(row!, Date.now())).toEqual(rotated);
  const keyOf = async (id: string) => {
    const { engine } = await after.service.assistants.getAssistant(id);
    return engine.kind === 'openai' && after.service.vault.open(engine.apiKeySealed ?? '', id);
  };
  expect([await keyOf(assistantId), await keyOf(changed)]).toEqual(['sk-third', 'sk-of-version-2']);
});

test('secrets that no key opens are named, and the others are sealed again', async () => {
  const before = await open(OLD);
  const lost = await open(randomBytes(32).toString('base64'), before);
  const { assistantId } = await anAssistant(before);
  const add = ({ service }: Stack) => service.endpoints.addEndpoint(assistantId, { url: HOOK });
  const { endpoint } = await add(lost);
  await add(before);
  const { secret } = await lost.service.assistants.rotateWebIdentity(assistantId);

  const { status, report, text } = await rotate(await open(BOTH, before));
  const shown = await runAdmin({ ...before.env, ENCRYPTION_KEY: BOTH }, ['rotate-encryption-key']);

  const unreadable = [`endpoint ${endpoint.endpointId}`, `assistant ${assistantId}`];
  expect({ status, report }).toEqual({ status: 1, report: { secrets: 3, resealed: 1, older: 0, unreadable } });
  expect(shown.status).toBe(1);
  for (const whose of unreadable) expect(shown.stdout).toContain(whose);
  for (const one of [text, shown.stdout]) expect(one).not.toMatch(new RegExp(`${secret}|whsec_|v1\\.`));
});
