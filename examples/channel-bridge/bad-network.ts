import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/**
 * The network between Parley and the bridge. It loses every third event (Parley gets an answer, the bridge gets
 * nothing), and repeats every second of the others.
 */
export const openBadNetwork = async ({ bridgeUrl }: { bridgeUrl: string }) => {
  const counts = { lost: 0, repeated: 0, passed: 0 };
  let nth = 0;

  const pass = async (body: Buffer, signature: string): Promise<number> => {
    const headers = { 'X-Factory-Signature': signature, 'Content-Type': 'application/json' };
    const response = await fetch(`${bridgeUrl}/parley`, { method: 'POST', headers, body: new Uint8Array(body) });
    return response.status;
  };

  const handle = async (request: IncomingMessage): Promise<number> => {
    const body = await buffer(request);
    const signature = String(request.headers['x-factory-signature']);
    nth += 1;
    if (nth % 3 === 0) {
      counts.lost += 1;
      return 204;
    }
    try {
      const status = await pass(body, signature);
      if (nth % 2 === 0) {
        await pass(body, signature);
        counts.repeated += 1;
      }
      counts.passed += 1;
      return status;
    } catch {
      counts.lost += 1; // the bridge is down
      return 502;
    }
  };
  const server = createServer((request, response) => {
    void handle(request).then((status) => response.writeHead(status).end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/parley`,
    counts,
    close: (): Promise<void> =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
};
