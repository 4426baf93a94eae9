import type { ClientSession, Connection, mongo } from 'mongoose';
import { LARGE_WAIT_MS, MIDDLE_BYTES, withPlace } from '../assistants/drafts/drafts.ts';
import type { EditAuthor } from '../assistants/drafts/versions.ts';
import { type KnowledgeEntry, KnowledgeInput, MAX_KNOWLEDGE } from '../assistants/knowledge/entry.ts';
import { LIST_BATCH } from '../assistants/knowledge/store.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { isSafeLink } from '../assistants/suggested-action.ts';
import { collect, inPages, restIfSlow } from '../platform/mongo/batches.ts';
import { collectionOf } from '../platform/mongo/mongo.ts';
import { conflict, invalid, unavailable } from '../platform/process/errors.ts';
import { createSlices } from '../platform/process/slices.ts';
import { validate } from '../platform/process/validation.ts';
import { pageOf, type ProposalState, type ProposedEntry, sourceModels, type StoredProposedEntry } from './source.ts';

/** The states of proposals that wait for a decision. */
const WAITING: ProposalState[] = ['proposed', 'changed'];
const isNew = ({ state }: StoredProposedEntry): boolean => state === 'proposed';
/** In the order in which owners see them. */
const BY_URL = { url: 1, _id: 1 } as const;
/** So many are marked as accepted by one statement, which has each answer twice. */
const WRITE_BATCH = 50;
/** What a row has beside its texts, with the entry that is made of it. */
const ROW_BYTES = 1_000;
/** So often proposals are accepted again that another request has decided meanwhile. */
const TRIES = 3;

const outdated = () => conflict('Another request has accepted or dismissed some of these meanwhile.');

type ProposalFilter = { assistantId: string; sourceId?: string; after?: string; limit: number };
/** The ids of proposals. Null: all that wait for a decision. */
type ChosenProposals = string[] | null;

const toProposal = ({ _id, ...stored }: StoredProposedEntry): ProposedEntry => ({
  proposalId: _id,
  ...stored,
});

export type ProposalAssistants = Pick<
  AssistantStore,
  'addKnowledge' | 'countKnowledge' | 'drafts' | 'getAssistant' | 'replaceAnswer' | 'requireRoom' | 'updateKnowledge'
>;
type Dependencies = { connection: Connection; assistants: ProposalAssistants };

type AcceptOptions = { by?: EditAuthor; signal?: AbortSignal };

/** The entries that pages propose, until an owner decides, and the accepted ones that follow their page. */
export type Proposals = {
  /** The proposals that wait for a decision, sorted by URL, so that those of one web page follow each other. */
  listProposals: (filter: ProposalFilter) => Promise<{ proposals: ProposedEntry[]; next: string | null }>;

  countProposals: (assistantId: string) => Promise<number>;

  /**
   * Makes entries of proposals, all together or none. Proposals that another request has taken are left out. Many wait
   * for a place, until it is too late or `signal` aborts: then it throws 503.
   */
  accept: (assistantId: string, chosen: ChosenProposals, options?: AcceptOptions) => Promise<number>;

  dismiss: (assistantId: string, chosen: ChosenProposals) => Promise<number>;

  /** Entries that nobody has edited since they were accepted get the answer that their page has now. */
  follow: (source: { assistantId: string; sourceId: string }) => Promise<void>;
};

export const createProposals = ({ connection, assistants }: Dependencies): Proposals => {
  const { proposedEntries } = sourceModels(connection);

  const find = (filter: mongo.Filter<StoredProposedEntry>, projection: mongo.Document = {}) =>
    collectionOf(proposedEntries).find(filter, { projection, batchSize: LIST_BATCH });

  /** Proposals that wait for a decision. One whose entry an owner has edited is decided only if it is chosen. */
  const ofProposals = (assistantId: string, chosen: ChosenProposals) =>
    chosen
      ? { assistantId, state: { $in: WAITING }, _id: { $in: chosen } }
      : { assistantId, state: 'proposed' as const };

  /** Null if new ones would take more than `most` bytes in the transaction that accepts them. */
  const readWithin = async (
    filter: mongo.Filter<StoredProposedEntry>,
    most: number,
  ): Promise<StoredProposedEntry[] | null> => {
    const rows = find(filter).sort(BY_URL);
    const read: StoredProposedEntry[] = [];
    let bytes = 0;
    try {
      for await (const page of inPages(rows)) {
        for (const { question, answer } of page.filter(isNew)) // the answer is stored twice
          bytes += ROW_BYTES + Buffer.byteLength(question) + 2 * Buffer.byteLength(answer);
        if (bytes > most) return null;
        read.push(...page);
      }
      return read;
    } finally {
      await rows.close();
    }
  };

  /** A button that leads to the page of a proposal. */
  const linkTo = ({ url, title }: StoredProposedEntry): KnowledgeInput['actions'] =>
    url === null || !isSafeLink(url)
      ? []
      : [{ label: [...(title || new URL(url).host)].slice(0, 80).join(''), type: 'link', payload: url }];

  /** Refuses so many new entries before their texts are read, as adding them would. */
  const requireRoom = async (assistantId: string, count: number): Promise<void> => {
    if (count === 0) return;
    const { drafts } = await assistants.getAssistant(assistantId);
    if (!drafts) return assistants.requireRoom(assistantId, count);
    const { added = 0, removed = 0, isReplaced = false } = (await assistants.drafts.find(assistantId))?.counts ?? {};
    const live = isReplaced ? 0 : (await assistants.countKnowledge(assistantId)) - removed;
    if (live + added + count > MAX_KNOWLEDGE)
      throw invalid('knowledge', 'too_many', `would have more than ${MAX_KNOWLEDGE.toLocaleString('en')} entries`);
  };

  /** Makes entries of proposals. False if another request has decided some of them meanwhile. */
  const addEntries = async (
    assistantId: string,
    taken: StoredProposedEntry[],
    by: EditAuthor | undefined,
  ): Promise<boolean> => {
    const slices = createSlices();
    const entries: KnowledgeInput[] = [];
    for (const one of taken) {
      entries.push(validate(KnowledgeInput, { question: one.question, answer: one.answer, actions: linkTo(one) }));
      if (slices.isOver()) await slices.next();
    }
    let isOutdated = false;
    const alongside = async (session: ClientSession, added: KnowledgeEntry[]): Promise<void> => {
      for (let from = 0; from < taken.length && !isOutdated; from += WRITE_BATCH) {
        const writes = taken.slice(from, from + WRITE_BATCH).map(({ _id, answer }, nth) => {
          const set = { state: 'accepted' as const, entryId: added[from + nth]?.entryId ?? '', given: answer };
          const filter = { _id, assistantId, state: 'proposed' as const, answer };
          return { updateOne: { filter, update: { $set: set } } };
        });
        const { modifiedCount } = await collectionOf(proposedEntries).bulkWrite(writes, { session });
        isOutdated = modifiedCount < writes.length;
      }
      if (isOutdated) throw outdated();
    };
    try {
      await assistants.addKnowledge(assistantId, entries, { by, alongside });
      return true;
    } catch (cause) {
      if (isOutdated) return false;
      throw cause;
    }
  };

  /** Ends a changed proposal whose entry has the answer of the page now. Without the entry, nothing is left to decide. */
  const decide = async ({ _id, answer }: StoredProposedEntry, { hasEntry }: { hasEntry: boolean }): Promise<number> => {
    const decided = hasEntry ? { state: 'accepted' as const, given: answer } : { state: 'dismissed' as const };
    return (await proposedEntries.updateOne({ _id, state: 'changed', answer }, decided)).modifiedCount;
  };

  /** Gives the entry of a changed proposal the answer of the page. */
  const changeEntry = async (one: StoredProposedEntry, by: EditAuthor | undefined): Promise<number> => {
    const { assistantId, entryId = '', answer } = one;
    const entry = await assistants.drafts.findEntry(assistantId, entryId);
    if (entry) {
      const { entryId: _entryId, ...input } = entry;
      await assistants.updateKnowledge(assistantId, entryId, { ...input, answer }, { by });
    }
    return decide(one, { hasEntry: entry !== null });
  };

  return {
    listProposals: async ({ assistantId, sourceId, after, limit }) => {
      const last = after === undefined ? null : await proposedEntries.findOne({ _id: after, assistantId }).lean();
      if (after !== undefined && !last) throw invalid('cursor', 'invalid', 'is not a cursor of this list');
      // Proposals of files have no URL and come first.
      const later = last && (last.url === null ? { $type: 'string' as const } : { $gt: last.url });
      const beyond = last && { $or: [{ url: later }, { url: last.url, _id: { $gt: last._id } }] };
      const filter = { assistantId, state: { $in: WAITING }, ...(sourceId !== undefined && { sourceId }), ...beyond };
      const found = find(filter, { given: 0 });
      const { rows, next } = pageOf(await collect(found.sort(BY_URL).limit(limit + 1)), limit);
      return { proposals: rows.map((row) => toProposal(row)), next };
    },

    countProposals: (assistantId) => proposedEntries.countDocuments({ assistantId, state: { $in: WAITING } }).exec(),

    accept: async (assistantId, chosen, { by, signal } = {}) => {
      const filter = ofProposals(assistantId, chosen);
      let isLarge = false;
      const acceptNew = async (): Promise<StoredProposedEntry[] | 'outdated' | 'needs place'> => {
        await requireRoom(assistantId, await proposedEntries.countDocuments({ ...filter, state: 'proposed' }));
        const taken = await readWithin(filter, isLarge ? Infinity : MIDDLE_BYTES);
        if (!taken) return 'needs place';
        const added = taken.filter(isNew);
        return added.length === 0 || (await addEntries(assistantId, added, by)) ? taken : 'outdated';
      };
      const late = AbortSignal.timeout(LARGE_WAIT_MS);
      const over = signal ? AbortSignal.any([signal, late]) : late;
      for (let tries = 0; tries < TRIES; ) {
        if (over.aborted) throw unavailable();
        const since = performance.now();
        // The place of large versions, because MongoDB keeps what it writes in its cache until it is committed.
        const place = { assistantId, size: 'large', signal: over } as const;
        const taken = isLarge ? await withPlace(place, (inPlace) => inPlace(acceptNew)) : await acceptNew();
        if (taken === 'needs place') isLarge = true;
        else if (taken === 'outdated') {
          tries += 1;
          await restIfSlow(since);
        } else {
          let count = taken.filter(isNew).length;
          for (const one of taken) if (!isNew(one)) count += await changeEntry(one, by);
          return count;
        }
      }
      throw outdated();
    },

    dismiss: async (assistantId, chosen) => {
      // The entry of a changed one stays as its owner wrote it, and no longer follows the page.
      const state = { $cond: [{ $eq: ['$state', 'changed'] }, 'accepted', 'dismissed'] };
      const given = { $cond: [{ $eq: ['$state', 'changed'] }, null, '$given'] };
      const filter = ofProposals(assistantId, chosen);
      return (await collectionOf(proposedEntries).updateMany(filter, [{ $set: { state, given } }])).modifiedCount;
    },

    follow: async ({ assistantId, sourceId }) => {
      const changed = await collect(find({ sourceId, state: 'changed', given: { $type: 'string' } }));
      if (changed.length === 0) return;
      const { drafts } = await assistants.getAssistant(assistantId);
      for (const one of changed) {
        const { entryId = '', given, answer } = one;
        const entry = await assistants.drafts.findEntry(assistantId, entryId);
        const isAsGiven = !drafts && entry?.answer === given;
        // The answer may be there already, if the worker was killed after this write.
        const hasFollowed =
          entry?.answer === answer ||
          (isAsGiven && (await assistants.replaceAnswer(assistantId, entryId, { before: given ?? '', after: answer })));
        if (!entry || hasFollowed) await decide(one, { hasEntry: entry !== null });
      }
    },
  };
};
