import { gzipSync } from 'node:zlib';
import * as fc from 'fast-check';

/** A request's body and headers, from almost valid to very wrong. */
export type Hostile = { body: string | Uint8Array; headers: Record<string, string> };

const NAMES = ['session_id', 'message', 'language', 'reason', 'lead_score', '__proto__', 'constructor', '$where', ''];
const TEXTS = [
  '$salt',
  '$$ROOT',
  '{"$ne":null}',
  '\ud800',
  'a\0b',
  '\u202e',
  ' ',
  'en',
  '😀'.repeat(300),
  'x'.repeat(9000),
];

const text = fc.oneof(
  fc.constantFrom(...TEXTS),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ maxLength: 300 }),
);

/** Returns JSON text, because `JSON.stringify` cannot write a value nested this deep. */
const value = fc.oneof(
  { weight: 4, arbitrary: text.map((one) => JSON.stringify(one)) },
  { weight: 2, arbitrary: fc.json({ maxDepth: 4 }) },
  { weight: 1, arbitrary: fc.constantFrom('1e308', '-0', '1e999', '55', '0.5', '9007199254740993') },
  { weight: 1, arbitrary: fc.integer({ min: 100, max: 20_000 }).map((depth) => '['.repeat(depth) + ']'.repeat(depth)) },
);

const field = fc.tuple(fc.constantFrom(...NAMES), value).map(([name, json]) => `${JSON.stringify(name)}:${json}`);
const language = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('en', 'DE-at', 'zh-hant') },
  { weight: 1, arbitrary: text },
);
const object = fc.array(field, { maxLength: 6 }).map((fields) => `{${fields.join(',')}}`);
const turn = fc
  .record({
    session_id: fc.oneof(fc.constantFrom('a', '$where', '__proto__', '\u202e😀'), text),
    message: text,
    language: fc.option(language),
    reason: text,
  })
  .map((one) => JSON.stringify(one));

const damaged = fc
  .tuple(fc.oneof(object, turn), fc.nat(), fc.uint8Array({ maxLength: 4 }))
  .map(([json, at, inserted]) => {
    const whole = Buffer.from(json);
    const cut = at % (whole.length + 1);
    return Buffer.concat([whole.subarray(0, cut), inserted, whole.subarray(cut + (at % 3))]);
  });

const body: fc.Arbitrary<string | Uint8Array> = fc.oneof(
  { weight: 6, arbitrary: turn },
  { weight: 4, arbitrary: object },
  { weight: 3, arbitrary: damaged },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
  { weight: 1, arbitrary: fc.json({ maxDepth: 6 }) },
  { weight: 1, arbitrary: fc.integer({ min: 65_000, max: 70_000 }).map((size) => `"${'x'.repeat(size)}"`) },
  { weight: 1, arbitrary: turn.map((json) => gzipSync(json)) },
);

const type = fc.oneof(
  { weight: 12, arbitrary: fc.constant('application/json') },
  { weight: 1, arbitrary: fc.constantFrom('text/plain', 'application/json; charset=utf-16', 'a/b; boundary=x', ';') },
);
/** A value that is missing in five of six requests. */
const seldom = (arbitrary: fc.Arbitrary<string>): fc.Arbitrary<string | undefined> =>
  fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });
const coding = seldom(fc.constantFrom('gzip', 'br', 'deflate', 'nonsense'));
const key = seldom(fc.string({ minLength: 1, maxLength: 8 }));

export const hostile: fc.Arbitrary<Hostile> = fc.record({ body, type, coding, key }).map((one) => ({
  body: one.body,
  headers: {
    'Content-Type': one.type,
    ...(one.coding !== undefined && { 'Content-Encoding': one.coding }),
    ...(one.key !== undefined && { 'Idempotency-Key': one.key }),
  },
}));
