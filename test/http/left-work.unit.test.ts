import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { expect, onTestFinished, test } from 'vitest';
import { limitEachSession, workOn } from '../../src/platform/http/shares.ts';
import { eventually } from '../support/eventually.ts';

/** Requests of a session work until they are released. */
const openWork = async () => {
  const released = Promise.withResolvers<void>();
  const begun: string[] = [];
  const app = express();
  app.use(limitEachSession((req) => req.get('Cookie') ?? null));
  app.get('/', async (req, res) => {
    begun.push(req.get('Cookie') ?? '');
    await workOn(res, released.promise);
    res.end();
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    released.resolve();
    server.closeAllConnections();
    server.close();
  });
  const ask = (session: string, signal: AbortSignal | null = null) =>
    fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, { headers: { Cookie: session }, signal });
  return { ask, begun, release: released.resolve };
};

test('a session whose callers leave has no more work at once than one whose callers wait', async () => {
  const { ask, begun, release } = await openWork();
  const leaving = new AbortController();
  const left = ['one', 'one'].map((session) => ask(session, leaving.signal).catch(() => null));
  await eventually(() => expect(begun).toHaveLength(2));

  leaving.abort();
  await Promise.all(left);
  const next = ask('one');
  const other = ask('other');
  await eventually(() => expect(begun).toContain('other'));

  expect(begun).toEqual(['one', 'one', 'other']);
  release();
  expect((await Promise.all([next, other])).map(({ status }) => status)).toEqual([200, 200]);
});
