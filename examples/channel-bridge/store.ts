import { DatabaseSync } from 'node:sqlite';

export type Update = { updateId: string; chatId: string; text: string };
export type Conversation = { conversationId: string; chatId: string; shown: number };

/** What the bridge must remember when it is killed. Each call is one durable write or one read. */
export const openStore = (file: string) => {
  const db = new DatabaseSync(file);
  db.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS updates (
      place INTEGER PRIMARY KEY, update_id TEXT UNIQUE, chat_id TEXT, text TEXT, done INTEGER DEFAULT 0);
    CREATE TABLE IF NOT EXISTS events (event_id TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS conversations (conversation_id TEXT PRIMARY KEY, chat_id TEXT, shown INTEGER);
    CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY CHECK (id = 1), updated_after TEXT);
  `);

  return {
    /** Stores a visitor's message. The messenger may send the same update twice. */
    addUpdate: ({ updateId, chatId, text }: Update): void => {
      db.prepare('INSERT OR IGNORE INTO updates (update_id, chat_id, text) VALUES (?, ?, ?)').run(
        updateId,
        chatId,
        text,
      );
    },
    nextUpdate: (chatId: string): Update | undefined =>
      db
        .prepare(
          `SELECT update_id AS updateId, chat_id AS chatId, text FROM updates
           WHERE chat_id = ? AND done = 0 ORDER BY place LIMIT 1`,
        )
        .get(chatId) as Update | undefined,
    endUpdate: (updateId: string): void => {
      db.prepare('UPDATE updates SET done = 1 WHERE update_id = ?').run(updateId);
    },
    chatsWithUpdates: (): string[] =>
      db
        .prepare('SELECT DISTINCT chat_id AS chatId FROM updates WHERE done = 0')
        .all()
        .map(({ chatId }) => String(chatId)),

    /** True if this event is new. */
    addEvent: (eventId: string): boolean =>
      db.prepare('INSERT OR IGNORE INTO events (event_id) VALUES (?)').run(eventId).changes === 1,

    findConversation: (conversationId: string): Conversation | undefined =>
      db
        .prepare(
          `SELECT conversation_id AS conversationId, chat_id AS chatId, shown FROM conversations
           WHERE conversation_id = ?`,
        )
        .get(conversationId) as Conversation | undefined,
    addConversation: (conversationId: string, chatId: string): void => {
      db.prepare('INSERT OR IGNORE INTO conversations VALUES (?, ?, 0)').run(conversationId, chatId);
    },
    /** The chat shows all messages up to this `seq`. */
    setShown: (conversationId: string, seq: number): void => {
      db.prepare('UPDATE conversations SET shown = max(shown, ?) WHERE conversation_id = ?').run(seq, conversationId);
    },

    /** Conversations that changed after this time were not looked at yet. */
    position: (): string | null => {
      const row = db.prepare('SELECT updated_after AS at FROM position').get();
      return row ? String(row['at']) : null;
    },
    setPosition: (updatedAfter: string): void => {
      db.prepare('INSERT OR REPLACE INTO position VALUES (1, ?)').run(updatedAfter);
    },
    close: (): void => db.close(),
  };
};

export type Store = ReturnType<typeof openStore>;
