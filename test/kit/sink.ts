import { fork } from 'node:child_process';
import { once } from 'node:events';

/** A monotonic clock that all processes of a machine share. */
export const nowMs = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;

export type Arrivals = [eventId: string, atMs: number][];

/** The customers' server, in a separate process. It accepts every event and records the time of arrival. */
export const openSink = async () => {
  const child = fork(new URL('sink-process.ts', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const [port] = (await once(child, 'message')) as [number];
  const ask = async <Answer>(question: string): Promise<Answer> => {
    const answer = once(child, 'message') as Promise<[Answer]>;
    child.send(question);
    return (await answer)[0];
  };
  return {
    url: `http://127.0.0.1:${port}/hook`,
    port,
    pid: child.pid as number,
    count: () => ask<number>('count'),
    /** Returns the arrivals since the last call, and deletes them. */
    take: () => ask<Arrivals>('take'),
    close: (): void => void child.kill(),
  };
};

export type Sink = Awaited<ReturnType<typeof openSink>>;
