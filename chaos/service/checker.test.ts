import { expect, onTestFinished, test } from 'vitest';
import { newHistories, type Sent, type StoredMessage, type Way } from './history.ts';
import { judgeTurns } from './rules-of-turns.ts';
import { visit } from './visitors.ts';
import { createRandom } from '../../test/kit/random.ts';

import { type Answer, openReceiver, type Received } from '../../test/kit/receiver.ts';

const SESSION = 'one';
const LOST = 'lost-turn';
const KEPT = 'kept-turn';
const REPLY = { reply: 'hello', conversationId: 'conversation', messageId: 'reply' };

const aMessage = (message: Partial<StoredMessage>): StoredMessage => ({
  messageId: 'message',
  turnId: KEPT,
  seq: 1,
  role: 'user',
  content: 'hi',
  ...message,
});
const theReply = (reply: Partial<StoredMessage> = {}): StoredMessage =>
  aMessage({ messageId: 'reply', role: 'assistant', content: 'hello', ...reply });

const json = (status: number, body: object, headers = {}): Answer => ({
  status,
  headers: { 'Content-Type': 'application/json', ...headers },
  body: JSON.stringify(body),
});

/** A service that accepts a visitor's first turn and loses it. It answers the repeated message. */
const visitAForgetfulService = async (way: Way): Promise<Sent> => {
  let over = false;
  const histories = newHistories();
  const respond = ({ method }: Received): Answer => {
    if (method === 'GET') return json(404, {});
    if (over) return json(200, REPLY);
    over = true;
    if (way === 'async') return json(202, { turnId: LOST }, { Location: `/api/v1/turns/${LOST}` });
    const accepted = `event: accepted\ndata: ${JSON.stringify({ turnId: LOST })}\n\n`;
    return (response) =>
      response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write(accepted, () => response.destroy());
  };
  const service = await openReceiver({ respond });
  onTestFinished(service.close);
  const assistant = { assistantId: 'assistant', apiKey: 'key', channelToken: 'token' };
  const api = (): string => service.url;
  const options = { name: SESSION, way, assistant, hurry: 1, api, random: createRandom(1), histories };
  await visit({ ...options, isOver: () => over });
  return histories.sent[0]!;
};

const judge = (sent: Sent[], stored: StoredMessage[]) =>
  judgeTurns({ ...newHistories(), sent }, new Map([[SESSION, stored]])).map(({ rule }) => rule);

test.each(['async', 'stream'] as const)('a turn that was accepted (%s) and is lost is noticed', async (way) => {
  const sent = await visitAForgetfulService(way);
  const stored = [aMessage({ content: sent.message }), theReply()];

  expect(sent.told).toEqual(REPLY);
  expect(judge([sent], stored)).toEqual(['what was accepted is stored']);
  expect(judge([{ ...sent, accepted: new Set([KEPT]) }], stored)).toEqual([]);
});

const GAPS = 'numbers have no gaps';

test.each<[string, StoredMessage[], string[]]>([
  ['the message and the reply of one turn', [aMessage({}), theReply()], []],
  ['messages of two turns', [aMessage({}), theReply({ turnId: 'other' })], [GAPS]],
  [
    'a reply and an operator’s message',
    [aMessage({}), theReply(), aMessage({ role: 'operator', turnId: null })],
    [GAPS],
  ],
  ['two replies', [aMessage({}), theReply(), theReply()], [GAPS]],
])('%s with the same number are judged', (_what, stored, expected) => {
  expect(judge([], stored).filter((rule) => rule === GAPS)).toEqual(expected);
});
