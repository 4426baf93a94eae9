import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import express, { type Request, type Response } from 'express';
import { expect, onTestFinished, test } from 'vitest';
import {
  holdFor,
  limitEachPerson,
  limitEachSession,
  limitEachTeam,
  takeRoomForBody,
  workOn,
} from '../../src/platform/http/shares.ts';
import { eventually } from '../support/eventually.ts';

const serve = async (app: express.Express) => {
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { ask: (path: string, options: RequestInit) => fetch(`http://127.0.0.1:${port}${path}`, options) };
};

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
  const served = await serve(app);
  onTestFinished(() => released.resolve());
  const ask = (session: string, signal: AbortSignal | null = null) =>
    served.ask('/', { headers: { Cookie: session }, signal });
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

const PLACES: [string, number, (holder: string, req: Request, res: Response) => Promise<void>][] = [
  [
    'large body',
    2, // of four, one holder has two
    async (holder, req, res) => {
      holdFor(res, holder);
      await takeRoomForBody(req, res);
    },
  ],
  ['request of a person', 4, (holder, _req, res) => limitEachPerson(holder, res)],
  ['request of a team', 6, (holder, _req, res) => limitEachTeam(holder, 'somebody', res)],
];

test.each(PLACES)(
  'after a %s, its place stays taken four times as long as it was used, half a second at most',
  async (_what, places, take) => {
    const begun: number[] = [];
    const app = express();
    app.post('/', async (req, res) => {
      await take('one', req, res);
      begun.push(performance.now());
      if (begun.length <= places) await sleep(100);
      res.end();
    });
    const { ask } = await serve(app);

    await Promise.all(Array.from({ length: places + 1 }, () => ask('/', { method: 'POST' })));

    expect(Number(begun.at(-1)) - Number(begun[0])).toBeGreaterThanOrEqual(490);
  },
);
