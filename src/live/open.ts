import type { Connection } from 'mongoose';
import { type ChannelName, conversationModels, type StoredConversation } from '../conversations/conversation.ts';
import type { ReadAssignees } from '../inbox/assignees.ts';
import { ROW_FIELDS, toInboxRow } from '../inbox/list.ts';
import { serverDate } from '../process/clock.ts';
import { collectionOf, openMongo } from '../mongo/mongo.ts';
import type { LiveRow } from './subscriber.ts';
import type { Inbox } from '../inbox/inbox.ts';
import { createFindSignedIn } from '../operators/access.ts';
import type { Logger } from '../process/logger.ts';
import { FEED_SILENT_AFTER_MS } from './change-feed.ts';
import { CATCH_UPS, createHub } from './hub.ts';
import { createLiveUpdates, type LiveUpdates } from './live.ts';
import { createPresence } from './presence.ts';
import type { RedisClient } from '../redis/redis.ts';

const NO_PLAYGROUND: { $ne: ChannelName } = { $ne: 'playground' };

/**
 * Reads the rows of these conversation keys, as far as they belong to these assistants. They have no read position,
 * because one row is sent to all operators. Playground conversations are in no inbox.
 */
export const createReadRows = (connection: Connection, readAssignees: ReadAssignees) => {
  const conversations = collectionOf<StoredConversation>(conversationModels(connection).conversations);

  return async (keys: string[], assistantIds: string[] | null): Promise<LiveRow[]> => {
    const wanted = {
      _id: { $in: keys },
      channel: NO_PLAYGROUND,
      ...(assistantIds && { assistantId: { $in: assistantIds } }),
    };
    const context = { assignees: await readAssignees(), now: serverDate(), readSeq: null };
    const rows: LiveRow[] = [];
    // A document can have a megabyte of texts, of which a row needs a line. An answer of MongoDB has at most 16 MB, and
    // only one of them is in memory.
    for await (const one of conversations.find(wanted, { projection: ROW_FIELDS, batchSize: keys.length })) {
      const { readSeq: _own, ...row } = toInboxRow(one, context);
      const { conversationId, assistantId } = row;
      rows.push({ conversationId, assistantId, json: JSON.stringify(row) });
    }
    return rows;
  };
};

/** The change stream, the catch-ups, and what ends them. */
const CONNECTIONS = 2 * CATCH_UPS;
const CONNECTED_WITHIN_MS = 800;

type Dependencies = {
  connection: Connection;
  mongodbUrl: string;
  inbox: Pick<Inbox, 'readAssignees'>;
  redis: RedisClient;
  subscriber: RedisClient;
  presenceName: string;
  draining: AbortSignal;
  logger: Logger;
};

/** Assembles the live updates of one API process. They open nothing until a browser connects. */
export const openLiveUpdates = ({
  connection,
  mongodbUrl: url,
  inbox,
  redis,
  subscriber,
  presenceName: name,
  draining,
  logger,
}: Dependencies): LiveUpdates =>
  createLiveUpdates({
    hub: createHub({
      connect: () =>
        openMongo(
          {
            url,
            timeoutMs: CONNECTED_WITHIN_MS,
            maxPoolSize: CONNECTIONS,
            silentAfterMs: FEED_SILENT_AFTER_MS,
            aside: true,
          },
          logger,
        ),
      readRows: createReadRows(connection, inbox.readAssignees),
      logger,
    }),
    createPresence: (onChange) => createPresence({ redis, subscriber, name, onChange }),
    findSignedIn: createFindSignedIn(connection),
    draining,
    logger,
  });
