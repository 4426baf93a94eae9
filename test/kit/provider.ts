import type { ServerResponse } from 'node:http';
import { openReceiver } from './receiver.ts';

type Completion = { model: string; stream: boolean; messages: { role: string; content: string }[] };
type Embeddings = { model: string; input: string[]; encoding_format: string };

type ProviderRequest<Body = Completion> = {
  path: string;
  authorization: string | undefined;
  body: Body & Record<string, unknown>;
};

/** How the fake provider answers a call. It may break the protocol. */
export type Behaviour<Body = Completion> = (wire: Wire, requests: ProviderRequest<Body>) => unknown;

export type Wire = {
  response: ServerResponse;
  /** Status 200 and the content type of a stream. */
  open: () => void;
  say: (text: string) => void;
  raw: (text: string) => void;
  /** The last chunk, token usage and `[DONE]`. */
  done: () => void;
};

export type Provider<Body = Completion> = {
  baseUrl: string;
  asked: ProviderRequest<Body>[];
  behave: (behaviour: Behaviour<Body>) => void;
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

/** Streams these pieces one after the other. */
export const replyWith =
  (...pieces: string[]): Behaviour =>
  (wire) => {
    wire.open();
    for (const piece of pieces) wire.say(piece);
    wire.done();
  };

/** Answers a call, with the tokens that it cost or without telling them. */
export const answering =
  (tokens: number | null): Behaviour =>
  ({ open: begin, say, raw, response }) => {
    begin();
    say('From nine.');
    const usage = { prompt_tokens: 1, completion_tokens: (tokens ?? 0) - 1 };
    raw(`data: ${JSON.stringify({ choices: [], ...(tokens !== null && { usage }) })}\n\ndata: [DONE]\n\n`);
    response.end();
  };

/** Makes vectors from the letters of each text, not normalised. Their order is reversed, which the protocol allows. */
export const embedByLetters: Behaviour<Embeddings> = ({ response }, { body }) => {
  const data = body.input.map((text, index) => {
    const embedding = Array.from({ length: 8 }, () => 0.5);
    for (const letter of text) embedding[(letter.codePointAt(0) ?? 0) % 8]! += 3;
    return { object: 'embedding', index, embedding };
  });
  response.writeHead(200, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ object: 'list', data: data.toReversed(), model: body.model }));
};

/** An OpenAI-compatible service on a free port of 127.0.0.1. It records all requests. */
const open = async <Body>(first: Behaviour<Body>): Promise<Provider<Body>> => {
  let behaviour = first;
  const asked: ProviderRequest<Body>[] = [];
  const { url, close } = await openReceiver({
    respond: ({ path, headers, json }) => {
      const one = { path, authorization: headers.authorization, body: json as ProviderRequest<Body>['body'] };
      asked.push(one);
      return (response) => behaviour(wireOf(response), one);
    },
  });
  return {
    baseUrl: `${url}/v1`,
    asked,
    behave: (next) => {
      behaviour = next;
    },
    close,
  };
};

/** A provider of `/chat/completions`. */
export const openProvider = () => open<Completion>(replyWith('Hello.'));

export type EmbeddingsService = Provider<Embeddings>;
/** A provider of `/embeddings`. */
export const openEmbeddingsService = () => open<Embeddings>(embedByLetters);
