import type { Timing } from '../../src/platform/process/time-limits.ts';
import type { StoredIndexPiece, StoredPassage, StoredSource, StoredSourcePage } from '../../src/sources/source.ts';
import { anAssistant } from './builders.ts';
import { eventually } from './eventually.ts';
import { collectionIn, profileStatements } from './profile.ts';
import type { Stack } from './stack.ts';

/** Limits of reading, so short that a hostile site takes tenths of a second. */
export const QUICK: Partial<Timing> = {
  sweepEveryMs: 100,
  sourceLeaseMs: 1_500,
  sourceRenewMs: 300,
  sourceRequestEveryMs: 2,
  sourceRequestEveryMaxMs: 50,
  sourceSilentMs: 2_000,
  sourceFetchMs: 5_000,
  sourceBackoffMs: 30,
  sourceBackoffMaxMs: 300,
  sourceAnnouncedEveryMs: 50,
};

const COLLECTIONS = [
  'sources',
  'sourceFiles',
  'sourcePages',
  'passages',
  'passageTokens',
  'passageIndexes',
  'proposedEntries',
];

/** What is stored of sources, read as an operator with a shell would. */
export const readingOf = ({ service }: Pick<Stack, 'service'>) => {
  const collection = <Row extends { _id: string }>(name: string) => service.mongo.collection<Row>(name);
  const findSource = async (sourceId: string): Promise<StoredSource> => {
    const found = await collection<StoredSource>('sources').findOne({ _id: sourceId });
    if (!found) throw new Error('the source is gone');
    return found;
  };
  return {
    findSource,

    /** Waits until a run has ended, and nothing is left to do. */
    ended: (sourceId: string, run = 1): Promise<StoredSource> =>
      eventually(async () => {
        const source = await findSource(sourceId);
        const { state, error, counts } = source;
        if (source.run < run || source.lease || !['ready', 'failed'].includes(state))
          throw new Error(`run ${source.run} is ${state}: ${JSON.stringify({ error, counts })}`);
        return source;
      }),

    pagesOf: async (sourceId: string): Promise<Record<string, string>> => {
      const rows = await collection<StoredSourcePage>('sourcePages').find({ sourceId }).sort({ url: 1 }).toArray();
      return Object.fromEntries(
        rows.map(({ url, state, error }) => [
          URL.parse(url)?.pathname.concat(new URL(url).search) ?? url,
          error ? `${state}: ${error.code}` : state,
        ]),
      );
    },

    passagesOf: (sourceId: string): Promise<StoredPassage[]> =>
      collection<StoredPassage>('passages').find({ sourceId }).sort({ url: 1, order: 1 }).toArray(),

    /** The texts that answers use now. */
    visibleTexts: async (sourceId: string): Promise<string[]> => {
      const { live } = await findSource(sourceId);
      const rows = await collection<StoredPassage>('passages').find({ sourceId }).toArray();
      const seen = rows.filter(({ since, until }) => since <= live && (until === null || until > live));
      return seen.map(({ text }) => text).toSorted();
    },

    /** What belongs to nothing: tokens without their passage, and passages that no answer can use now or later. */
    findOrphans: async (sourceId: string): Promise<string[]> => {
      const { live, indexed } = await findSource(sourceId);
      const passages = await collection<StoredPassage>('passages').find({ sourceId }).toArray();
      const pages = await collection('sourcePages').find({ sourceId }).toArray();
      const tokens = await collection('passageTokens').find({ sourceId }).toArray();
      const pieces = await collection<StoredIndexPiece>('passageIndexes').find({ sourceId }).toArray();
      const of = pieces[0]?.of;
      const [passageIds, pageIds] = [new Set(passages.map(({ _id }) => _id)), new Set(pages.map(({ _id }) => _id))];
      return [
        ...passages.flatMap(({ _id, since, until, pageId }) =>
          since > live || until !== null || !pageIds.has(pageId) ? [`passage ${_id} ${since} ${until}`] : [],
        ),
        ...pieces.flatMap((one) => (one.of === of || indexed?.lease ? [] : [`piece ${one._id} of another index`])),
        ...tokens.flatMap(({ _id }) => (passageIds.has(_id) ? [] : [`tokens ${_id}`])),
      ];
    },

    /** The model of each part of the stored index. Waits until it is made. */
    storedIndex: (sourceId: string): Promise<(string | null)[]> =>
      eventually(async () => {
        const { indexed } = await findSource(sourceId);
        if (!indexed || indexed.by === null || indexed.lease)
          throw new Error(`the index is ${indexed?.by ?? 'missing'}`);
        const pieces = await collection<StoredIndexPiece>('passageIndexes').find({ sourceId, piece: 0 }).toArray();
        return pieces.map(({ model }) => model);
      }),

    countTokens: (sourceId: string): Promise<number> => collection('passageTokens').countDocuments({ sourceId }),

    countLeft: async (sourceId: string): Promise<Record<string, number>> =>
      Object.fromEntries(
        await Promise.all(
          COLLECTIONS.map(async (name) => {
            const filter = name === 'sources' ? { _id: sourceId } : { sourceId };
            return [name, await collection(name).countDocuments(filter)] as const;
          }),
        ),
      ),
  };
};

/**
 * How many pages each transaction of a run has changed. The last statement of each changes the source. If the source is
 * also changed meanwhile, one transaction counts as two.
 */
export const pagesChangedBy = async (stack: Stack, work: () => Promise<unknown>): Promise<number[]> => {
  const changed = [0];
  for (const one of await profileStatements(stack, work)) {
    if (one.op !== 'update') continue;
    if (collectionIn(one) === 'sources') changed.push(0);
    else if (collectionIn(one) === 'sourcePages') changed.push((changed.pop() ?? 0) + (one.nMatched ?? 0));
  }
  return changed.filter((count) => count > 0);
};

/** An assistant with its sources. */
export const aReader = async (stack: Stack) => {
  const { assistantId } = await anAssistant(stack);
  const { sources } = stack.service;
  const stored = readingOf(stack);
  const refresh = (sourceId: string) => sources.refresh(assistantId, sourceId);
  return {
    assistantId,
    ...stored,
    addSite: (url: string, more: object = {}) => sources.add(assistantId, { kind: 'site', url, ...more }),
    addPage: (url: string, more: object = {}) => sources.add(assistantId, { kind: 'page', url, ...more }),
    addFile: async (name: string, text: string | Uint8Array) => {
      const bytes = async function* () {
        yield Buffer.from(text);
      };
      return sources.addFile(assistantId, name, bytes());
    },
    refresh,
    /** Refreshes the source, and waits until this run has ended. */
    readAgain: async (sourceId: string, run: number) => {
      await refresh(sourceId);
      return stored.ended(sourceId, run);
    },
    remove: (sourceId: string) => sources.remove(assistantId, sourceId),
  };
};
