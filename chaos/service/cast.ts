import { createOperatorStore } from '../../src/operators/store.ts';
import { createTokenStore } from '../../src/operators/token.ts';
import { EVENT_KINDS } from '../../src/conversations/event.ts';
import type { Service } from '../../src/service.ts';
import { openProvider } from '../../test/kit/provider.ts';
import type { Random } from '../../test/kit/random.ts';
import { type Customer, openCustomer, type ReceiverKind } from './receivers.ts';
import type { Endpoint } from './evidence.ts';

const UNLIMITED = 1_000_000;
const CHANNEL_TOKEN = 'channel-token-of-the-chaos-run';

/** Every kind, `message.sent` included. */
const EVENTS = EVENT_KINDS.filter((kind) => kind !== 'webhook.test');

const KNOWLEDGE = [
  ['When are you open?', 'We are open from 9 to 5.'],
  ['Do you ship abroad?', 'We ship to all of Europe.'],
  ['What does it cost?', 'It costs ten euros.'],
  ['Where are you?', 'You find us at the station.'],
].map(([question = '', answer = '']) => ({ question, answer, variants: [], language: 'en', actions: [], tags: [] }));

export type Assistant = { assistantId: string; apiKey: string; channelToken: string };

export type CastOptions = {
  /** The provider of the slow assistant answers within this time. */
  providerMs: number;
  /** The second endpoint of the quick assistant. */
  second: ReceiverKind;
  quickMessageSeconds?: number | null;
};

/** A provider that takes some time to answer, and fails one request in twenty. */
const openSlowProvider = async (random: Random, withinMs: number) => {
  const provider = await openProvider();
  provider.behave((wire) => {
    setTimeout(() => {
      if (random.next() < 0.05) return wire.response.writeHead(500).end();
      wire.open();
      wire.say('One moment, ');
      wire.say('here you are.');
      return wire.done();
    }, random.next() * withinMs);
  });
  return provider;
};

/**
 * The assistants of a run, their endpoints and their provider: one that answers at once, with two endpoints, and one
 * that asks a slow provider.
 */
export const openCast = async (service: Service, random: Random, options: CastOptions) => {
  const { providerMs, second, quickMessageSeconds = null } = options;
  const provider = await openSlowProvider(random, providerMs);
  const endpoints: (Endpoint & { receiver: Customer })[] = [];

  const addAssistant = async (name: string, kinds: ReceiverKind[]): Promise<Assistant> => {
    const { assistantId } = await service.assistants.createAssistant({
      name,
      sessionLimitPerMinute: UNLIMITED,
      quickMessageSeconds,
    });
    await service.assistants.addKnowledge(assistantId, KNOWLEDGE);
    await service.assistants.setChannel(assistantId, {
      connected: true,
      token: CHANNEL_TOKEN,
      limitPerMinute: UNLIMITED,
    });
    for (const kind of kinds) {
      const receiver = await openCustomer(kind, random);
      const { endpoint, secret } = await service.endpoints.addEndpoint(assistantId, {
        url: receiver.url,
        events: EVENTS,
      });
      receiver.setSecret(secret);
      const { endpointId } = endpoint;
      endpoints.push({ endpointId, assistantId, good: kind !== 'hostile', seen: receiver.seen, receiver });
    }
    const key = { assistantId, name: 'chaos', limitPerMinute: UNLIMITED };
    const { apiKey } = await service.assistants.createApiKey(key);
    return { assistantId, apiKey, channelToken: CHANNEL_TOKEN };
  };

  const quick = await addAssistant('Quick', ['good', second]);
  const slow = await addAssistant('Slow', ['good']);
  await service.assistants.setEngine(slow.assistantId, {
    kind: 'openai',
    baseUrl: provider.baseUrl,
    model: 'slow',
    apiKey: 'none',
  });
  const { secret: token } = await createTokenStore(service.mongo).createToken({
    name: 'chaos',
    scope: 'manage',
    assistantIds: null,
    createdBy: null,
  });
  // A conversation that a token resolves is resolved by the first owner.
  await createOperatorStore(service.mongo).createOperator({
    email: 'chaos@example.com',
    role: 'owner',
    password: 'correct horse battery',
  });

  return {
    quick,
    slow,
    endpoints,
    token,
    keyOf: (assistantId: string): string => (assistantId === slow.assistantId ? slow : quick).apiKey,
    forged: (): number => endpoints.reduce((sum, { receiver }) => sum + receiver.forged(), 0),
    /** Ends all pending events of hostile endpoints. Slow answers would otherwise take minutes. */
    removeHostile: async (): Promise<void> => {
      const hostile = endpoints.filter(({ good }) => !good);
      for (const { endpointId } of hostile) await service.endpoints.removeEndpoint(endpointId);
    },
    close: async (): Promise<void> => {
      await Promise.all([provider.close(), ...endpoints.map(({ receiver }) => receiver.close())]);
    },
  };
};

export type Cast = Awaited<ReturnType<typeof openCast>>;
