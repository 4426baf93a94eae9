import { type Connection, Schema } from 'mongoose';
import * as z from 'zod';
import { TIMING } from '../platform/timing.ts';
import { type EngineSettings, RETRIEVAL } from './engine-settings.ts';
import type { KnowledgeInput } from './knowledge-input.ts';
import { LanguageTag } from './language-tag.ts';
import type { Semantic } from './semantic.ts';

export const DEFAULT_LIMIT_PER_MINUTE = 60;
export const DEFAULT_DEDUPE_WINDOW_S = 60;

export const GUARDS = ['off', 'flag', 'refuse'] as const;

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
  threshold: z.number().min(0).max(1).nullable().default(null),
  dedupeWindowSeconds: z
    .number()
    .int()
    .min(0)
    .max(TIMING.dedupeWindowMaxMs / 1000)
    .default(DEFAULT_DEDUPE_WINDOW_S),
  /** What happens to messages that try to turn the assistant: nothing, a note, or a refusal. */
  guard: z.enum(GUARDS).default('flag'),
  /** Hosts a provider's reply may link to, beside what the knowledge links to. */
  allowedLinks: z.array(z.string().trim().min(1).max(253)).max(50).default([]),
});
export type AssistantInput = z.input<typeof AssistantInput>;

/** The inbound webhook channel of an assistant; `tokenHash` null = open to whoever knows its address. */
export type Channel = { connected: boolean; tokenHash: string | null; limitPerMinute: number };

export type Assistant = z.infer<typeof AssistantInput> & {
  assistantId: string;
  /** Key of the HMAC that names this assistant's sessions; never leaves the service. */
  sessionKey: string;
  channel: Channel;
  engine: EngineSettings;
  /** Counts changes of anything an engine indexes. */
  version: number;
  createdAt: Date;
  semantic?: Partial<Semantic>;
};

/** Those made before a setting existed do not have it. */
const LATER_DEFAULTS = { engine: RETRIEVAL, guard: 'flag' as const, allowedLinks: [] };

/**
 * Of an assistant's entries. `last`: given out up to here; `from`: what stands before it was replaced; `unfinished`: taken
 * by imports that have not ended, or never will, since their process was killed. Nobody reads what stands there.
 */
export type KnowledgePositions = { last?: number; from?: number; unfinished?: ReservedRange[] };
export type ReservedRange = { first: number; last: number; at: Date };

export type StoredAssistant = Omit<Assistant, 'assistantId' | keyof typeof LATER_DEFAULTS> &
  Partial<Pick<Assistant, keyof typeof LATER_DEFAULTS>> & {
    _id: string;
    knowledgePlaces?: KnowledgePositions;
  };

export const toAssistant = ({ _id, knowledgePlaces: _positions, ...stored }: StoredAssistant): Assistant => ({
  assistantId: _id,
  ...LATER_DEFAULTS,
  ...stored,
});

export type StoredKnowledge = KnowledgeInput & { _id: string; assistantId: string; position: number };

const assistantSchema = new Schema<StoredAssistant>(
  {
    _id: { type: String, required: true },
    name: { type: String, required: true },
    instructions: { type: String, default: '' },
    languages: { type: [String], default: [] },
    holdingText: { type: String, default: null },
    threshold: { type: Number, default: null },
    dedupeWindowSeconds: { type: Number, required: true },
    guard: { type: String },
    allowedLinks: { type: [String], default: undefined },
    engine: { type: Schema.Types.Mixed },
    sessionKey: { type: String, required: true },
    channel: {
      connected: { type: Boolean, required: true },
      tokenHash: { type: String, default: null },
      limitPerMinute: { type: Number, required: true },
    },
    version: { type: Number, required: true },
    knowledgePlaces: {
      type: { last: Number, from: Number, unfinished: { type: [Schema.Types.Mixed], default: undefined } },
      _id: false,
      default: undefined,
    },
    createdAt: { type: Date, required: true },
    semantic: { type: Schema.Types.Mixed },
  },
  { collection: 'assistants', versionKey: false, strictQuery: 'throw' },
);
// What has vectors still to be made is found by these.
assistantSchema.index({ 'semantic.model': 1 });
assistantSchema.index({ 'semantic.stale': 1 }, { sparse: true });

const knowledgeSchema = new Schema<StoredKnowledge>(
  {
    _id: { type: String, required: true },
    assistantId: { type: String, required: true },
    position: { type: Number, required: true },
    question: { type: String, required: true },
    variants: { type: [String], default: [] },
    answer: { type: String, required: true },
    language: { type: String, default: null },
    actions: { type: [Schema.Types.Mixed], default: [] },
    tags: { type: [String], default: [] },
  } as never,
  { collection: 'knowledge', versionKey: false, strictQuery: 'throw' },
);
knowledgeSchema.index({ assistantId: 1, position: 1 });

export const assistantModels = (connection: Connection) => ({
  assistants: connection.model<StoredAssistant>('Assistant', assistantSchema),
  knowledge: connection.model<StoredKnowledge>('Knowledge', knowledgeSchema),
});
