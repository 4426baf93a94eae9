import type { Readable } from 'node:stream';
import { MIMEType } from 'node:util';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import type { Request, RequestHandler, Response } from 'express';
import { ApiError } from './errors.ts';

export const BODY_LIMIT_BYTES = 65_536;
/** After an upload is refused, its rest is read and discarded for this time, so that the sender can read the answer. */
const LINGER_MS = 2_000;

const DECODERS: Record<string, () => NodeJS.ReadWriteStream & Readable> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

const invalidJson = (): ApiError => new ApiError('invalid_json');
const tooLarge = (limitBytes: number): ApiError =>
  new ApiError(
    'payload_too_large',
    limitBytes === BODY_LIMIT_BYTES ? {} : { message: `The request body is larger than ${limitBytes / 1024} KiB.` },
  );

const hasBody = ({ headers }: Request): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;

const isJson = (contentType: string | undefined): boolean => {
  if (contentType === 'application/json') return true;
  try {
    const { essence, params } = new MIMEType(contentType ?? '');
    return essence === 'application/json' && /^utf-?8$/i.test(params.get('charset') ?? 'utf-8');
  } catch {
    return false;
  }
};

const decoded = (req: Request): Readable => {
  const coding = (req.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (coding === 'identity') return req;
  const decoder = Object.hasOwn(DECODERS, coding) ? DECODERS[coding] : undefined;
  if (!decoder) throw invalidJson();
  return req.pipe(decoder());
};

/** Reads the decoded body. The limit counts decoded bytes, so that a small compressed body cannot fill the memory. */
const readAll = (stream: Readable, limitBytes: number): Promise<Buffer> =>
  new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const collect = (chunk: Buffer): void => {
      size += chunk.length;
      chunks.push(chunk);
      if (size <= limitBytes) return;
      stream.off('data', collect);
      reject(tooLarge(limitBytes));
    };
    stream.on('data', collect);
    stream.once('end', () => resolve(Buffer.concat(chunks)));
    // The body cannot be decoded, or the caller has closed the connection.
    stream.on('error', () => reject(invalidJson()));
    // No error is created after the body has ended, because its stack trace would cost time and nobody would read it.
    stream.once('close', () => stream.readableEnded || reject(invalidJson()));
  });

const discardRest = (req: Request, res: Response): void => {
  req.unpipe();
  req.resume();
  res.once('finish', () => {
    const timer = setTimeout(() => void (req.complete || req.destroy()), LINGER_MS);
    timer.unref();
  });
};

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

/**
 * Reads a JSON object. The size is checked before the syntax (docs/contract.md, Order of checks), so a body that is too
 * large always gives 413.
 */
const readObject = async (req: Request, limitBytes: number): Promise<object> => {
  if (Number(req.headers['content-length']) > limitBytes) throw tooLarge(limitBytes);
  const bytes = await readAll(decoded(req), limitBytes);
  if (!isJson(req.headers['content-type'])) throw invalidJson();
  return parseObject(bytes);
};

/**
 * Reads the body as a JSON object: `application/json`, UTF-8, at most 64 KiB or `limitBytes`. Any other body gives
 * `invalid_json`, and the error never quotes the body. With `optional`, a missing body counts as `{}`. `express.json`
 * is not used, because it reads a refused upload to its end before it answers.
 */
export const jsonBody =
  ({ optional = false, limitBytes = BODY_LIMIT_BYTES } = {}): RequestHandler =>
  async (req, res, next) => {
    if (!hasBody(req)) {
      if (!optional) throw invalidJson();
      req.body = {};
      return next();
    }
    try {
      req.body = await readObject(req, limitBytes);
    } catch (cause) {
      discardRest(req, res);
      throw cause;
    }
    next();
  };
