import { constants, createDecipheriv, createHmac } from 'node:crypto';
import { isIP, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setImmediate as nextRound } from 'node:timers/promises';
import {
  connect as tlsConnect,
  createSecureContext,
  DEFAULT_CIPHERS,
  type SecureContext,
  type SecureContextOptions,
  type TLSSocket,
} from 'node:tls';
import { addTo, createSlots } from '../process/slots.ts';
import { blockOf } from './shares.ts';

// OpenSSL decodes and checks the certificates of a server in one step of the process that opens a connection, and has
// hardly a limit: one of 548 bytes takes 0.4 s, because its key names a curve of its own, and a hundred of P-521 take
// 0.15 s. A server is anybody whose address somebody has set. So its bytes are looked at before OpenSSL has them.

/** What a server may send before its certificates have been looked at, and in how many records. */
const FLIGHT_MAX_BYTES = 32 * 1024;
const FLIGHT_MAX_RECORDS = 64;
/** The bytes of a server's certificates, and their number. Those of large sites have 3 to 8 KB. */
const CHAIN_MAX_BYTES = 16 * 1024;
const CHAIN_MAX = 8;
/** The bytes of an RSA key's modulus and exponent: 8,192 and 32 bits. */
const MODULUS_MAX_BYTES = 1_025;
const EXPONENT_MAX_BYTES = 5;
/**
 * OpenSSL copies the issuer's name for each point of a list of revoked certificates, and compares each name of the
 * certificates with each constraint: the most that their bytes may be, multiplied.
 */
const POINTS_MAX = 256 * 1024;
const COMPARISONS_MAX = 4 * 1024 * 1024;
/** A connection may have this many records with little or no data. Further ones must have `RECORD_BYTES` on average. */
const RECORDS_FREE = 500;
const RECORD_BYTES = 32;
/** What a server may send in a connection beside data, such as tickets of its sessions. */
const NO_DATA_MAX_BYTES = 16 * 1024;
/** What OpenSSL gets before it is counted again: at least a record. */
const PART_BYTES = 18 * 1024;
/** What encryption adds to a record: at most, with CBC and without padding that nobody needs, and at least. */
const RECORD_OVERHEAD = 96;
const RECORD_LEAST_BYTES = 21;

class CostlyServer extends Error {
  override name = 'CostlyServer';
  readonly code: string;

  constructor(message: string, code: string) {
    super(message);
    this.code = code;
  }
}

const costly = (what: string, code = 'ERR_TLS_CERT_UNUSUAL') => new CostlyServer(`the server ${what}`, code);
const notTls = (what: string) => costly(what, 'EPROTO');

type Element = { tag: number; content: Buffer };

/** The elements of DER, in its shortest form and up to 64 KiB long. Throws for anything else. */
const elementsOf = (bytes: Buffer): Element[] => {
  const elements: Element[] = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes.readUInt8(at);
    const short = bytes.readUInt8(at + 1);
    const size = short > 128 ? short - 128 : 0;
    const length = size === 0 ? short : bytes.readUIntBE(at + 2, Math.min(size, 3));
    const from = at + 2 + size;
    const least = [0, 128, 256][size];
    if ((tag & 31) === 31 || short === 128 || least === undefined || length < least || from + length > bytes.length)
      throw costly('has a certificate in an unusual form');
    elements.push({ tag, content: bytes.subarray(from, from + length) });
    at = from + length;
  }
  return elements;
};

const OID = 0x06;
const BIT_STRING = 0x03;
const VERSION = 0xa0;
const EXTENSIONS = 0xa3;
const EC = '2a8648ce3d0201';
/** P-256, P-384 and P-521. */
const CURVES = new Set(['2a8648ce3d030107', '2b81040022', '2b81040023']);
const RSA = new Set(['2a864886f70d010101', '2a864886f70d01010a']);
/** Ed25519 and Ed448. */
const EDWARDS = new Set(['2b6570', '2b6571']);

/** Throws if the element is missing, because there is no such tag. */
const contentsOf = (element: Element | undefined): Element[] => elementsOf(element?.content ?? Buffer.of(0));

const POINTS = '551d1f';
const NAMES = '551d11';
const CONSTRAINTS = '551d1e';
/** Blocks of addresses and numbers of networks (RFC 3779). No web server has them, and OpenSSL compares each with each. */
const NETWORKS = ['2b06010505070107', '2b06010505070108'];

/** How many bytes are multiplied in a certificate, or with those of others. */
type Multiplied = { points: number; names: number; constraints: number };

/** Throws if a certificate may take long to decode, or its key to check a signature with. */
const checkCertificate = (certificate: Buffer): Multiplied => {
  const [whole, ...more] = elementsOf(certificate);
  const [body] = contentsOf(whole);
  const fields = contentsOf(body);
  const [, , issuer, , subject, keyInfo] = fields[0]?.tag === VERSION ? fields.slice(1) : fields;
  const [algorithm, key] = contentsOf(keyInfo);
  const [oid, parameters] = contentsOf(algorithm);
  const name = oid?.content.toString('hex') ?? '';
  const isCurve = parameters?.tag === OID && CURVES.has(parameters.content.toString('hex'));
  if (more.length > 0 || oid?.tag !== OID || key?.tag !== BIT_STRING)
    throw costly('has a certificate in an unusual form');
  /** The bytes of the extensions of each kind. */
  const extensions = new Map<string, number>();
  const lists = fields.filter(({ tag }) => tag === EXTENSIONS);
  for (const extension of lists.flatMap((one) => contentsOf(contentsOf(one)[0]))) {
    const [kind, ...value] = contentsOf(extension);
    addTo(extensions, kind?.content.toString('hex') ?? '', value.at(-1)?.content.length ?? 0);
  }
  if (NETWORKS.some((kind) => extensions.has(kind))) throw costly('has a certificate for networks');
  const multiplied = {
    points: (issuer?.content.length ?? 0) * (extensions.get(POINTS) ?? 0),
    names: (subject?.content.length ?? 0) + (extensions.get(NAMES) ?? 0),
    constraints: extensions.get(CONSTRAINTS) ?? 0,
  };
  if ((name === EC && isCurve) || EDWARDS.has(name)) return multiplied;
  if (!RSA.has(name)) throw costly('has a key of an unusual kind');
  const [numbers] = elementsOf(key?.content.subarray(1) ?? Buffer.of(0));
  const [modulus, exponent] = contentsOf(numbers);
  const isShort =
    modulus && exponent && modulus.content.length <= MODULUS_MAX_BYTES && exponent.content.length <= EXPONENT_MAX_BYTES;
  if (!isShort) throw costly('has an RSA key of an unusual length');
  return multiplied;
};

/** Throws if the certificates of a message are many, long, or may take long. In TLS 1.3, each has extensions. */
const checkCertificates = (message: Buffer, isTls13: boolean): void => {
  let at = isTls13 ? 1 + message.readUInt8(0) : 0;
  const end = at + 3 + message.readUIntBE(at, 3);
  at += 3;
  const all = { points: 0, names: 0, constraints: 0 };
  for (let count = 1; at < end; count += 1) {
    if (count > CHAIN_MAX) throw costly('has too many certificates');
    const from = at + 3;
    at = from + message.readUIntBE(at, 3);
    const { points, names, constraints } = checkCertificate(message.subarray(from, at));
    all.points += points;
    all.names += names;
    all.constraints += constraints;
    if (all.points > POINTS_MAX || all.names * all.constraints > COMPARISONS_MAX)
      throw costly('has certificates with too many names');
    if (isTls13) at += 2 + message.readUInt16BE(at);
  }
};

/** The hash, the cipher and the bytes of its key, by the number of a TLS 1.3 cipher suite. */
const SUITES: Record<
  number,
  { hash: string; cipher: 'aes-128-gcm' | 'aes-256-gcm' | 'chacha20-poly1305'; bytes: number }
> = {
  0x1301: { hash: 'sha256', cipher: 'aes-128-gcm', bytes: 16 },
  0x1302: { hash: 'sha384', cipher: 'aes-256-gcm', bytes: 32 },
  0x1303: { hash: 'sha256', cipher: 'chacha20-poly1305', bytes: 32 },
};
const TAG_BYTES = 16;
const IV_BYTES = 12;

/** HKDF-Expand-Label without a context, of at most one block (RFC 8446, 7.1). */
const expand = (hash: string, secret: Buffer, label: string, bytes: number): Buffer => {
  const name = `tls13 ${label}`;
  const info = Buffer.from([0, bytes, name.length, ...Buffer.from(name), 0, 1]);
  return createHmac(hash, secret).update(info).digest().subarray(0, bytes);
};

/** Decrypts the records of a TLS 1.3 handshake, in their order (RFC 8446, 5.2 and 5.3). */
const createOpen = (suite: number, secret: Buffer): ((record: Buffer) => { type: number; content: Buffer }) => {
  const found = SUITES[suite];
  if (!found) throw notTls('chose an unknown cipher suite');
  const { hash, cipher, bytes } = found;
  const [key, iv] = [expand(hash, secret, 'key', bytes), expand(hash, secret, 'iv', IV_BYTES)];
  let sequence = 0;
  return (record) => {
    const nonce = Buffer.from(iv);
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ sequence) >>> 0, 8);
    sequence += 1;
    const options = { authTagLength: TAG_BYTES };
    const decipher = createDecipheriv(cipher as 'aes-128-gcm', key, nonce, options);
    decipher.setAAD(record.subarray(0, HEADER_BYTES));
    decipher.setAuthTag(record.subarray(-TAG_BYTES));
    const inner = Buffer.concat([decipher.update(record.subarray(HEADER_BYTES, -TAG_BYTES)), decipher.final()]);
    const last = inner.findLastIndex((byte) => byte !== 0);
    return { type: inner[last] ?? 0, content: inner.subarray(0, Math.max(0, last)) };
  };
};

const HEADER_BYTES = 5;
/** With what encryption adds in TLS 1.2 (RFC 5246, 6.2.3). */
const RECORD_MAX_BYTES = 16_384 + 2_048;
/** From a change of the cipher to data. */
const RECORD_TYPES = new Set([20, 21, 22, 23]);
const HANDSHAKE = 22;
const ENCRYPTED = 23;
const SERVER_HELLO = 2;
const CERTIFICATE = 11;
const COMPRESSED_CERTIFICATE = 25;
const SUPPORTED_VERSIONS = 0x002b;
/** The random value of a hello that asks for another one (RFC 8446, 4.1.3). */
const RETRY = 'cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c';

/** The cipher suite that a TLS 1.3 server has chosen. Null for TLS 1.2, and if the server asks for another hello. */
const suiteOf = (hello: Buffer): number | null => {
  if (hello.toString('hex', 2, 34) === RETRY) return null;
  let at = 35 + hello.readUInt8(34);
  const suite = hello.readUInt16BE(at);
  for (at += 5; at < hello.length; at += 4 + hello.readUInt16BE(at + 2))
    if (hello.readUInt16BE(at) === SUPPORTED_VERSIONS) return suite;
  return null;
};

/** Looks at what a server sends until its certificates are known. */
const createInspection = () => {
  let message = Buffer.alloc(0);
  let [flight, records] = [0, 0];
  let suite: number | null = null;
  let open: ReturnType<typeof createOpen> | null = null;

  /** True if the server's certificates are complete. No session is resumed, so each server has some. */
  const read = (content: Buffer): boolean => {
    message = Buffer.concat([message, content]);
    while (message.length >= 4) {
      const [type, length] = [message.readUInt8(0), message.readUIntBE(1, 3)];
      if (type === CERTIFICATE && length > CHAIN_MAX_BYTES) throw costly('has certificates that are too long');
      if (type === COMPRESSED_CERTIFICATE) throw costly('has compressed certificates');
      if (message.length < 4 + length) return false;
      const body = message.subarray(4, 4 + length);
      message = message.subarray(4 + length);
      if (type === SERVER_HELLO) suite = suiteOf(body);
      if (type !== CERTIFICATE) continue;
      checkCertificates(body, open !== null);
      return true;
    }
    return false;
  };

  return {
    /** True while the records that follow are encrypted, and their secret is not known. */
    lacksSecret: (): boolean => suite !== null && open === null,

    learn: (secret: Buffer): void => {
      if (suite !== null) open ??= createOpen(suite, secret);
    },

    /** Looks at a whole record. True if it completes the certificates. */
    look: (record: Buffer): boolean => {
      [flight, records] = [flight + record.length, records + 1];
      if (flight > FLIGHT_MAX_BYTES || records > FLIGHT_MAX_RECORDS)
        throw notTls('sends too much before its certificates');
      const type = record.readUInt8(0);
      if (type === HANDSHAKE && suite === null) return read(record.subarray(HEADER_BYTES));
      if (type !== ENCRYPTED) return false;
      // Otherwise OpenSSL has keys that we have not.
      if (!open) throw notTls('encrypts what nothing can look at');
      const inner = open(record);
      return inner.type === HANDSHAKE && read(inner.content);
    },
  };
};

/** Certificates are checked one server after the other, each in a turn of the event loop. Networks take turns. */
const checking = createSlots(({ inUse }) => inUse < 1);

const SERVER_SECRET = /^SERVER_HANDSHAKE_TRAFFIC_SECRET \w+ (\w+)/;

/**
 * The bytes of a TLS connection. OpenSSL gets whole records of the server, those with certificates once they have been
 * looked at. `dataOf` says how many bytes of data it has read.
 */
const guard = (raw: Socket, dataOf: () => number): { stream: Duplex; learn: (line: Buffer) => boolean } => {
  const inspection = createInspection();
  let isChecked = false;
  let isBusy = false;
  let isFull = false;
  let isEnded = false;
  let received = Buffer.alloc(0);
  let [records, bytes] = [0, 0];

  const stream: Duplex = new Duplex({
    allowHalfOpen: false,
    read: () => {
      isFull = false;
      if (!isBusy) raw.resume();
    },
    write: (chunk: Buffer, _encoding, done) => void raw.write(chunk, done),
    writev: (chunks, done) => void raw.write(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done),
    final: (done) => void raw.end(done),
    destroy: (cause, done) => {
      raw.destroy();
      done(cause);
    },
  });

  const recordAt = (at: number): Buffer | null => {
    const rest = received.subarray(at);
    if (rest.length < HEADER_BYTES) return null;
    const [type, version, length] = [rest.readUInt8(0), rest.readUInt8(1), rest.readUInt16BE(3)];
    if (!RECORD_TYPES.has(type) || version !== 3 || length > RECORD_MAX_BYTES) throw notTls('does not speak TLS');
    return HEADER_BYTES + length <= rest.length ? rest.subarray(0, HEADER_BYTES + length) : null;
  };

  const push = (some: Buffer): void => {
    if (some.length > 0) isFull = !stream.push(some);
  };

  /** Records without data cost as much as others. What was passed on before counts once OpenSSL has read all of it. */
  const countRecords = (count: number, length: number): void => {
    const data = dataOf();
    const dataAtMost = data + length - count * RECORD_LEAST_BYTES;
    const isBeside = bytes - data - records * RECORD_OVERHEAD > NO_DATA_MAX_BYTES;
    [records, bytes] = [records + count, bytes + length];
    const isFlood = isBeside || records - dataAtMost / RECORD_BYTES > RECORDS_FREE;
    if (isFlood && stream.readableLength === 0) throw notTls('sends too much beside its data');
  };

  /** Takes the next whole records: so few that a flood is seen soon, and at least one if there is one. */
  const takePart = (): { part: Buffer; count: number } => {
    let [at, count] = [0, 0];
    for (let record = recordAt(0); record && at + record.length <= PART_BYTES + HEADER_BYTES; record = recordAt(at)) {
      at += record.length;
      count += 1;
    }
    const part = received.subarray(0, at);
    received = received.subarray(at);
    return { part, count };
  };

  const passOn = (): void => {
    for (let next = takePart(); next.count > 0; next = takePart()) {
      countRecords(next.count, next.part.length);
      push(next.part);
    }
  };

  const check = async (): Promise<void> => {
    for (let record = recordAt(0); record && !isChecked; record = recordAt(0)) {
      if (inspection.lacksSecret()) return;
      isChecked = inspection.look(record);
      received = received.subarray(record.length);
      const slot = isChecked ? await checking.acquire(blockOf(raw.remoteAddress ?? '')) : null;
      if (isChecked && !slot) throw notTls('has too many handshakes');
      try {
        push(record);
        if (slot) await nextRound();
      } finally {
        slot?.release();
      }
    }
  };

  const work = async (): Promise<void> => {
    if (stream.destroyed) return;
    if (isBusy) return void raw.pause();
    isBusy = true;
    try {
      if (!isChecked) await check();
      if (isChecked) passOn();
      else if (received.length > FLIGHT_MAX_BYTES) throw notTls('sends too much before its certificates');
      if (isEnded) stream.push(null);
      else if (isFull) raw.pause();
      else if (raw.isPaused()) raw.resume();
    } catch (cause) {
      stream.destroy(cause instanceof CostlyServer ? cause : notTls('sends an unusual handshake'));
    } finally {
      isBusy = false;
    }
  };

  raw.on('data', (chunk) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    void work();
  });
  raw.once('end', () => {
    isEnded = true;
    void work();
  });
  raw.once('error', (cause) => stream.destroy(cause));
  // What has come before the end is still read.
  raw.once('close', () => void (isEnded || stream.destroy()));

  return {
    stream,
    learn: (line) => {
      const [, secret] = SERVER_SECRET.exec(line.toString('latin1')) ?? [];
      if (secret === undefined) return false;
      inspection.learn(Buffer.from(secret, 'hex'));
      setImmediate(() => void work());
      return true;
    },
  };
};

/** Makes the context for `secure`. It loads all certificate authorities, so make it once. */
export const createGuardedContext = (options: Pick<SecureContextOptions, 'ca' | 'minVersion'>): SecureContext =>
  createSecureContext({
    ...options,
    ciphers: `${DEFAULT_CIPHERS}:!DHE`, // in TLS 1.2 a server could choose a group of its own
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION, // nothing looks at the certificates of a further handshake
  });

/**
 * Begins TLS over a connected socket. The context is one of `createGuardedContext`. The socket is closed with the
 * code `ERR_TLS_CERT_UNUSUAL` if the certificates are unusual, and with `EPROTO` if something else is.
 */
export const secure = (raw: Socket, host: string, secureContext: SecureContext): TLSSocket => {
  const { stream, learn } = guard(raw, () => socket.bytesRead);
  const socket: TLSSocket = tlsConnect({
    socket: stream,
    host,
    // TLS does not allow an IP address as server name, and names in certificates have no trailing dot.
    servername: isIP(host) === 0 ? host.replace(/\.$/, '') : '',
    secureContext,
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true, // explicit, so that NODE_TLS_REJECT_UNAUTHORIZED has no effect
  });
  const onKey = (line: Buffer): void => {
    if (learn(line)) socket.off('keylog', onKey);
  };
  socket.on('keylog', onKey);
  // At once, as of a socket of Node's own, because a connection that is not destroyed may be used again.
  socket.on('error', () => socket.destroy());
  return socket;
};
