import { sameLanguage, type TextKind } from '@parley/understanding/text';
import * as z from 'zod';
import type { Connection } from 'mongoose';
import { schemaOf } from '../platform/mongo/mongo.ts';
import { TIMING } from '../platform/process/time-limits.ts';
import { type EngineSettings, NO_WEB_CHANNEL, RETRIEVAL, type WebChannel } from './settings.ts';
import { type KnowledgeInput, LanguageTag } from './knowledge/entry.ts';
import { afterOpenMinutes, OpeningHours } from './opening-hours.ts';

/**
 * The progress of making an assistant's vectors. It is a part of the assistant's document, so that one read returns the
 * assistant and this progress. The field is absent, or has no `model`, until the first vectors are made.
 */
type Semantic = {
  model: string;
  /** The version of the assistant that these counts describe. */
  version: number;
  /**
   * `done`: entries with vectors for question and variants. `answers`: entries that also have a vector for the answer.
   * `total`: all entries.
   */
  done: number;
  answers: number;
  total: number;
  /** Incremented whenever vectors are stored, so that caches reload them. */
  revision: number;
  /** True if the knowledge has changed and some of it has no current vectors. */
  stale: boolean;
  /** The lease of the worker that makes the vectors. `until` is a time on MongoDB's clock. */
  lease: { token: string; until: Date };
};

export const DEFAULT_LIMIT_PER_MINUTE = 60;
const DEFAULT_DEDUPE_WINDOW_S = 60;

/** The longest time, in minutes of opening hours, after which an escalation may count as not taken. */
export const MAX_TAKE_WITHIN_MINUTES = 7 * 24 * 60;

/** What happens to an escalation that nobody took in time. */
export const IF_NOT_TAKEN = ['remind', 'hand_back', 'stay'] as const;

/** Who answers when the day's tokens of a provider are used up: the assistant by retrieval, or a person. */
export const IF_TOKENS_USED_UP = ['retrieval', 'hand_over'] as const;

/** New turns of a month (UTC). Null: no quota. */
export const TurnsPerMonth = z.int().min(1).max(1_000_000_000).nullable();

export const GUARDS = ['off', 'flag', 'refuse'] as const;

/** How sure an assistant must be before it answers, from the most to the least. */
export const ANSWERING = ['careful', 'balanced', 'direct'] as const;

export const AssistantInput = z.object({
  name: z.string().trim().min(1).max(100),
  instructions: z.string().max(8000).default(''),
  languages: z.array(LanguageTag).max(50).default([]),
  holdingText: z
    .string()
    .trim()
    .max(1000)
    .nullish()
    .transform((value) => value || null),
  answering: z
    .enum(ANSWERING)
    .default('balanced')
    .meta({ description: 'How sure the assistant must be before it answers.' }),
  threshold: z.number().min(0).max(1).nullable().default(null).meta({
    description:
      'The least confidence for a sure answer, in place of what `answering` means. Null: as `answering` says.',
  }),
  dedupeWindowSeconds: z
    .number()
    .int()
    .min(0)
    .max(TIMING.dedupeWindowMaxMs / 1000)
    .default(DEFAULT_DEDUPE_WINDOW_S),
  /**
   * What to do with a message that tries to override the instructions: ignore the attempt, flag the message, or refuse
   * it.
   */
  guard: z.enum(GUARDS).default('flag'),
  /** Hosts that a provider's reply may link to, in addition to those in the knowledge. */
  allowedLinks: z.array(z.string().trim().min(1).max(253)).max(50).default([]),
  strict: z
    .boolean()
    .default(false)
    .meta({ description: 'A provider’s reply that says what stands in no entry or passage is not used.' }),
  openingHours: OpeningHours.nullable().default(null).meta({ description: 'When people answer. Null: always.' }),
  takeWithinMinutes: z
    .int()
    .min(1)
    .max(MAX_TAKE_WITHIN_MINUTES)
    .nullable()
    .default(null)
    .meta({ description: 'Minutes of opening hours in which somebody must take an escalation. Null: no limit.' }),
  ifNotTaken: z
    .enum(IF_NOT_TAKEN)
    .default('stay')
    .meta({ description: 'What happens to an escalation that nobody was assigned to or answered in that time.' }),
  contactsEscalate: z.boolean().default(false).meta({
    description: 'A message with contact details is answered, and then its conversation is handed to a person.',
  }),
  quickMessageSeconds: z.number().min(0.5).max(10).nullable().default(null).meta({
    description: 'Messages of a session that come within so many seconds are answered together. Null: never.',
  }),
  sessionLimitPerMinute: z
    .int()
    .min(1)
    .max(1_000_000)
    .default(DEFAULT_LIMIT_PER_MINUTE)
    .meta({ description: 'Messages that one session may send in 60 s, repeated ones included.' }),
  turnsPerMonth: TurnsPerMonth.default(null).meta({
    description: 'New turns in a month (UTC), by keys and channel. Null: no quota.',
  }),
  tokensPerDay: z
    .int()
    .min(1)
    .max(1_000_000_000_000)
    .nullable()
    .default(null)
    .meta({ description: 'Tokens that a provider may use in a day (UTC). Null: no budget.' }),
  ifTokensUsedUp: z
    .enum(IF_TOKENS_USED_UP)
    .default('retrieval')
    .meta({ description: 'What happens to a turn whose call would exceed `tokensPerDay`.' }),
  keepDays: z
    .int()
    .min(1)
    .max(3_650)
    .nullable()
    .default(null)
    .meta({ description: 'A conversation that has not changed for so many days is erased. Null: never.' }),
  drafts: z.boolean().default(false).meta({
    description: 'Changes of knowledge, sources and of how it answers make a draft, which is live once published.',
  }),
  worseAllowed: z
    .int()
    .min(0)
    .max(1_000)
    .nullable()
    .default(null)
    .meta({ description: 'Publishing asks again if more cases of the comparison got worse. Null: never.' }),
});
export type AssistantInput = z.input<typeof AssistantInput>;
type Settings = z.output<typeof AssistantInput>;

/** What an owner has set: these fields only, so none that is secret. */
export const settingsOf = (assistant: Settings): Settings =>
  Object.fromEntries(
    Object.keys(AssistantInput.shape).map((name) => [name, assistant[name as keyof Settings]]),
  ) as Settings;

/**
 * The inbound webhook channel of an assistant. If `tokenHash` is null, the channel is open to anyone who knows its
 * address. `secretAddress` holds the hash of the secret in a second address, for callers that cannot send the token.
 */
export type Channel = {
  connected: boolean;
  tokenHash: string | null;
  limitPerMinute: number;
  secretAddress?: { hash: string; createdAt: Date } | null;
};

export type Assistant = Settings & {
  assistantId: string;
  /** The HMAC key for conversation keys of this assistant. It never leaves the service. */
  sessionKey: string;
  channel: Channel;
  web: WebChannel;
  engine: EngineSettings;
  /** Incremented on every change of data that an engine indexes, so that an outdated index is noticed. */
  version: number;
  createdAt: Date;
  /** The number of the live version. Absent if drafts were never switched on. */
  publishedVersion?: number;
  /** Rises with each change of a draft. */
  draftRevision?: number;
  semantic?: Partial<Semantic>;
  /** How many texts of the knowledge are not searched by words, because they exceed a worker's memory. */
  leftOut?: number;
  /** Kinds of texts whose vectors exceed a worker's memory. */
  vectorsLeftOut?: TextKind[];
  /**
   * The passages of its sources. `version` rises after the visible passages or their vectors have changed. Absent if
   * the assistant never had a passage, so that a turn without sources costs nothing. `leftOut`: how many exceed a
   * worker's memory.
   */
  passages?: { version: number; count: number; leftOut?: number };
  /**
   * The main language of its entries and of its passages, or `mul`. Stored here when they change, so that a turn reads it
   * with the assistant. Absent before the first change.
   */
  textLanguage?: { entries?: string | null; passages?: string | null };
};

/**
 * True if the turns of an assistant are answered in the order of all turns. Those of a provider, and those that wait for
 * another message, have slots of their own, and the gate does not count them once they are accepted.
 */
export const isInOrder = ({ engine, quickMessageSeconds }: Assistant): boolean =>
  engine.kind === 'retrieval' && quickMessageSeconds === null;

/** The language of what an assistant knows. Null if that is in several. */
export const usualLanguage = ({ textLanguage = {} }: Pick<Assistant, 'textLanguage'>): string | null =>
  sameLanguage([textLanguage.entries, textLanguage.passages]);

/** The settings of an assistant that was created before they existed. */
const DEFAULTS = { ...AssistantInput.omit({ name: true }).parse({}), engine: RETRIEVAL };

/** The settings that a draft may change: those that decide how a question is answered. */
export const DRAFTED_FIELDS = ['instructions', 'answering', 'threshold', 'allowedLinks', 'strict', 'engine'] as const;
export type DraftedField = (typeof DRAFTED_FIELDS)[number];
export type DraftedSettings = Pick<Assistant, DraftedField>;

export const draftedSettingsOf = (assistant: DraftedSettings): DraftedSettings =>
  Object.fromEntries(DRAFTED_FIELDS.map((name) => [name, assistant[name]])) as DraftedSettings;

/** The take-by time of an escalation that begins at `at`. Null if the assistant has no limit. */
export const takeByOf = (
  { openingHours, takeWithinMinutes }: Pick<Assistant, 'openingHours' | 'takeWithinMinutes'>,
  at: Date,
): Date | null => (takeWithinMinutes === null ? null : afterOpenMinutes(openingHours, at, takeWithinMinutes));

/**
 * Positions of an assistant's entries. `last` is the highest assigned position. Entries before `from` have been
 * replaced. `unfinished` lists the position ranges of imports that are running or whose process died; entries in these
 * ranges are not read.
 */
export type KnowledgePositions = { last?: number; from?: number; unfinished?: ReservedRange[] };
type ReservedRange = { first: number; last: number; at: Date };

/** The filter for visible entries: entries that are neither replaced nor part of an unfinished import. */
export const visibleEntries = (assistantId: string, { from = 0, last, unfinished = [] }: KnowledgePositions) => ({
  assistantId,
  // Positions that were assigned after `last` was read are left out, because they may belong to an unfinished import.
  position: { $gte: from, ...(last !== undefined && { $lte: last }) },
  ...(unfinished.length > 0 && {
    $nor: unfinished.map((range) => ({ position: { $gte: range.first, $lte: range.last } })),
  }),
});

export type StoredAssistant = Omit<Assistant, 'assistantId' | 'web' | keyof typeof DEFAULTS> &
  Partial<Pick<Assistant, keyof typeof DEFAULTS>> & {
    _id: string;
    web?: Partial<WebChannel>;
    knowledgePlaces?: KnowledgePositions;
  };

export const toAssistant = ({ _id, knowledgePlaces: _positions, ...stored }: StoredAssistant): Assistant => ({
  assistantId: _id,
  ...DEFAULTS,
  ...stored,
  web: { ...NO_WEB_CHANNEL, ...stored.web },
});

/**
 * `since`: the version that wrote the entry (`versions.ts`). Absent if the entry was live before there were versions.
 */
export type StoredKnowledge = KnowledgeInput & { _id: string; assistantId: string; position: number; since?: number };

const assistantSchema = schemaOf<StoredAssistant>('assistants');
// This index serves the search for assistants that still need vectors.
assistantSchema.index({ 'semantic.model': 1 });
assistantSchema.index({ 'semantic.stale': 1 }, { sparse: true });
assistantSchema.index({ keepDays: 1 }, { partialFilterExpression: { keepDays: { $gt: 0 } } });
assistantSchema.index({ takeWithinMinutes: 1, _id: 1 }, { partialFilterExpression: { takeWithinMinutes: { $gt: 0 } } });
// For the lists of assistants. The index contains the names, so that they are read without the documents.
assistantSchema.index({ createdAt: 1, _id: 1, name: 1 });

const knowledgeSchema = schemaOf<StoredKnowledge>('knowledge');
// With the ids, so that the entries that an import replaces are found without reading them.
knowledgeSchema.index({ assistantId: 1, position: 1, _id: 1 });
knowledgeSchema.index({ assistantId: 1, since: 1 }, { partialFilterExpression: { since: { $exists: true } } });

export const assistantModels = (connection: Connection) => ({
  assistants: connection.model<StoredAssistant>('Assistant', assistantSchema),
  knowledge: connection.model<StoredKnowledge>('Knowledge', knowledgeSchema),
});
