import { EventEmitter } from 'node:events';
import type { Request, Response } from 'express';
import { expect, test } from 'vitest';
import { ApiError } from '../../src/platform/process/errors.ts';
import type { StartTurn } from '../../src/turns/start-turn.ts';
import { createStreamTurn } from '../../src/turns/stream.ts';

const aResponse = () => {
  const written: string[] = [];
  const fake = Object.assign(new EventEmitter(), {
    writableNeedDrain: false,
    destroyed: false,
    locals: {},
    set: () => fake,
    flushHeaders: () => undefined,
    write: (text: string) => written.push(text),
    end: () => undefined,
  });
  return { written, fake };
};

test('a caller who does not read gets the text in one piece once he reads again', async () => {
  const { written, fake } = aResponse();
  const pieces = Array.from({ length: 1_000 }, (_, nth) => String(nth % 10));
  const startTurn: StartTurn = async ({ onProgress }) => ({
    turnId: 't',
    conversationId: 'c',
    replayed: false,
    response: async () => {
      let text = '';
      for (const [nth, piece] of pieces.entries()) {
        fake.writableNeedDrain = nth >= 2 && nth <= 900;
        text += piece;
        if (nth < 950) onProgress?.({ attempt: 1, text });
      }
      return { reply: pieces.join(''), conversationId: 'c', messageId: 'm' };
    },
    delivered: () => undefined,
    end: () => undefined,
  });
  const stream = createStreamTurn({ startTurn, toApiError: () => new ApiError('internal_error') });

  await stream({} as never, {} as Request, fake as unknown as Response);

  const deltas = written.filter((one) => one.startsWith('event: delta'));
  const texts = deltas.map((one) => (JSON.parse(one.slice(one.indexOf('data: ') + 6)) as { text: string }).text);
  expect(texts.join('')).toBe(pieces.join(''));
  expect(deltas.length).toBeLessThan(60);
});
