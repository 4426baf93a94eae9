import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { verifyWebhook } from '../../packages/client/src/verify-webhook.ts';
import { createLines } from './lines.ts';
import { createParley, type Message } from './parley.ts';
import { openStore, type Update } from './store.ts';

// A bridge between a messenger and Parley's inbound webhook channel (docs/channel-bridge.md). It may be killed at any
// moment: before it answers a request it has stored what it needs, and what it has not shown yet it reads again.

const { env } = process;
const setting = (name: string): string => {
  const value = env[name];
  if (!value) throw new Error(`${name} is missing`);
  return value;
};

const store = openStore(setting('STATE_FILE'));
const parley = createParley({
  url: setting('PARLEY_URL'),
  assistantId: setting('ASSISTANT_ID'),
  verifyToken: setting('VERIFY_TOKEN'),
  apiKey: setting('API_KEY'),
});
const messengerUrl = setting('MESSENGER_URL');
const secret = setting('WEBHOOK_SECRET');
const repairEveryMs = Number(env['REPAIR_EVERY_MS'] ?? 30_000);
const inLine = createLines((line) => console.log(line));

/** Sends what a chat's visitor wrote to Parley, in order. */
const sendUpdates = (chatId: string): Promise<void> =>
  inLine(`in ${chatId}`, async () => {
    for (let update = store.nextUpdate(chatId); update; update = store.nextUpdate(chatId)) {
      await parley.say(update);
      store.endUpdate(update.updateId);
    }
  });

/** Shows a message in the chat. The messenger ignores an id that it has already shown. */
const show = async (chatId: string, { messageId, role, content }: Message): Promise<void> => {
  const response = await fetch(`${messengerUrl}/send`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ chatId, id: messageId, role, text: content }),
  });
  if (!response.ok) throw new Error(`the messenger gave ${response.status}`);
};

const conversationOf = async (conversationId: string) => {
  const known = store.findConversation(conversationId);
  if (known) return known;
  const chatId = await parley.findChat(conversationId);
  if (chatId !== null) store.addConversation(conversationId, chatId);
  return store.findConversation(conversationId);
};

/**
 * Shows what a conversation has after the last shown `seq`. If `event` is the next message, nothing is read. If there
 * is a gap, an event was lost or a visitor message has that number: the messages are read from the history.
 */
const showNewer = (conversationId: string, event?: Message): Promise<void> =>
  inLine(`out ${conversationId}`, async () => {
    const conversation = await conversationOf(conversationId);
    if (!conversation || (event && event.seq <= conversation.shown)) return;
    const isNext = event?.seq === conversation.shown + 1;
    const newer = isNext ? [event] : await parley.readAfter(conversationId, conversation.shown);
    for (const message of newer) {
      if (message.role === 'user') continue;
      await show(conversation.chatId, message);
      store.setShown(conversationId, message.seq);
    }
    store.setShown(conversationId, newer.at(-1)?.seq ?? 0);
  });

/** Finds what was lost, also while the bridge was down: all conversations that changed since the last look. */
const repair = (): Promise<void> =>
  inLine('repair', async () => {
    const changed = await parley.listChanged(store.position());
    await Promise.all(changed.map(({ conversationId }) => showNewer(conversationId)));
    const last = changed.at(-1); // noted only now, so that a kill before loses nothing
    // One minute is looked at twice, because changes may become visible slightly out of order.
    if (last) store.setPosition(new Date(Date.parse(last.updatedAt) - 60_000).toISOString());
  });

type Event = {
  event: string;
  event_id: string;
  payload: { conversation_id: string; message_id: string; seq: number; role: string; content: string };
};

const onEvent = (body: Buffer, signature: string | string[] | undefined): number => {
  if (!verifyWebhook(body, signature, secret).ok) return 401;
  const { event, event_id, payload } = JSON.parse(body.toString()) as Event;
  if (event !== 'message.sent' || !store.addEvent(event_id)) return 204;
  const { conversation_id, message_id: messageId, seq, role, content } = payload;
  void showNewer(conversation_id, { messageId, seq, role, content });
  return 204;
};

const onUpdate = (body: Buffer): number => {
  const update = JSON.parse(body.toString()) as Update;
  store.addUpdate(update);
  void sendUpdates(update.chatId);
  return 204;
};

const server = createServer((request, response) => {
  const answer = async (): Promise<number> => {
    const body = await buffer(request);
    if (request.url === '/parley') return onEvent(body, request.headers['x-factory-signature']);
    return request.url === '/messenger' ? onUpdate(body) : 404;
  };
  answer().then(
    (status) => response.writeHead(status).end(),
    () => response.writeHead(400).end(),
  );
});

server.listen(Number(setting('PORT')), '127.0.0.1', () => {
  for (const chatId of store.chatsWithUpdates()) void sendUpdates(chatId);
  void repair();
  setInterval(() => void repair(), repairEveryMs);
  console.log('the bridge is ready');
});
