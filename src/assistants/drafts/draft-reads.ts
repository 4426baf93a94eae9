import type { ClientSession, Connection, mongo } from 'mongoose';
import { inPages } from '../../platform/mongo/batches.ts';
import { collectionOf, schemaOf } from '../../platform/mongo/mongo.ts';
import { notFound } from '../../platform/process/errors.ts';
import type { SharedMemory } from '../../platform/process/lru.ts';
import {
  type Assistant,
  type assistantModels,
  type DraftedField,
  type DraftedSettings,
  draftedSettingsOf,
  type StoredAssistant,
  type StoredKnowledge,
  toAssistant,
  visibleEntries,
} from '../assistant.ts';
import { bytesOfEntry, type KnowledgeEntry, type KnowledgeInput } from '../knowledge/entry.ts';
import { keepWithin, LIST_BATCH, toEntry, WORTH } from '../knowledge/store.ts';
import type { DraftCounts, EditAuthor } from './versions.ts';

/** How many changes a draft shows, the newest first. */
const CHANGES_SHOWN = 100;

/** When and by whom a part of the draft was last changed. `revision`: the draft's revision after that change. */
export type Edit = { revision: number; by: EditAuthor; at: Date };
export type EntryEditKind = 'added' | 'changed' | 'removed';
export type SettingsEdits = { [Field in DraftedField]?: Edit & { value: DraftedSettings[Field] } };

/** The sources that a draft adds or removes, by their ids. `src/sources` stores the sources themselves. */
export type SourceEdits = Record<string, Edit & { kind: DraftedSourceKind; name: string }>;
export type DraftedSourceKind = 'added' | 'removed';

export type StoredDraft = Edit & {
  _id: string;
  begunBy: EditAuthor;
  begunAt: Date;
  /** True if an import into the draft replaces all live entries. The draft then holds all entries. */
  isReplaced: boolean;
  settings: SettingsEdits;
  /** Absent if no source was ever changed. */
  sources?: SourceEdits;
  bytes: number;
};
export type StoredEdit = Edit & {
  /** The id of the entry. */
  _id: string;
  assistantId: string;
  position: number;
  kind: EntryEditKind;
  /** The entry's question, by which lists name the entry. */
  question: string;
  /** Null if the draft removes the entry. */
  entry: KnowledgeInput | null;
  /** The bytes of the live entry that it changes or removes. Absent in edits of a time when they were not counted. */
  replaced?: number;
};
type EntryEdit = Pick<StoredEdit, 'kind' | 'question' | 'by' | 'at'> & { entryId: string };
export type Draft = {
  revision: number;
  begunBy: EditAuthor;
  begunAt: Date;
  by: EditAuthor;
  at: Date;
  counts: DraftCounts;
  settings: SettingsEdits;
  sources: SourceEdits;
  /** The newest first. */
  entries: EntryEdit[];
};
/** An entry of a draft. `edit` is null if the draft does not change the live entry. */
export type DraftedEntry = KnowledgeEntry & { edit: (Edit & { kind: EntryEditKind }) | null };

/** The entries and settings with which a draft would answer, held for a comparison. */
export type DraftKnowledge = {
  assistantId: string;
  entries: KnowledgeEntry[];
  leftOut: number;
  bytes: number;
  settings: DraftedSettings;
  sources: SourceEdits;
  /** Ids of entries that differ from what is live. */
  edited: ReadonlySet<string>;
  /** The version of the assistant's data and the revision of the draft. */
  version: number;
  revision: number;
};

const draftSchema = schemaOf<StoredDraft>('drafts');
const editSchema = schemaOf<StoredEdit>('draftEntries');
editSchema.index({ assistantId: 1, position: 1 });
editSchema.index({ assistantId: 1, revision: -1 });
// Counts changes without reading them: a draft may have 32 MB.
editSchema.index({ assistantId: 1, kind: 1 });

export const draftModels = (connection: Connection) => ({
  drafts: connection.model<StoredDraft>('Draft', draftSchema),
  edits: connection.model<StoredEdit>('DraftEntry', editSchema),
});

/** What an edit counts among the bytes of the draft. */
export const bytesOfEdit = ({ entry, replaced = 0 }: Pick<StoredEdit, 'entry' | 'replaced'>): number =>
  bytesOfEntry(entry) + replaced;

/** The sources that the draft does this with. */
export const sourcesOf = ({ sources = {} }: Pick<StoredDraft, 'sources'>, wanted: DraftedSourceKind): string[] =>
  Object.entries(sources).flatMap(([sourceId, { kind }]) => (kind === wanted ? sourceId : []));

export const liveEntries = ({ _id, knowledgePlaces = {} }: StoredAssistant): mongo.Filter<StoredKnowledge> =>
  visibleEntries(_id, knowledgePlaces);

export const withEdits = <Settings extends DraftedSettings>(
  settings: Settings,
  draft: Pick<StoredDraft, 'settings'> | null,
): Settings => {
  const values = Object.entries(draft?.settings ?? {}).map(([field, { value }]) => [field, value]);
  return { ...settings, ...(Object.fromEntries(values) as Partial<DraftedSettings>) };
};

type Snapshot = {
  assistant: StoredAssistant;
  draft: StoredDraft | null;
  options: { session: ClientSession; readConcern: { level: 'snapshot' }; batchSize: number; signal?: AbortSignal };
};

/** What a draft is, and what it would publish. */
export type DraftReads = {
  /** Null if nothing differs from the live version. */
  find: (assistantId: string) => Promise<Draft | null>;

  /** The assistant with the settings of its draft. */
  apply: (assistant: Assistant) => Promise<Assistant>;

  /** The entries as they would be after publishing, in their order. All batches show the same moment. */
  readEntries: (assistantId: string, signal: AbortSignal) => AsyncGenerator<DraftedEntry[], undefined>;

  /** The entry as the draft has it; without a draft, as it is live. Null if there is none. */
  findEntry: (assistantId: string, entryId: string) => Promise<KnowledgeEntry | null>;

  /** The sources that the draft adds or removes. */
  findSources: (assistantId: string) => Promise<SourceEdits>;

  /** The knowledge that a comparison answers from. Null if there is no draft. */
  findKnowledge: (assistantId: string) => Promise<DraftKnowledge | null>;

  countsOf: (assistantId: string, isReplaced: boolean, session?: ClientSession) => Promise<DraftCounts>;
};

export const createDraftReads = (
  connection: Connection,
  {
    memory,
    ...models
  }: ReturnType<typeof draftModels> &
    Pick<ReturnType<typeof assistantModels>, 'assistants' | 'knowledge'> & { memory: SharedMemory },
): DraftReads => {
  const drafts = collectionOf<StoredDraft>(models.drafts);
  const edits = collectionOf<StoredEdit>(models.edits);
  const assistants = collectionOf(models.assistants);
  const knowledge = collectionOf(models.knowledge);

  const countsOf: DraftReads['countsOf'] = async (assistantId, isReplaced, session) => {
    const counts: DraftCounts = { added: 0, changed: 0, removed: 0, isReplaced };
    const grouped = edits.aggregate<{ _id: EntryEditKind; count: number }>(
      [{ $match: { assistantId } }, { $group: { _id: '$kind', count: { $sum: 1 } } }],
      session ? { session } : {},
    );
    for await (const { _id, count } of grouped) counts[_id] = count;
    return counts;
  };

  const held = memory.openCache<DraftKnowledge>(WORTH.draft);

  /** Reads what is live and the draft, as both were at one moment. */
  const openSnapshot = async (assistantId: string, signal?: AbortSignal): Promise<Snapshot> => {
    const session = await connection.startSession({ snapshot: true });
    try {
      // The first read of the session sets its moment.
      const level = 'snapshot' as const;
      const options = { session, readConcern: { level }, batchSize: LIST_BATCH, ...(signal && { signal }) };
      const assistant = await assistants.findOne({ _id: assistantId }, options);
      if (!assistant) throw notFound();
      return { assistant, draft: await drafts.findOne({ _id: assistantId }, options), options };
    } catch (cause) {
      await session.endSession();
      throw cause;
    }
  };

  async function* entriesAt({ assistant, draft, options }: Snapshot): AsyncGenerator<DraftedEntry[], undefined> {
    const assistantId = assistant._id;
    const edited = edits.find({ assistantId }, options).sort({ position: 1 });
    const toDrafted = ({ _id, entry, kind, revision, by, at }: StoredEdit): DraftedEntry[] =>
      entry ? [{ ...entry, entryId: _id, edit: { kind, revision, by, at } }] : [];
    if (!draft?.isReplaced) {
      let next = await edited.next();
      const live = knowledge.find(liveEntries(assistant), options).sort({ position: 1 });
      for await (const page of inPages(live)) {
        const merged: DraftedEntry[] = [];
        for (const row of page) {
          const { _id, position } = row;
          while (next && next.position < position) {
            merged.push(...toDrafted(next)); // a roll back has removed it from what is live
            next = await edited.next();
          }
          if (next?._id === _id) {
            merged.push(...toDrafted(next));
            next = await edited.next();
          } else merged.push({ ...toEntry(row), edit: null });
        }
        yield merged;
      }
      if (next) yield toDrafted(next);
    }
    for await (const page of inPages(edited)) yield page.flatMap(toDrafted);
  }

  async function* readEntries(assistantId: string, signal: AbortSignal): AsyncGenerator<DraftedEntry[], undefined> {
    const snapshot = await openSnapshot(assistantId, signal);
    try {
      yield* entriesAt(snapshot);
    } finally {
      await snapshot.options.session.endSession();
    }
  }

  const loadKnowledge = async (assistantId: string): Promise<DraftKnowledge | null> => {
    const snapshot = await openSnapshot(assistantId);
    const { assistant, draft } = snapshot;
    const edited = new Set<string>();
    async function* entries(): AsyncGenerator<KnowledgeEntry> {
      for await (const page of entriesAt(snapshot)) {
        for (const { edit, ...entry } of page) {
          if (edit) edited.add(entry.entryId);
          yield entry;
        }
      }
    }
    try {
      if (!draft) return null;
      const { entries: kept, leftOut, bytes } = await keepWithin(entries());
      const settings = withEdits(draftedSettingsOf(toAssistant(assistant)), draft);
      const { revision, sources = {} } = draft;
      return {
        entries: kept,
        leftOut,
        bytes,
        assistantId,
        edited,
        settings,
        sources,
        version: assistant.version,
        revision,
      };
    } finally {
      await snapshot.options.session.endSession();
    }
  };

  return {
    countsOf,
    readEntries,

    findEntry: async (assistantId, entryId) => {
      const edit = await edits.findOne({ _id: entryId, assistantId });
      if (edit) return edit.entry && { entryId, ...edit.entry };
      const live = await knowledge.findOne({ _id: entryId, assistantId });
      return live && toEntry(live);
    },

    find: async (assistantId) => {
      const draft = await drafts.findOne({ _id: assistantId });
      if (!draft) return null;
      const { revision, begunBy, begunAt, by, at, settings, sources = {}, isReplaced } = draft;
      const [counts, newest] = await Promise.all([
        countsOf(assistantId, isReplaced),
        edits
          .find({ assistantId }, { projection: { entry: 0 } })
          .sort({ revision: -1 })
          .limit(CHANGES_SHOWN)
          .toArray(),
      ]);
      const entries = newest.map(({ _id, kind, question, by: editor, at: editedAt }) => {
        return { entryId: _id, kind, question, by: editor, at: editedAt };
      });
      return { revision, begunBy, begunAt, by, at, settings, sources, counts, entries };
    },

    findSources: async (assistantId) =>
      (await drafts.findOne({ _id: assistantId }, { projection: { sources: 1 } }))?.sources ?? {},

    apply: async (assistant) => {
      if (!assistant.drafts) return assistant;
      const draft = await drafts.findOne({ _id: assistant.assistantId }, { projection: { settings: 1 } });
      return withEdits(assistant, draft);
    },

    findKnowledge: async (assistantId) => {
      const projection = { version: 1, draftRevision: 1 };
      const now = await assistants.findOne({ _id: assistantId, drafts: true }, { projection });
      const known = held.get(assistantId);
      if (now && known?.version === now.version && known.revision === now.draftRevision) return known;
      held.delete(assistantId);
      const loaded = now && (await loadKnowledge(assistantId));
      if (loaded) held.set(assistantId, loaded, loaded);
      return loaded;
    },
  };
};
