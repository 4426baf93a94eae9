import type { Connection } from 'mongoose';
import type { InboxStore } from '../conversations/inbox.ts';
import type { ReadAssignees } from '../inbox/assignees.ts';
import { serverDate } from '../process/clock.ts';
import { openMongo } from '../mongo/mongo.ts';
import type { LiveRow } from './subscriber.ts';
import { type Inbox, toInboxRow } from '../inbox/inbox.ts';
import { createFindSignedIn } from '../operators/access.ts';
import type { Logger } from '../process/logger.ts';
import { FEED_SILENT_AFTER_MS } from './change-feed.ts';
import { CATCH_UPS, createHub } from './hub.ts';
import { createLiveUpdates, type LiveUpdates } from './live.ts';
import { createPresence } from './presence.ts';
import type { RedisClient } from '../redis/redis.ts';

/**
 * Reads the rows of these conversations, if they belong to these assistants. The rows have no read position, because
 * one row is sent to all operators.
 */
export const createReadRows =
  (inbox: Pick<InboxStore, 'readRows'>, readAssignees: ReadAssignees) =>
  async (keys: string[], assistantIds: string[] | null): Promise<LiveRow[]> => {
    const context = { assignees: await readAssignees(), now: serverDate(), readSeq: null };
    const rows: LiveRow[] = [];
    for await (const one of inbox.readRows(keys, assistantIds)) {
      const { readSeq: _own, ...row } = toInboxRow(one, context);
      const { conversationId, assistantId } = row;
      rows.push({ conversationId, assistantId, json: JSON.stringify(row) });
    }
    return rows;
  };

/** The change stream, the catch-ups, and what ends them. */
const CONNECTIONS = 2 * CATCH_UPS;
const CONNECTED_WITHIN_MS = 800;

type Dependencies = {
  connection: Connection;
  conversations: { inbox: InboxStore };
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
  conversations,
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
      readRows: createReadRows(conversations.inbox, inbox.readAssignees),
      logger,
    }),
    createPresence: (onChange) => createPresence({ redis, subscriber, name, onChange }),
    findSignedIn: createFindSignedIn(connection),
    draining,
    logger,
  });
