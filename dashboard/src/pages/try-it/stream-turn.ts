import { createParser } from 'eventsource-parser';
import { at, openStream } from '../../api.ts';
import { Problem } from '../../problem.ts';
import type { Reply } from '../../types.ts';

type Turn = { assistantId: string; sessionId: string; message: string };
type Delta = { text: string; attempt: number };

/** Sends a turn and reads the reply as it is written. `onText` gets the whole text so far. */
export const streamTurn = async ({ assistantId, ...body }: Turn, onText: (text: string) => void): Promise<Reply> => {
  const response = await openStream(at`/assistants/${assistantId}/playground`, body);
  let attempt = 0;
  let text = '';
  let reply: Reply | null = null;
  let failure: Problem | null = null;
  const parser = createParser({
    onEvent: ({ event, data }) => {
      if (event === 'delta') {
        const delta = JSON.parse(data) as Delta;
        text = delta.attempt === attempt ? text + delta.text : delta.text;
        attempt = delta.attempt;
        onText(text);
      }
      if (event === 'message') reply = JSON.parse(data) as Reply;
      if (event === 'error') failure = new Problem(500, JSON.parse(data));
    },
  });
  const decoder = new TextDecoder();
  const reader = response.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read())
    parser.feed(decoder.decode(read.value, { stream: true }));
  if (reply) return reply;
  throw failure ?? new Problem(0, undefined);
};
