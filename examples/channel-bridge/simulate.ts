import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openBadNetwork } from './bad-network.ts';
import { openBridgeProcess } from './bridge-process.ts';
import { openMessenger, type Shown } from './messenger.ts';
import { type OperatorApi, setUpAssistant } from './set-up.ts';

const SAME_WITHIN_MS = 30_000;
const LONG = 'A long answer that is more than five hundred characters. '.repeat(40).trim();

type Simulated = {
  history: Shown[];
  chat: Shown[];
  counts: { lost: number; repeated: number; passed: number; restarts: number };
};

/**
 * Talks through a messenger, the bridge and Parley, while events are lost and the bridge is killed. After each step it
 * waits until the chat shows what the history holds.
 */
export const simulate = async (
  url: string,
  operatorApi: OperatorApi,
  log: (line: string) => void,
): Promise<Simulated> => {
  const folder = mkdtempSync(join(tmpdir(), 'parley-bridge-'));
  const bridge = await openBridgeProcess(log);
  const messenger = await openMessenger({ bridgeUrl: bridge.url });
  const network = await openBadNetwork({ bridgeUrl: bridge.url });
  const chatId = `chat-${randomUUID()}`;

  try {
    const assistant = await setUpAssistant(operatorApi, network.url);
    await bridge.start({
      PARLEY_URL: url,
      MESSENGER_URL: messenger.url,
      STATE_FILE: join(folder, 'bridge.sqlite'),
      REPAIR_EVERY_MS: '1000',
      ASSISTANT_ID: assistant.assistantId,
      VERIFY_TOKEN: assistant.verifyToken,
      API_KEY: assistant.apiKey,
      WEBHOOK_SECRET: assistant.webhookSecret,
    });

    const read = async <Body>(path: string): Promise<Body> => {
      const response = await fetch(`${url}${path}`, { headers: { Authorization: `Bearer ${assistant.apiKey}` } });
      return (await response.json()) as Body;
    };
    const history = async (): Promise<{ conversationId: string; messages: Shown[]; pending: boolean }> => {
      type Listed = { conversations: { conversationId: string }[] };
      const { conversations } = await read<Listed>(`/api/v1/conversations?session_id=${chatId}`);
      const conversationId = conversations[0]?.conversationId ?? '';
      if (conversationId === '') return { conversationId, messages: [], pending: true };
      type History = { messages: { role: string; content: string; seq: number | null }[] };
      const { messages } = await read<History>(`/api/v1/conversations/${conversationId}`);
      const pending = messages.some(({ seq }) => seq === null);
      return { conversationId, messages: messages.map(({ role, content }) => ({ role, text: content })), pending };
    };
    /** Waits until the chat shows exactly what the history holds, with this as the last message. */
    const settle = async (isLast: (message: Shown | undefined) => boolean): Promise<string> => {
      const until = Date.now() + SAME_WITHIN_MS;
      for (;;) {
        const { conversationId, messages, pending } = await history();
        const same = JSON.stringify(messages) === JSON.stringify(messenger.chat(chatId));
        if (same && !pending && isLast(messages.at(-1))) return conversationId;
        if (Date.now() > until) throw new Error('the chat does not show what the history holds');
        await sleep(100);
      }
    };
    const settleAt = (role: string) => settle((message) => message?.role === role);
    const say = async (text: string, role: string): Promise<string> => {
      log(`visitor: ${text}`);
      await messenger.say(chatId, text);
      return settleAt(role);
    };
    const operator = async (action: string, body: object = {}): Promise<void> => {
      await operatorApi('POST', `/conversations/${conversationId}/${action}`, body);
    };
    const reply = async (content: string): Promise<void> => {
      log(`operator: ${content.slice(0, 60)}`);
      await operator('replies', { content });
    };

    let conversationId = await say('When are you open?', 'assistant');
    await say('Is there parking?', 'assistant');
    log('the bridge is killed while the visitor writes');
    const said = say('And on Sundays?', 'assistant');
    await bridge.restart();
    conversationId = await said;

    log('the bridge is down while an operator takes over');
    await bridge.kill();
    await operator('escalate', { reason: 'wants a person' });
    await reply('Hello, this is Ana.');
    await reply(LONG);
    await bridge.restart();
    await settle((message) => message?.text === LONG);

    await say('Hello Ana', 'assistant');
    await say('I have two questions.', 'user');
    for (const nth of [1, 2, 3, 4, 5, 6]) await reply(`Answer ${nth}`);
    await settle((message) => message?.text === 'Answer 6');
    await operator('hand-back');
    await settleAt('system');
    await say('When are you open?', 'assistant');

    const counts = { ...network.counts, restarts: bridge.restarts() };
    return { history: (await history()).messages, chat: messenger.chat(chatId), counts };
  } finally {
    await bridge.kill();
    await messenger.close();
    await network.close();
    rmSync(folder, { recursive: true, force: true });
  }
};
