import { AsyncLocalStorage } from 'node:async_hooks';
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import type { Request, RequestHandler, Response } from 'express';
import { unavailable } from '../process/errors.ts';
import { createLru } from '../process/lru.ts';
import { addTo } from '../process/slots.ts';

const groupsOf = (part: string): string[] => (part === '' ? [] : part.split(':'));

/** The first groups of an IPv6 address, or the whole of another one. */
const beginningOf = (ip: string, groups: number): string => {
  const address = ip.replace(/^::ffff:(?=\d+\.)/i, '').split('%', 1)[0] ?? '';
  if (!isIPv6(address)) return address;
  // The URL parser converts all spellings of an address to the same text.
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const [before, after] = [groupsOf(head), groupsOf(tail ?? '')];
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0');
  return `${[...before, ...zeros, ...after].slice(0, groups).join(':')}::/${groups * 16}`;
};

/**
 * The network of one subscriber. An IPv6 subscriber has a whole /64 and could use a new address for every try. All
 * requests without an address count as one network.
 */
export const networkOf = (ip = 'unknown'): string => beginningOf(ip, 4);

/** The networks that an IPv6 customer may have: the 65,536 of a /48. An IPv4 address is a block of its own. */
export const blockOf = (ip = 'unknown'): string => beginningOf(ip, 3);

/**
 * Sets who answers for the bytes of a request, when access has found this: the assistant of the key or channel, the
 * operator, or the maker of the token. Before that, it is the network of the client.
 */
export const holdFor = (res: Response, holder: string): void => {
  res.locals.holder = holder;
};

export const holderOf = (req: Request, res: Response): string =>
  (res.locals.holder as string | undefined) ?? `network ${networkOf(req.ip)}`;

/**
 * Sets who sends a request of the operator API. Senders take turns, and one with many assistants counts as one sender.
 */
export const takeTurnsFor = (res: Response, sender: string): void => {
  res.locals.sender = sender;
};

/** Who takes turns with others: the sender, or if none is set, who answers for the bytes. */
export const senderOf = (req: Request, res: Response): string =>
  (res.locals.sender as string | undefined) ?? holderOf(req, res);

/**
 * Shares bytes, or other things, among holders. A holder may have at most as many as remain free. So one holder alone
 * gets half of them, and the next one half of the rest. Some twenty can leave less than the next one needs.
 */
export const createByteShares = (total: number) => {
  const held = new Map<string, number>();
  let inUse = 0;

  const add = (holder: string, bytes: number): void => {
    inUse += bytes;
    addTo(held, holder, bytes);
  };

  return {
    get inUse(): number {
      return inUse;
    },

    has: (holder: string): boolean => held.has(holder),

    /** True if the holder would have less than if all holders had the same. */
    isBelowEqual: (holder: string, bytes: number): boolean =>
      (held.get(holder) ?? 0) + bytes <= total / (held.size + (held.has(holder) ? 0 : 1)),

    /** The holder that has the most. */
    largest: (): string | undefined => {
      let most: [string, number] | undefined;
      for (const one of held) if (!most || one[1] > most[1]) most = one;
      return most?.[0];
    },

    /** Takes bytes for a holder. False, and takes nothing, if they are more than its share. */
    take: (holder: string, bytes: number): boolean => {
      if ((held.get(holder) ?? 0) + bytes > total - inUse - bytes) return false;
      add(holder, bytes);
      return true;
    },

    release: (holder: string, bytes: number): void => add(holder, -bytes),
  };
};

/** What a request needs beside its texts. */
const REQUEST_BYTES = 4 * 1024;

/**
 * About the most that Node keeps of a request that nobody reads yet: its headers, and the beginning of its body. It stops
 * to read when it has more than the high-water mark, and may have read as much again by then.
 */
export const keptBytesOf = ({ url = '', headers, rawHeaders, socket }: IncomingMessage) => {
  const isChunked = headers['transfer-encoding'] !== undefined;
  const ofBody = isChunked ? Number.POSITIVE_INFINITY : Number(headers['content-length'] ?? 0);
  return {
    head: rawHeaders.reduce((sum, { length }) => sum + length, REQUEST_BYTES + url.length),
    body: Math.min(ofBody, 2 * socket.readableHighWaterMark),
  };
};

/** The client of the present request. What is opened for a request may stay, and must not keep its response. */
const clients = new AsyncLocalStorage<{ res: Response | null }>();
/** Handles a request. What delays its refusal then knows whether its client has left. */
export const handleFor: RequestHandler = (_req, res, next) => {
  const client: { res: Response | null } = { res };
  res.once('close', () => (client.res = null));
  clients.run(client, next);
};

/** How many late answers a process has at the same time: as many as it has connections. Further ones come at once. */
const LATE_MAX = 10_000;
const LINES_KNOWN = 10_000;

/**
 * Delays refusals, so that a client who sends again after each does not keep the process busy. It may have thousands of
 * connections, so those of one line come one after the other. Times are in milliseconds.
 */
export const createLateLines = ({ lateMs, apartMs, mostMs }: Record<'lateMs' | 'apartMs' | 'mostMs', number>) => {
  /** When the last wait of each line is over. */
  const dueOf = createLru<number>({ most: LINES_KNOWN });
  let late = 0;

  return {
    isLate: (line: string): boolean => (dueOf.get(line) ?? 0) > performance.now(),

    /** Waits until it is the turn of this refusal, or its client has left. */
    wait: async (line: string): Promise<void> => {
      const res = clients.getStore()?.res;
      if (late >= LATE_MAX || res === null || res?.closed) return;
      const now = performance.now();
      const next = Math.max(now + lateMs, (dueOf.get(line) ?? 0) + apartMs);
      const due = Math.min(now + mostMs, next);
      dueOf.set(line, due);
      late += 1;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, due - now);
        res?.once('close', () => {
          clearTimeout(timer);
          resolve();
        });
      });
      late -= 1;
    },
  };
};

/**
 * How much of their requests all networks together may leave with a process until the answers. A network that leaves more
 * has thousands of requests with bodies that wait to be refused.
 */
const KEPT_MAX_BYTES = 192 * 1024 * 1024;
const kept = createByteShares(KEPT_MAX_BYTES);
/** Its refusals are late, so that a client who comes again after each opens fewer connections. */
const tooMuch = createLateLines({ lateMs: 1_000, apartMs: 2, mostMs: 10_000 });

/** Reads nothing more of a request, and of its connection. */
export const stopReading = (req: IncomingMessage): void => {
  req._read = () => undefined; // it would continue to read
  req.socket.pause();
};

/** Keeps nothing of a body, and reads no more of it. */
const dropBody = (req: IncomingMessage): void => {
  req.push = () => true;
  req.resume(); // drops what was read while the request waited
  stopReading(req);
};

/** Counts what is kept of a request, of its body until it is read. Refuses what is too much for its network. */
export const keepInBounds: RequestHandler = async (req, res, next) => {
  const [network, { head, body }] = [blockOf(req.ip), keptBytesOf(req)];
  let bytes = head + body;
  if (!kept.take(network, bytes)) {
    dropBody(req);
    res.set('Connection', 'close').once('finish', () => req.socket.destroy());
    await tooMuch.wait(network);
    throw unavailable();
  }
  const release = (some: number): void => {
    kept.release(network, some);
    bytes -= some;
  };
  req.once('end', () => release(Math.min(body, bytes)));
  res.once('close', () => release(bytes));
  next();
};
