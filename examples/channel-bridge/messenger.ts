import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

export type Shown = { role: string; text: string };
type Sent = { chatId: string; id: string; role: string; text: string };

/**
 * A messenger, as the visitor sees it. It posts what a visitor writes to the bridge until the bridge accepts it, and
 * posts it twice, as messengers may. It shows each message id once.
 */
export const openMessenger = async ({ bridgeUrl }: { bridgeUrl: string }) => {
  const chats = new Map<string, Shown[]>();
  const ids = new Set<string>();
  let repeated = 0;
  const chat = (chatId: string): Shown[] => {
    const shown = chats.get(chatId) ?? [];
    chats.set(chatId, shown);
    return shown;
  };

  const receive = ({ chatId, id, role, text }: Sent): void => {
    if (ids.has(id)) repeated += 1;
    else chat(chatId).push({ role, text });
    ids.add(id);
  };
  const server = createServer((request, response) => {
    void json(request).then((body) => {
      receive(body as Sent);
      return response.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

  const post = async (update: object): Promise<void> => {
    for (;;) {
      const body = JSON.stringify(update);
      const response = await fetch(`${bridgeUrl}/messenger`, { method: 'POST', body }).catch(() => null);
      if (response?.ok) return;
      await sleep(100);
    }
  };

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    chat,
    /** How often the bridge sent a message id again. The visitor did not see these. */
    repeated: (): number => repeated,
    /** The visitor writes. Resolves when the bridge has accepted it. */
    say: async (chatId: string, text: string): Promise<void> => {
      chat(chatId).push({ role: 'user', text });
      const update = { updateId: randomUUID(), chatId, text };
      await post(update);
      await post(update);
    },
    close: (): Promise<void> =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
};
