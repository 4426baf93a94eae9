import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Asked = {
  path: string;
  authorization: string | undefined;
  body: { model: string; stream: boolean; messages: { role: string; content: string }[] } & Record<string, unknown>;
};

/** What the provider does with one call: speaks the protocol, or breaks it in a way of its own. */
export type Behaviour = (wire: Wire, asked: Asked) => void | Promise<void>;

export type Wire = {
  response: ServerResponse;
  /** Status 200 and the content type of a stream. */
  open: () => void;
  say: (text: string) => void;
  raw: (text: string) => void;
  /** The last chunk, token usage and `[DONE]`. */
  done: () => void;
};

export type Provider = {
  baseUrl: string;
  asked: Asked[];
  behave: (behaviour: Behaviour) => void;
  close: () => Promise<void>;
};

const chunk = (delta: object, finish: string | null = null): string =>
  `data: ${JSON.stringify({ object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;

const wireOf = (response: ServerResponse): Wire => {
  const open = () => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' });
    response.write(chunk({ role: 'assistant', content: '' }));
  };
  return {
    response,
    open,
    say: (text) => response.write(chunk({ content: text })),
    raw: (text) => response.write(text),
    done: () => {
      response.write(chunk({}, 'stop'));
      response.write(
        `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 120, completion_tokens: 7 } })}\n\n`,
      );
      response.end('data: [DONE]\n\n');
    },
  };
};

/** Says these pieces one after the other. */
export const speaking =
  (...pieces: string[]): Behaviour =>
  (wire) => {
    wire.open();
    for (const piece of pieces) wire.say(piece);
    wire.done();
  };

const readBody = async (request: IncomingMessage): Promise<Asked['body']> => {
  const chunks: Buffer[] = [];
  for await (const one of request) chunks.push(one as Buffer);
  return JSON.parse(Buffer.concat(chunks).toString()) as Asked['body'];
};

/** An OpenAI-compatible provider: real HTTP on a free port of 127.0.0.1, which keeps all it is asked. */
export const openProvider = async (): Promise<Provider> => {
  let behaviour: Behaviour = speaking('Hello.');
  const asked: Asked[] = [];
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readBody(request);
    const one = { path: request.url ?? '', authorization: request.headers.authorization, body };
    asked.push(one);
    await behaviour(wireOf(response), one);
  };
  const server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked,
    behave: (next) => {
      behaviour = next;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
};
