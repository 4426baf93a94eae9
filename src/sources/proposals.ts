import type { ClientSession, Connection, mongo } from 'mongoose';
import type { EditAuthor } from '../assistants/drafts/versions.ts';
import { type KnowledgeEntry, KnowledgeInput, MAX_KNOWLEDGE } from '../assistants/knowledge/entry.ts';
import { LIST_BATCH } from '../assistants/knowledge/store.ts';
import type { AssistantStore } from '../assistants/store.ts';
import { isSafeLink } from '../assistants/suggested-action.ts';
import { collect } from '../platform/mongo/batches.ts';
import { collectionOf } from '../platform/mongo/mongo.ts';
import { conflict, invalid } from '../platform/process/errors.ts';
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

/** The entries that pages propose, until an owner decides, and the accepted ones that follow their page. */
export type Proposals = {
  /** The proposals that wait for a decision, sorted by URL, so that those of one web page follow each other. */
  listProposals: (filter: ProposalFilter) => Promise<{ proposals: ProposedEntry[]; next: string | null }>;

  countProposals: (assistantId: string) => Promise<number>;

  /** Makes entries of proposals, all together or none. Proposals that another request has taken are left out. */
  accept: (assistantId: string, chosen: ChosenProposals, by?: EditAuthor) => Promise<number>;

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

  /** Makes entries of proposals. Null if another request has decided some of them meanwhile. */
  const addEntries = async (
    assistantId: string,
    taken: StoredProposedEntry[],
    by: EditAuthor | undefined,
  ): Promise<number | null> => {
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
      if (isOutdated) throw conflict('Another request has accepted or dismissed some of these meanwhile.');
    };
    try {
      await assistants.addKnowledge(assistantId, entries, { by, alongside });
      return taken.length;
    } catch (cause) {
      if (isOutdated) return null;
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

    accept: async (assistantId, chosen, by) => {
      for (;;) {
        const filter = ofProposals(assistantId, chosen);
        await requireRoom(assistantId, await proposedEntries.countDocuments({ ...filter, state: 'proposed' }));
        const taken = await collect(find(filter).sort(BY_URL));
        const [added, changed] = [taken.filter(isNew), taken.filter((one) => !isNew(one))];
        const count = added.length === 0 ? 0 : await addEntries(assistantId, added, by);
        if (count === null) continue;
        let sum = count;
        for (const one of changed) sum += await changeEntry(one, by);
        return sum;
      }
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
