import type { Update } from './store.ts';

export type Message = { messageId: string; seq: number; role: string; content: string };
type Listed = { conversationId: string; sessionId: string; channel: string; updatedAt: string };

type Settings = { url: string; assistantId: string; verifyToken: string; apiKey: string };

/** An answer that another try may change: the caller tries again later. */
class TryAgain extends Error {}

/** The three calls that the bridge makes. */
export const createParley = ({ url, assistantId, verifyToken, apiKey }: Settings) => {
  const read = async <Body>(path: string): Promise<Body | null> => {
    const response = await fetch(`${url}${path}`, { headers: { Authorization: `Bearer ${apiKey}` } });
    if (response.status === 404) return null;
    if (!response.ok) throw new TryAgain(`GET ${path} gave ${response.status}`);
    return (await response.json()) as Body;
  };

  /**
   * Sends a visitor's message, and returns once it is accepted: the next one may follow, and perhaps both get one reply.
   * The key makes a repeated send safe. The reply is not used, because it also comes as `message.sent`.
   */
  const say = async (update: Update): Promise<void> => {
    const { updateId, chatId, text } = update;
    const response = await fetch(`${url}/api/v1/channels/webhook/${assistantId}`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${verifyToken}`,
        'Content-Type': 'application/json',
        Accept: 'text/event-stream',
        'Idempotency-Key': updateId,
      },
      body: JSON.stringify({ session_id: chatId, message: text }),
    });
    if (response.status === 422) return; // a message that Parley refuses as invalid is refused each time
    if (!response.ok || !response.body) throw new TryAgain(`the channel gave ${response.status}`);
    const events = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const accepted = await events.read();
    if (accepted.done) throw new TryAgain('the stream ended early');
    void resumeIfFailed(events, update).catch(() => undefined);
  };

  /** A turn fails only through a fault of Parley. The same message resumes it. */
  const resumeIfFailed = async (events: ReadableStreamDefaultReader<string>, update: Update): Promise<void> => {
    for (let one = await events.read(); !one.done; one = await events.read())
      if (one.value.includes('event: error')) return say(update);
  };

  return {
    say,

    /** The session of a conversation. Null if the conversation was erased or is not one of the channel. */
    findChat: async (conversationId: string): Promise<string | null> => {
      const found = await read<Listed>(`/api/v1/conversations/${conversationId}?limit=1`);
      return found?.channel === 'webhook' ? found.sessionId : null;
    },

    /** All final messages after this `seq`, in order. */
    readAfter: async (conversationId: string, seq: number): Promise<Message[]> => {
      type Page = { messages: Message[]; hasMore: boolean; nextCursor: string | null };
      const messages: Message[] = [];
      for (let cursor = ''; ; ) {
        const page = await read<Page>(`/api/v1/conversations/${conversationId}?after_seq=${seq}${cursor}`);
        messages.push(...(page?.messages ?? []));
        if (!page?.nextCursor) return messages;
        cursor = `&cursor=${encodeURIComponent(page.nextCursor)}`;
      }
    },

    /** The conversations that changed after this time, oldest change first. */
    listChanged: async (updatedAfter: string | null): Promise<Listed[]> => {
      type Page = { conversations: Listed[]; nextCursor: string | null };
      const listed: Listed[] = [];
      for (let cursor = ''; ; ) {
        const after = updatedAfter === null ? '' : `&updated_after=${encodeURIComponent(updatedAfter)}`;
        const page = await read<Page>(`/api/v1/conversations?limit=100${after}${cursor}`);
        listed.push(...(page?.conversations ?? []).filter(({ channel }) => channel === 'webhook'));
        if (!page?.nextCursor) return listed;
        cursor = `&cursor=${encodeURIComponent(page.nextCursor)}`;
      }
    },
  };
};

export type Parley = ReturnType<typeof createParley>;
