import { mongo } from 'mongoose';
import { expect } from 'vitest';
import type { Stack } from './stack.ts';

const valueIn = async ({ redis }: Stack['service'], key: string): Promise<unknown> => {
  const read: Record<string, () => Promise<unknown>> = {
    string: () => redis.get(key),
    hash: () => redis.hgetall(key),
    list: () => redis.lrange(key, 0, -1),
    set: () => redis.smembers(key),
    zset: () => redis.zrange(key, '0', '-1'),
    stream: () => redis.xrange(key, '-', '+'),
    none: async () => null, // expired meanwhile
  };
  return read[await redis.type(key)]?.() ?? expect.fail(`a key of an unknown kind: ${key}`);
};

/** Everything that a stack has stored, as text, by place: collections of MongoDB, and keys of Redis without their ids. */
export const storedTexts = async ({ service, env }: Pick<Stack, 'service' | 'env'>): Promise<[string, string][]> => {
  const { mongo: connection, redis } = service;
  const prefix = env['REDIS_PREFIX'] ?? '';
  const held: [place: string, text: string][] = [];
  for (const { name } of (await connection.db?.listCollections().toArray()) ?? []) {
    const rows = await connection.collection(name).find().toArray();
    held.push([name, mongo.BSON.EJSON.stringify(rows)]);
  }
  for (const key of await redis.keys(`*${prefix}*`))
    held.push([`redis:${key.split(':')[1] ?? key}`, `${key} ${JSON.stringify(await valueIn(service, key))}`]);
  expect(held.length).toBeGreaterThan(40);
  return held;
};

/** What a text looks like where something has encoded it: in a URL, in base64 at any offset, or in hex. */
const formsOf = (text: string): string[] => {
  const inBase64 = [0, 1, 2].map((offset) => {
    const whole = Buffer.from(`${' '.repeat(offset)}${text}`).toString('base64');
    return whole.slice(Math.ceil((offset * 4) / 3), Math.floor(((offset + text.length) * 4) / 3));
  });
  return [text, encodeURIComponent(text), ...inBase64, Buffer.from(text).toString('hex')].map((one) =>
    one.toLowerCase(),
  );
};

/** The places that hold each of these words, in any case and form. */
export const placesOf = (words: string[], held: [place: string, text: string][]): Record<string, string[]> => {
  const lower = held.map(([place, text]) => [place, text.toLowerCase()] as const);
  const holding = (word: string): string[] => {
    const forms = formsOf(word);
    return lower.filter(([, text]) => forms.some((form) => text.includes(form))).map(([place]) => place);
  };
  return Object.fromEntries(words.map((word) => [word, [...new Set(holding(word))].toSorted()]));
};
