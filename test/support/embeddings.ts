import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type AskedEmbeddings = {
  path: string;
  authorization: string | undefined;
  body: { model: string; input: string[]; encoding_format: string };
};
type Behaviour = (response: ServerResponse, asked: AskedEmbeddings) => void;

export type EmbeddingsService = {
  baseUrl: string;
  asked: AskedEmbeddings[];
  behave: (behaviour: Behaviour) => void;
  close: () => Promise<void>;
};

/** A vector by the text's own letters, of no particular length; the last text first, as a service may. */
export const byLetters: Behaviour = (response, { body }) => {
  const data = body.input.map((text, index) => {
    const embedding = Array.from({ length: 8 }, () => 0.5);
    for (const letter of text) embedding[(letter.codePointAt(0) ?? 0) % 8]! += 3;
    return { object: 'embedding', index, embedding };
  });
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ object: 'list', data: data.toReversed(), model: body.model }));
};

/** An OpenAI-compatible `/embeddings`: real HTTP on a free port of 127.0.0.1, which keeps all it is asked. */
export const openEmbeddingsService = async (): Promise<EmbeddingsService> => {
  let behaviour = byLetters;
  const asked: AskedEmbeddings[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as AskedEmbeddings['body'];
      const one = { path: request.url ?? '', authorization: request.headers.authorization, body };
      asked.push(one);
      behaviour(response, one);
    });
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
