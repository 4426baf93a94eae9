import { once } from 'node:events';
import { launchPeer } from './processes.ts';

/** A monotonic clock that all processes of a machine share. */
export const nowMs = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;

export type Arrivals = [eventId: string, atMs: number][];

/** The customers' server, in a separate process. It accepts every event and records the time of arrival. */
export const openSink = async () => {
  const { child, pid } = launchPeer(new URL('sink-process.ts', import.meta.url));
  const [port] = (await once(child, 'message')) as [number];
  const ask = async <Answer>(question: string): Promise<Answer> => {
    const answer = once(child, 'message') as Promise<[Answer]>;
    child.send(question);
    return (await answer)[0];
  };
  return {
    url: `http://127.0.0.1:${port}/hook`,
    port,
    pid,
    count: () => ask<number>('count'),
    /** Returns the arrivals since the last call, and deletes them. */
    take: () => ask<Arrivals>('take'),
  };
};

export type Sink = Awaited<ReturnType<typeof openSink>>;
