import { expect, test } from 'vitest';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import { LanguageTag } from '../../src/assistants/knowledge/entry.ts';
import { searchKnowledge } from '../../src/assistants/knowledge/search.ts';
import { isSafeLink, SuggestedAction } from '../../src/assistants/suggested-action.ts';
import { EngineInput, WebSettings } from '../../src/assistants/settings.ts';
import { judgeReply } from '../../src/evaluation/question.ts';
import { checkEndpointUrl } from '../../src/platform/http/address-guard.ts';
import { isJson } from '../../src/platform/http/json-body.ts';
import { Email } from '../../src/operators/operator.ts';
import { ChatRequest } from '../../src/turns/turn.ts';
import type { TurnContext } from '../../src/replies/engines/engine.ts';
import { countTokensOf } from '../../src/replies/engines/openai/engine.ts';
import {
  allowedLinksOf,
  checkReply,
  createReplyFilter,
  removeDisallowedLinks,
} from '../../src/replies/engines/openai/reply-filter.ts';
import { createRetrievalEngine } from '../../src/replies/engines/retrieval.ts';
import { inspectMessage } from '../../src/replies/guard.ts';
import { scoreLead } from '../../src/replies/lead-score.ts';
import { anEntry } from '../support/builders.ts';
import { hostileTexts, LARGEST, MESSAGE, shortest, slowOf } from '../support/hostile-texts.ts';
import { workedMs } from '../support/loop.ts';
import { sized } from '../support/size.ts';

const assistant = {
  assistantId: 'a',
  version: '1',
  name: 'A',
  instructions: '',
  languages: ['de', 'en'],
  threshold: null,
  knowledge: ['de', 'en', 'zh'].map((language, at) => ({ ...anEntry({ language }), entryId: String(at) })),
  engine: { kind: 'retrieval' as const },
  allowedLinks: ['example.com'],
};
const engine = createRetrievalEngine();
const aContext = (message: string): TurnContext => ({
  assistant,
  message,
  language: 'de',
  history: async () => [],
  signal: new AbortController().signal,
});
const countTokens = await countTokensOf();
const isAllowed = allowedLinksOf(assistant, []);

/** Functions that read a message, in the API or a reply worker. */
const OF_A_MESSAGE: Record<string, (text: string) => unknown> = {
  'the request': (message) => ChatRequest.safeParse({ session_id: message.slice(0, 256), message, language: message }),
  'the guard': inspectMessage,
  'the lead score': (message) => scoreLead({ previous: 0, explanation: [], message, turnNumber: 1 }),
  'the history for a provider': (message) => [...countTokens(message, 2_000)],
  // Without history, the engine does all its work before it awaits a promise, so the measured time is complete.
  'the retrieval engine': (message) => engine.reply(aContext(message)),
};

/** Functions that read a provider's reply, whole or letter by letter. */
const OF_A_REPLY: Record<string, (text: string) => unknown> = {
  'its links': (text) => removeDisallowedLinks(text, isAllowed),
  'its links, none of which may stay': (text) => removeDisallowedLinks(text, () => false),
  'what is said of it': (text) => {
    const spoken = createReplyFilter({ isAllowed, emit: () => undefined, cites: true });
    spoken.push(text);
    return spoken.end();
  },
  'whether it is as expected': (text) =>
    judgeReply({ kind: 'text', text: 'x' }, { kind: 'answered', text, actions: [], sources: [] }, { entries: [] }),
};

/** Functions that read a header, a setting or a field. */
const OF_A_VALUE: Record<string, (text: string) => unknown> = {
  'a signature': (text) => verifyWebhook('{}', text, 'whsec_x'),
  'a content type': (text) => isJson(`application/json${text}`),
  'a parameter of a content type': (text) => isJson(`application/json; charset=${text}`),
  'an e-mail address': (text) => Email.safeParse(text),
  'a language tag': (text) => LanguageTag.safeParse(text),
  'a link': (text) => isSafeLink(`https://${text}`),
  'an action': (payload) => SuggestedAction.safeParse({ label: 'x', type: 'link', payload: `https://${payload}` }),
  'an endpoint': (text) => checkEndpointUrl(`https://${text.slice(0, 2_000)}`, { allowPrivate: false }),
  'a provider': (text) =>
    EngineInput.safeParse({ kind: 'openai', model: 'x', baseUrl: `https://a${text.slice(0, 8_000)}` }),
  'an origin of the web channel': (text) => WebSettings.shape.origins.safeParse([`https://a${text.slice(0, 8_000)}`]),
  'a search': (text) => searchKnowledge([{ ...anEntry({ answer: text.slice(0, 4_000) }), entryId: 'x' }], 'hello you'),
};

/** All ends in the long suite. A pattern that backtracks does so at most ends. */
const ends = sized<string[] | undefined>({ everyday: ['!'], long: undefined });
const messages = hostileTexts(MESSAGE, ends);
const values = hostileTexts(LARGEST, ends);

test.each(Object.entries(OF_A_MESSAGE))('%s is read from any message quickly', (_, read) => {
  expect(slowOf(read, messages)).toEqual([]);
});

test.each(Object.entries(OF_A_REPLY))('%s is read from a provider’s reply quickly', (_, read) => {
  expect(slowOf(read, values)).toEqual([]);
});

test('a provider’s reply that arrives letter by letter takes linear time', () => {
  const slow = hostileTexts(LARGEST, ['x']).filter(([, text]) => {
    const took = shortest(() => {
      const spoken = createReplyFilter({ isAllowed, emit: () => undefined, cites: true });
      for (const letter of text) spoken.push(letter);
      spoken.end();
    }, 60);
    return took > 60;
  });

  expect(slow.map(([name]) => name)).toEqual([]);
});

test('what a provider’s reply cites is checked in linear time', () => {
  const check = (text: string) => [
    ...checkReply(text, { passages: [], entries: [], said: [text.slice(0, MESSAGE)] }, 'en'),
  ];
  const slow = hostileTexts(LARGEST, ['x']).filter(([, text]) => shortest(() => check(text), 60) > 60);

  expect(slow.map(([name]) => name)).toEqual([]);
});

test('a reply of marks is compared with a history of marks about as fast as words are', () => {
  const timeOf = (piece: string): number => {
    const text = piece.repeat(LARGEST / piece.length);
    const said = Array.from({ length: 20 }, () => text);
    const begun = workedMs();
    for (const _ of checkReply(text, { passages: [], entries: [], said }, 'en'));
    return workedMs() - begun;
  };
  const ofWords = Math.max(timeOf('größer '), 20);

  expect(timeOf('\u0301\uff9e')).toBeLessThan(10 * ofWords);
});

test.each(Object.entries(OF_A_VALUE))('%s is read quickly', (_, read) => {
  expect(slowOf(read, values)).toEqual([]);
});
