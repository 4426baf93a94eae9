import { pipeline } from 'node:stream/promises';
import { MIMEType, promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import type { Request, RequestHandler, Response } from 'express';
import { ApiError, invalid, unavailable } from '../process/errors.ts';
import { createRestedWork } from './request-slots.ts';
import { createByteShares, holderOf } from './shares.ts';
import { createSlices, restIfBusy } from '../process/slices.ts';
import { createSlots, oneEach } from '../process/slots.ts';
import { forEachJsonMark, JSON_MARKS } from '../process/validation.ts';

/** A piece of JSON is sent when it has about this many characters. */
const PIECE = 64 * 1024;
/** The maximum length of an answer without its lists, in characters, because this part is encoded in one step. */
const HEAD_MAX = 256 * 1024;

/**
 * Writes an object as JSON: `head`, then its lists piece by piece, so that no list is whole in memory and other work
 * runs in between. `head` is encoded in one step, so a large one is an error of the program.
 */
export async function* toJson(
  head: object,
  lists: Record<string, AsyncIterable<object[]> | Iterable<object[]>>,
): AsyncGenerator<string> {
  const slices = createSlices();
  let piece = JSON.stringify(head).slice(0, -1);
  if (piece.length > HEAD_MAX) throw new Error('an answer has more than its bound beside its lists');
  for (const [name, pages] of Object.entries(lists)) {
    piece += `${piece === '{' ? '' : ','}${JSON.stringify(name)}:[`;
    let separator = '';
    for await (const page of pages) {
      for (const one of page) {
        piece += `${separator}${JSON.stringify(one)}`;
        separator = ',';
        if (piece.length >= PIECE) {
          yield piece;
          piece = '';
        }
        if (slices.isOver()) await slices.next();
      }
    }
    piece += ']';
  }
  yield `${piece}}`;
}

/**
 * Sends JSON, or another `type`, piece by piece, so that it is never whole in memory. A failure before the first piece
 * is still an error response. Also resolves if the caller leaves, or if `signal`, which ends the reads, is aborted.
 */
export const sendJson = async (
  res: Response,
  pieces: AsyncGenerator<string>,
  signal?: AbortSignal,
  type = 'json',
): Promise<void> => {
  const first = await pieces.next();
  async function* all(): AsyncGenerator<string> {
    let text = first.done ? '' : first.value;
    for await (const piece of pieces) {
      text += piece;
      if (text.length < PIECE) continue;
      yield text;
      text = '';
      const rest = restIfBusy();
      if (rest) await rest;
    }
    if (text !== '') yield text;
  }
  res.type(type);
  await pipeline(all(), res).catch((cause: unknown) => {
    const left = (cause as { code?: unknown } | null)?.code === 'ERR_STREAM_PREMATURE_CLOSE';
    if (!left && !signal?.aborted) throw cause;
  });
};

export const BODY_LIMIT_BYTES = 65_536;
/** The maximum bytes of all bodies that arrive, or wait until they are parsed. */
const ARRIVING_MAX_BYTES = 64 * 1024 * 1024;
/**
 * How many bodies are decompressed at once. Each may need a window of 16 MiB before its first byte comes out, and a
 * thread of the pool that also reads files and hashes passwords.
 */
const DECODING_MAX = 2;
/**
 * How many values the JSON of a large body may have. A large body holds long texts, and parsing a million small values
 * would hold the event loop for some hundred milliseconds.
 */
const VALUES_MAX = 10_000;
/** After an upload is refused, its rest is read and discarded for this time, so that the sender can read the answer. */
const LINGER_MS = 2_000;

const arriving = createByteShares(ARRIVING_MAX_BYTES);
/** The bodies that are not parsed yet, by holder, the oldest first. */
const unfinished = new Map<string, Set<() => void>>();

/**
 * Takes bytes for a body. Many holders could together hold all of them with bodies that they do not end. So for a holder
 * that has less than an equal share, the oldest bodies of the one with the most are refused.
 */
const takeArriving = (holder: string, bytes: number): boolean => {
  while (!arriving.take(holder, bytes)) {
    const largest = arriving.largest();
    if (largest === undefined || largest === holder || !arriving.isBelowEqual(holder, bytes)) return false;
    const [refuseOldest] = unfinished.get(largest) ?? [];
    if (!refuseOldest) return false;
    refuseOldest();
  }
  return true;
};
/** A holder decodes one body at a time, so a caller with many compressed bodies delays only itself. */
const decoding = createSlots(oneEach(DECODING_MAX));

type Decode = (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>;

const DECODERS: Record<string, Decode> = {
  gzip: promisify(gunzip) as Decode,
  'x-gzip': promisify(gunzip) as Decode,
  deflate: promisify(inflate) as Decode,
  br: promisify(brotliDecompress) as Decode,
};

const invalidJson = (): ApiError => new ApiError('invalid_json');
const tooLarge = (limitBytes: number): ApiError =>
  new ApiError(
    'payload_too_large',
    limitBytes === BODY_LIMIT_BYTES ? {} : { message: `The request body is larger than ${limitBytes / 1024} KiB.` },
  );

const hasBody = ({ headers }: Request): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;

/** Blanks in a content type are read in quadratic time. */
const CONTENT_TYPE_MAX = 200;

/** True for `application/json` in UTF-8. */
export const isJson = (contentType: string | undefined): boolean => {
  if (contentType === 'application/json') return true;
  if (contentType !== undefined && contentType.length > CONTENT_TYPE_MAX) return false;
  try {
    const { essence, params } = new MIMEType(contentType ?? '');
    return essence === 'application/json' && /^utf-?8$/i.test(params.get('charset') ?? 'utf-8');
  } catch {
    return false;
  }
};

/** True if the body is certainly not larger than an ordinary one. */
export const isSmallBody = ({ headers }: Request): boolean =>
  headers['content-encoding'] === undefined && Number(headers['content-length']) <= BODY_LIMIT_BYTES;

/** Undefined for a body that is not compressed. */
const decoderOf = (req: Request): Decode | undefined => {
  const coding = (req.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (coding === 'identity') return undefined;
  const decode = Object.hasOwn(DECODERS, coding) ? DECODERS[coding] : undefined;
  if (!decode) throw invalidJson();
  return decode;
};

type HeldBytes = {
  /** Aborts once the bytes are refused: others need them, or the caller has left. */
  signal: AbortSignal;
  /** Throws 503 if the holder may not have so many more. */
  take: (bytes: number) => void;
  release: () => void;
  refuse: () => void;
};

/** The bytes of one body, which count against the share of its holder until they are released or refused. */
const holdBytes = (holder: string): HeldBytes => {
  const refused = new AbortController();
  const own = unfinished.get(holder) ?? new Set();
  let size = 0;
  const release = (): void => {
    arriving.release(holder, size);
    size = 0;
    own.delete(refuse);
    if (own.size === 0 && unfinished.get(holder) === own) unfinished.delete(holder);
  };
  const refuse = (): void => {
    release();
    refused.abort(unavailable());
  };
  unfinished.set(holder, own.add(refuse));
  const take = (bytes: number): void => {
    refused.signal.throwIfAborted();
    if (!takeArriving(holder, bytes)) throw unavailable();
    size += bytes;
  };
  return { signal: refused.signal, take, release, refuse };
};

/** So many pieces of a body are joined. Each costs some 400 bytes, however short it is. */
const PIECES_JOINED = 32;

/** Gathers the pieces of a body. */
export const createPieces = () => {
  const [blocks, pieces]: [Buffer[], Buffer[]] = [[], []];
  return {
    push: (piece: Buffer): void => {
      if (pieces.push(piece) === PIECES_JOINED) blocks.push(Buffer.concat(pieces.splice(0)));
    },

    /** All that was gathered. Nothing is kept. */
    take: (): Buffer => Buffer.concat([...blocks.splice(0), ...pieces.splice(0)]),

    clear: (): void => void (blocks.length = pieces.length = 0),
  };
};

/** Reads the body as it arrives. */
const readAll = async (req: Request, limitBytes: number, held: HeldBytes): Promise<Buffer> => {
  const pieces = createPieces();
  const arrived = Promise.withResolvers<void>();
  let size = 0;
  const collect = (chunk: Buffer): void => {
    try {
      size += chunk.length;
      if (size > limitBytes) throw tooLarge(limitBytes);
      held.take(chunk.length);
      pieces.push(chunk);
    } catch (cause) {
      refuse(cause);
    }
  };
  const refuse = (cause: unknown): void => {
    req.off('data', collect);
    arrived.reject(cause);
  };
  held.signal.addEventListener('abort', () => refuse(held.signal.reason), { once: true });
  req.on('data', collect);
  req.once('end', arrived.resolve);
  req.on('error', () => arrived.reject(invalidJson()));
  try {
    await arrived.promise;
    return pieces.take();
  } finally {
    pieces.clear(); // the request stays in memory as long as its connection
  }
};

/**
 * Decodes a body that is complete, so that a slow sender holds no decoder. The decoder ends as soon as the result is
 * too large.
 */
const decodeAll = async (
  decode: Decode,
  bytes: Buffer,
  { limitBytes, holder, held }: { limitBytes: number; holder: string; held: HeldBytes },
): Promise<Buffer> => {
  const slot = await decoding.acquire(holder, { signal: held.signal });
  if (!slot) throw unavailable();
  try {
    const decoded = await decode(bytes, { maxOutputLength: limitBytes });
    held.take(decoded.length);
    return decoded;
  } catch (cause) {
    if (cause instanceof ApiError) throw cause;
    throw (cause as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? tooLarge(limitBytes) : invalidJson();
  } finally {
    slot.release();
  }
};

const discardRest = (req: Request, res: Response): void => {
  req.resume();
  res.once('finish', () => {
    const timer = setTimeout(() => void (req.complete || req.destroy()), LINGER_MS);
    timer.unref();
  });
};

/** The bodies of most messages are shorter. */
const SHORT_BODY_BYTES = 4 * 1024;
/** Of one holder, one longer body is parsed at a time. The next one waits, four times as long as that took. */
const parsing = createRestedWork<object>();

const utf8 = new TextDecoder('utf-8', { fatal: true });

const parseObject = (bytes: Buffer): object => {
  let value: unknown;
  try {
    value = JSON.parse(utf8.decode(bytes));
  } catch {
    throw invalidJson();
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidJson();
  return value;
};

/** Refuses JSON with too many values, before it is parsed. */
const checkValues = async (bytes: Buffer): Promise<void> => {
  let values = 0;
  await forEachJsonMark(bytes, (mark) => {
    if (mark !== JSON_MARKS.colon) values += 1;
    if (values > VALUES_MAX) throw new ApiError('invalid_json', { message: 'The body has too many values.' });
  });
};

/** Waits until it is the turn of a request, or the signal aborts. */
export type TakeTurn = (res: Response, signal?: AbortSignal) => Promise<void>;

type Reading = { optional?: boolean; limitBytes?: number; takeTurn?: TakeTurn };

/**
 * Reads a JSON object. It takes its turn once the body has arrived, so that a slow sender holds none, and parses it
 * afterwards, because values may take twenty times as much memory as their bytes. The size is checked before the syntax
 * (docs/contract.md, Order of checks), so a body that is too large always gives 413. The limit counts both the bytes that
 * arrive and those that come out of the decoder.
 */
const readObject = async (
  req: Request,
  res: Response,
  { limitBytes = BODY_LIMIT_BYTES, takeTurn }: Reading,
): Promise<object> => {
  if (Number(req.headers['content-length']) > limitBytes) throw tooLarge(limitBytes);
  const decode = decoderOf(req);
  // No event follows if the caller has left before somebody listens.
  if (req.destroyed || res.closed) throw unavailable();
  const holder = holderOf(req, res);
  const held = holdBytes(holder);
  res.once('close', held.refuse); // the caller has left
  try {
    const sent = await readAll(req, limitBytes, held);
    await takeTurn?.(res, held.signal);
    const bytes = decode ? await decodeAll(decode, sent, { limitBytes, holder, held }) : sent;
    if (!isJson(req.headers['content-type'])) throw invalidJson();
    if (bytes.length > BODY_LIMIT_BYTES) await checkValues(bytes);
    if (bytes.length <= SHORT_BODY_BYTES) return parseObject(bytes);
    return await parsing(holder, async () => parseObject(bytes), held.signal);
  } finally {
    res.off('close', held.refuse);
    held.release();
  }
};

/**
 * The bytes of an uploaded file as they arrive. The sender waits while the caller stores a piece, so that the file is
 * never whole in memory. Throws if it is too large, and then the rest is read and discarded.
 */
export async function* uploadedBytes(req: Request, res: Response, limitBytes: number): AsyncGenerator<Buffer> {
  const larger = () =>
    new ApiError('payload_too_large', { message: `The file is larger than ${limitBytes / 1e6} MB.` });
  let [size, ended] = [0, false];
  try {
    if (Number(req.headers['content-length']) > limitBytes) throw larger();
    if (decoderOf(req)) throw invalid('file', 'compressed', 'must be sent without Content-Encoding');
    for await (const piece of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > limitBytes) throw larger();
      yield piece;
    }
    ended = true;
  } catch (cause) {
    throw cause instanceof ApiError ? cause : invalidJson(); // the caller has closed the connection
  } finally {
    if (!ended) discardRest(req, res);
  }
}

/**
 * Reads the body as a JSON object: `application/json`, UTF-8, at most 64 KiB or `limitBytes`. Any other body gives
 * `invalid_json`, and the error never quotes the body. With `optional`, a missing body counts as `{}`. `express.json`
 * is not used, because it reads a refused upload to its end before it answers.
 */
export const jsonBody =
  (reading: Reading = {}): RequestHandler =>
  async (req, res, next) => {
    if (!hasBody(req)) {
      if (!reading.optional) throw invalidJson();
      await reading.takeTurn?.(res);
      req.body = {};
      return next();
    }
    try {
      req.body = await readObject(req, res, reading);
      // Whatever keeps the request after its answer must not keep its body too.
      res.once('finish', () => {
        req.body = undefined;
      });
    } catch (cause) {
      discardRest(req, res);
      throw cause;
    }
    next();
  };

/**
 * A cell of CSV. A text that begins like a formula gets an apostrophe, because a spreadsheet would run it. So does one that
 * has apostrophes before it, so that a reader can always take one away.
 */
const csvCell = (value: string | number): string => {
  const text = String(value).replace(/^(?='*[=+\-@\t])/, typeof value === 'string' ? "'" : '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const csvLine = (cells: (string | number)[]): string => `${cells.map(csvCell).join(',')}\r\n`;
