import {
  createConversationSearch,
  type ProjectedConversation,
  searchModel,
} from '../../src/insights/conversation-search.ts';
import { conversationKeyOf, newPrefixedId } from '../../src/platform/process/ids.ts';
import { buildIndexes, collectionOf } from '../../src/platform/mongo/mongo.ts';
import { ascending, quantile } from '../../test/kit/quantiles.ts';
import type { Part } from '../support/figures.ts';
import { openParley } from '../../test/kit/parley.ts';

const CONVERSATIONS = 100_000;
const VOCABULARY = 50_000;
const WORDS_EACH = 100;
const BATCH = 2_000;
const LOOKS = 20;
const WARM_UP = 3;
const PAGE = 50;
const SYLLABLES = 'ba be bi bo da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri ro'.split(' ');

/** A word for each number. No word is the beginning of a word with a smaller number. */
const wordOf = (number: number): string => {
  let word = '';
  for (let rest = number + SYLLABLES.length ** 2; rest > 0; rest = Math.floor(rest / SYLLABLES.length)) {
    word = `${SYLLABLES[rest % SYLLABLES.length]}${word}`;
  }
  return word;
};

/** A pseudo-random number from 0 to 1 that is the same in every run. */
const sequence = (seed: number) => () => {
  seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
  return seed / 2 ** 32;
};

/**
 * The words of a conversation, by frequency as in a language: the word with number n occurs about 1/n as often as the
 * first word. Every conversation has `everywhere`, the oldest ones have `longago`, and one has `needle`.
 */
const termsOf = (nth: number, total: number, random: () => number): string[] => {
  const terms = new Set(['everywhere']);
  while (terms.size < WORDS_EACH) terms.add(wordOf(Math.floor(VOCABULARY ** random())));
  if (nth > total * 0.8) terms.add('longago');
  if (nth === Math.floor(total * 0.9)) terms.add('needle');
  return [...terms];
};

/** Measures the search over the messages of 100,000 conversations. */
export const search: Part = async ({ scale }, say) => {
  const parley = await openParley('search');
  const { assistantId, sessionKey } = await parley.addAssistant();
  const rows = collectionOf<ProjectedConversation>(searchModel(parley.service.mongo));
  await rows.dropIndexes();
  const total = Math.round(CONVERSATIONS * scale);
  say(`search: storing the words of ${total} conversations`);
  const random = sequence(1);
  const now = Date.now();
  for (let start = 0; start < total; start += BATCH) {
    const some = Array.from({ length: Math.min(BATCH, total - start) }, (_, index): ProjectedConversation => {
      const nth = start + index;
      const session = `visitor-${nth}`;
      const key = conversationKeyOf({ sessionKey, sessionId: session, playground: false });
      const updatedAt = new Date(now - nth * 60_000);
      const terms = termsOf(nth, total, random);
      return { _id: newPrefixedId(key), key, assistantId, updatedAt, seq: 10, resolvedAt: null, session, terms };
    });
    await rows.insertMany(some, { ordered: false, writeConcern: { w: 1, j: false } });
  }
  await buildIndexes(parley.service.mongo, [searchModel(parley.service.mongo)]);

  const { findByWords } = createConversationSearch(parley.service.mongo);
  const texts: Record<string, string> = {
    'in every conversation': 'everywhere',
    'the beginning of very many words': 'b',
    'in a fifth, all of them old': 'longago',
    'in one conversation': 'needle',
    'in no conversation': 'nowhere',
    'a common and a rare word': 'everywhere needle',
    'a rare word and a common beginning': 'needle every',
    'three common words': `everywhere ${wordOf(1)} ${wordOf(2)}`,
    'a part of a session id': `itor-${total - 7}`,
    'a part of every session id': 'isito',
  };
  const slowest: Record<string, number> = {};
  const medians: Record<string, number> = {};
  for (const [name, text] of Object.entries(texts)) {
    const times: number[] = [];
    let found = 0;
    for (let look = 0; look < LOOKS + WARM_UP; look += 1) {
      const startedAt = performance.now();
      found = (await findByWords([assistantId], text, { limit: PAGE })).length;
      if (look >= WARM_UP) times.push(performance.now() - startedAt);
    }
    const sorted = ascending(times);
    slowest[name] = sorted.at(-1) ?? Number.NaN;
    medians[name] = quantile(sorted, 0.5);
    say(`search: ${name}: ${found} found, p50 ${medians[name].toFixed(1)} ms, slowest ${slowest[name].toFixed(1)} ms`);
  }
  const of = `a page of ${total.toLocaleString('en-US')} conversations by words`;
  return {
    figures: [
      { id: 'search.slowest', what: `${of}: the slowest`, unit: 'ms', value: Math.max(...Object.values(slowest)) },
      {
        id: 'search.slowest-p50',
        what: `${of}: the slowest p50`,
        unit: 'ms',
        value: Math.max(...Object.values(medians)),
      },
    ],
    detail: { slowest, medians },
  };
};
