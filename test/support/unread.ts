import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { startRealProcess } from '../kit/processes.ts';
import { memoryMbOf } from '../kit/services.ts';

const READERS = 100;
const WAIT_MS = 8_000;

/** How many MB an API process needs for a hundred answers that nobody reads. `path`: below `/operator/v1`. */
export const memoryOfUnread = async (env: Record<string, string>, path: string, bearer: string): Promise<number> => {
  const api = await startRealProcess('api', env);
  onTestFinished(() => api.kill());
  const peak = (): number => memoryMbOf(api.pid, 'VmHWM');
  const before = peak();
  for (let nth = 0; nth < READERS; nth += 1) {
    const socket = connect(Number(new URL(api.url).port), '127.0.0.1')
      .on('error', () => undefined)
      .pause();
    onTestFinished(() => void socket.destroy());
    socket.write(`GET /operator/v1${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${bearer}\r\n\r\n`);
  }
  await pause(WAIT_MS);
  return peak() - before;
};
