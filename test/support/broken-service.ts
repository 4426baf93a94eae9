import type { ServerResponse } from 'node:http';
import { openReceiver, type Received } from '../kit/receiver.ts';

export type Sent = { method: string; path: string; key: string | undefined };
/** Answers one request, or breaks its connection. */
export type Script = (response: ServerResponse) => void;

export const answer =
  (status: number, body: unknown, headers: Record<string, string> = {}): Script =>
  (response) =>
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(JSON.stringify(body));

export const refuse = (status: number, code: string, headers: Record<string, string> = {}): Script =>
  answer(status, { error: { code, message: code, requestId: 'request-1' } }, headers);

export const hangUp: Script = (response) => response.destroy();

export const stream =
  (text: string, { whole }: { whole: boolean }): Script =>
  (response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write(text, () => {
      if (whole) response.end();
      else response.destroy();
    });
  };

/** A service that answers the requests of a client as the scripts say, one after the other. */
export const openBrokenService = async (scripts: Script[]) => {
  const sent: Sent[] = [];
  const respond = ({ method, path, headers }: Received, nth: number): Script => {
    sent.push({ method, path, key: headers['idempotency-key'] as string | undefined });
    return scripts[nth - 1] ?? hangUp;
  };
  return { ...(await openReceiver({ respond })), sent };
};
