import type { Connection } from 'mongoose';
import type { Inbox } from '../inbox/inbox.ts';
import { createFindSignedIn } from '../operators/signed-in.ts';
import type { Logger } from '../platform/logger.ts';
import { createHub } from './hub.ts';
import { createLiveUpdates, type LiveUpdates } from './live.ts';
import { createPresence } from './presence.ts';
import { createReadRows } from './rows.ts';
import type { RedisClient } from '../platform/redis.ts';

type Dependencies = {
  connection: Connection;
  inbox: Pick<Inbox, 'toRows'>;
  redis: RedisClient;
  subscriber: RedisClient;
  presenceName: string;
  draining: AbortSignal;
  logger: Logger;
};

/** Assembles the live updates of one API process. They open nothing until a browser connects. */
export const openLiveUpdates = ({
  connection,
  inbox,
  redis,
  subscriber,
  presenceName: name,
  draining,
  logger,
}: Dependencies): LiveUpdates =>
  createLiveUpdates({
    hub: createHub({ connection, readRows: createReadRows(connection, inbox), logger }),
    createPresence: (onChange) => createPresence({ redis, subscriber, name, onChange }),
    findSignedIn: createFindSignedIn(connection),
    draining,
    logger,
  });
