import { mkdirSync, writeFileSync } from 'node:fs';

/** `npm run fuzz` tries each part whole, `npm test` a short form of it. */
const isWhole = process.env.FUZZ === 'whole';

/** `FUZZ_SEED=… npm run fuzz` draws other inputs. */
export const seed = Number(process.env.FUZZ_SEED ?? 20261125);

/** How many inputs this run tries, or which. */
export const often = <Value>({ short, whole }: { short: Value; whole: Value }): Value => (isWhole ? whole : short);

/** Keeps the figures of a whole part, which docs/security.md shows. */
export const record = (part: string, figures: Record<string, number>): void => {
  if (!isWhole) return;
  mkdirSync(new URL('../../fuzz/results/', import.meta.url), { recursive: true });
  const result = { at: new Date(), seed, node: process.versions.node, figures };
  writeFileSync(new URL(`../../fuzz/results/${part}.json`, import.meta.url), `${JSON.stringify(result, null, 2)}\n`);
};
