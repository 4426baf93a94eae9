import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { type Assistant, type AssistantInput, settingsOf } from '../assistant.ts';
import {
  EXPORT_FORMAT,
  type ExportFile,
  LINE_KINDS,
  type LineCounts,
  type LineKind,
  noLines,
  readExportFile,
} from '../export-file.ts';
import { inParts } from '../../platform/mongo/batches.ts';
import { bytesOfEntry, type KnowledgeInput } from '../knowledge/entry.ts';
import { readFor } from '../knowledge/http.ts';
import { type ReadFor, readKnowledge } from '../knowledge/reading.ts';
import { toEngineView } from '../settings.ts';
import type { AssistantStore } from '../store.ts';
import { type StoredConversation, toAttributesView } from '../../conversations/conversation.ts';
import type { HistoryPosition } from '../../conversations/history.ts';
import type { ConversationStore } from '../../conversations/store.ts';
import { toMessageView, toView } from '../../conversations/view.ts';
import { deliveryCursor } from '../../events/list.ts';
import type { DeliveryStore } from '../../events/store.ts';
import { toDeliveryRow } from '../../events/view.ts';
import { sendJson, uploadedBytes } from '../../platform/http/json-body.ts';
import { createCursor } from '../../platform/process/validation.ts';
import { endsEarly, takeRoomForExport, workOnBody } from '../../platform/http/request-slots.ts';
import { type Notes, readAllMessages } from '../../inbox/records.ts';
import { serverDate } from '../../platform/process/clock.ts';
import { conflict, invalid } from '../../platform/process/errors.ts';
import { createSlices } from '../../platform/process/slices.ts';
import { requirePublicUrl } from '../../platform/http/address-guard.ts';
import { authorOf } from '../drafts/http.ts';
import { type Handled, handled, inTurns, operation, WRITTEN } from '../../operators/operation.ts';

/** An answer ends after this time, and the caller asks for the rest. So access is checked again now and then. */
const EXPORT_WITHIN_MS = 5 * 60_000;
const DELIVERIES_AT_ONCE = 100;

export const exportOperations = {
  export: operation({
    method: 'get',
    path: '/assistants/:id/export',
    id: 'exportAssistant',
    audience: 'owners',
    resource: 'assistant',
    lasts: true,
    summary: 'Download an assistant with its settings, knowledge and conversations, a line of JSON for each',
    query: z.object({
      after: z
        .string()
        .regex(/^[\w-]{1,1000}$/)
        .optional()
        .meta({ description: 'The `cursor` of the last line that you have: the answer has those after it.' }),
      conversations: z
        .enum(['true', 'false'])
        .default('true')
        .transform((value) => value === 'true')
        .meta({
          override: { type: 'boolean', enum: undefined, default: true },
          description: 'False: only settings and knowledge.',
        }),
    }),
    contentType: 'application/x-ndjson',
    answer: z.string(),
    answerHeaders: { 'Content-Disposition': z.string() },
    audit: 'assistant.export',
    errors: ['conflict', 'unavailable'],
  }),
};

const ms = z.int().min(0).max(8_640_000_000_000_000);
const id = z.string().max(200);
const count = z.int().min(0);
/** The last written line of a conversation. */
const Part = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('conversation') }),
  z.object({ kind: z.literal('note'), at: ms, id }),
  z.object({ kind: z.literal('message'), seq: z.int(), index: z.int(), waitingAfter: id.nullable() }),
  z.object({ kind: z.literal('delivery'), at: ms, id }),
]);
type Part = z.infer<typeof Part>;

/** A conversation's place in the list, and which part was written last. A conversation that changes gets another place. */
const Place = z.object({ at: ms, id, part: Part });
type Place = z.infer<typeof Place>;

/**
 * `since`: when the export began. `version`: the assistant's version then. `lines`: how many lines were written, by
 * kind.
 */
const Position = z.object({
  since: ms,
  version: z.int(),
  lines: z.tuple([count, count, count, count, count, count]),
  place: Place.nullable(),
});
type Position = { since: number; version: number; lines: LineCounts; place: Place | null };

const cursors = createCursor(Position, 'after');
const encode = ({ lines, ...position }: Position): string => {
  const counts = LINE_KINDS.map((kind) => lines[kind]) as z.infer<typeof Position>['lines'];
  return cursors.encode({ ...position, lines: counts });
};
const decode = (text: string): Position => {
  const { lines, ...position } = cursors.decode(text);
  return { ...position, lines: Object.fromEntries(LINE_KINDS.map((kind, nth) => [kind, lines[nth]])) as LineCounts };
};

type Line = { kind: LineKind; place: Place | null; fields: object };

const settingsLine = ({ web: { identity: _identity, ...web }, ...assistant }: Assistant): Line => {
  const { name: _name, ...settings } = settingsOf(assistant);
  const { apiKey: _key, ...engine } = { apiKey: undefined, ...toEngineView(assistant.engine) };
  return { kind: 'settings', place: null, fields: { settings, engine, web } };
};

type Dependencies = {
  assistants: Pick<AssistantStore, 'getAssistant' | 'readKnowledge'>;
  conversations: ConversationStore;
  deliveries: Pick<DeliveryStore, 'listRecords'>;
  notes: Pick<Notes, 'read'>;
  draining: AbortSignal;
};

/** The position of a message, after which reading continues. `before`: the position of the message before it. */
const placeAfter = (before: HistoryPosition, { seq, messageId }: { seq: number | null; messageId: string }) =>
  seq === null
    ? { ...before, waitingAfter: messageId }
    : { seq, index: seq === before.seq ? before.index + 1 : 0, waitingAfter: null };

/** The lines of a conversation as it is now, after the part that the caller already has (`done`). */
const createLinesOf = ({ conversations, deliveries, notes }: Dependencies) =>
  async function* linesOf(conversation: StoredConversation, place: Omit<Place, 'part'>, done: Part | null) {
    const { conversationId, assistantId } = conversation;
    const line = (part: Part, fields: object): Line => ({ kind: part.kind, place: { ...place, part }, fields });
    const isDone = (kind: LineKind): boolean =>
      done !== null && LINE_KINDS.indexOf(done.kind) >= LINE_KINDS.indexOf(kind);

    if (!isDone('conversation')) {
      const { leadBecause, assigneeId = null, waitingSince = null, snoozedUntil = null } = conversation;
      const handling = { leadBecause, assigneeId, waitingSince, snoozedUntil };
      const attributes = toAttributesView(conversation.attributes);
      yield [line({ kind: 'conversation' }, { ...toView(conversation), ...handling, attributes })];
    }
    if (!isDone('message')) {
      const [at, last] = done?.kind === 'note' ? [done.at, done.id] : [-1, ''];
      const isNew = (one: { createdAt: Date; noteId: string }) =>
        one.createdAt.getTime() > at || (one.createdAt.getTime() === at && one.noteId > last);
      for await (const page of notes.read(conversationId))
        yield page
          .filter(isNew)
          .map((one) =>
            line({ kind: 'note', at: one.createdAt.getTime(), id: one.noteId }, { conversationId, ...one }),
          );
    }
    if (!isDone('delivery')) {
      let from: HistoryPosition | null = done?.kind === 'message' ? done : null;
      for await (const page of readAllMessages(conversations, conversation, from))
        yield page.map((one) => {
          const next: HistoryPosition = placeAfter(from ?? { seq: 0, index: -1, waitingAfter: null }, one);
          from = next;
          const view = { ...toMessageView(one, true), ...(one.why && { why: one.why }) };
          return line({ kind: 'message', ...next }, { conversationId, ...view });
        });
    }
    let cursor = done?.kind === 'delivery' ? deliveryCursor.encode({ at: new Date(done.at), id: done.id }) : null;
    do {
      const those = { assistantId, conversationId, limit: DELIVERIES_AT_ONCE, ...(cursor !== null && { cursor }) };
      const page = await deliveries.listRecords(those);
      yield page.deliveries.map((one) =>
        line({ kind: 'delivery', at: one.createdAt.getTime(), id: one._id }, toDeliveryRow(one)),
      );
      cursor = page.nextCursor;
    } while (cursor !== null);
  };

/**
 * The conversations that existed when the export began, in the order of their last change. A conversation that changes
 * before its turn is read at its new place. One that changes after its turn is read again. Only those of the last page
 * are read even if they have just changed, because no later page would have them.
 */
const createConversationLines = (dependencies: Dependencies) => {
  const { conversations } = dependencies;
  const linesOf = createLinesOf(dependencies);

  return async function* conversationLines(assistantId: string, since: number, from: Place | null) {
    async function* linesAt(
      { conversationId, updatedAt, _id }: Pick<StoredConversation, '_id' | 'conversationId' | 'updatedAt'>,
      { part, isLast }: { part: Part | null; isLast: boolean },
    ): AsyncGenerator<Line[]> {
      const now = await conversations.findById(conversationId, assistantId);
      if (!now || (!isLast && now.updatedAt.getTime() !== updatedAt.getTime())) return;
      yield* linesOf(now, { at: updatedAt.getTime(), id: _id }, part);
    }

    if (from) {
      const [row] = (await conversations.list({ assistantId, key: from.id, limit: 1 })).conversations;
      if (row?.updatedAt.getTime() === from.at) yield* linesAt(row, { part: from.part, isLast: false });
    }
    let after = from && { at: new Date(from.at), id: from.id };
    do {
      const page = await conversations.list({ assistantId, ...(after && { after }) });
      yield [];
      for (const row of page.conversations)
        if (row.createdAt.getTime() <= since) yield* linesAt(row, { part: null, isLast: page.next === null });
      after = page.next;
    } while (after);
  };
};

export const exportRoutes = (dependencies: Dependencies): Handled[] => {
  const { assistants, draining } = dependencies;
  const conversationLines = createConversationLines(dependencies);

  async function* pagesFrom(
    assistant: Assistant,
    { since, lines, place }: Position,
    { conversations, signal }: { conversations: boolean; signal: AbortSignal },
  ): AsyncGenerator<Line[]> {
    const { assistantId } = assistant;
    if (place === null) {
      if (lines.settings === 0) yield [settingsLine(assistant)];
      const entries = assistants.readKnowledge(assistantId, signal, lines.entry);
      for await (const batch of inParts(entries, bytesOfEntry))
        yield batch.map((entry): Line => ({ kind: 'entry', place: null, fields: entry }));
    }
    if (conversations) yield* conversationLines(assistantId, since, place);
  }

  /** Each line with the position after it, and at the end a line with the counts of all lines. */
  async function* written(
    begun: Position,
    pages: AsyncGenerator<Line[]>,
    { ends, isEarly }: { ends: number; isEarly: () => boolean },
  ): AsyncGenerator<string> {
    const slices = createSlices();
    const lines = { ...begun.lines };
    for await (const page of pages) {
      for (const { kind, place, fields } of page) {
        lines[kind] += 1;
        yield `${JSON.stringify({ kind, cursor: encode({ ...begun, lines, place }), ...fields })}\n`;
        if (isEarly()) return;
        if (slices.isOver()) await slices.next();
      }
      // Also after pages without lines: a cursor may skip all of them.
      if (isEarly() || performance.now() > ends || draining.aborted) return;
    }
    yield `${JSON.stringify({ kind: 'end', lines })}\n`;
  }

  async function* headed(header: string | null, rest: AsyncGenerator<string>): AsyncGenerator<string> {
    if (header !== null) yield header;
    yield* rest;
  }

  return [
    handled(exportOperations.export, async ({ params, query, req, res, signal, note, record, ...call }) => {
      await takeRoomForExport(req, res);
      const until = { ends: performance.now() + EXPORT_WITHIN_MS, isEarly: () => endsEarly(res) };
      const assistant = await assistants.getAssistant(params.id ?? '');
      const { assistantId, name, version } = assistant;
      const since = serverDate();
      const begun: Position =
        query.after === undefined
          ? { since: since.getTime(), version, lines: noLines(), place: null }
          : decode(query.after);
      if (begun.place === null && begun.version !== version)
        throw conflict('The settings or the knowledge have changed since: begin the export again.');
      note({ target: assistantId, details: { resumed: query.after !== undefined } });
      await record();
      const about = { format: EXPORT_FORMAT, assistantId, name, exportedAt: since };
      const header = { kind: 'header', cursor: encode(begun), ...about };
      const pages = inTurns(pagesFrom(assistant, begun, { conversations: query.conversations, signal }), call);
      res.setHeader('Content-Disposition', `attachment; filename="assistant-${assistantId}.ndjson"`);
      const text = query.after === undefined ? `${JSON.stringify(header)}\n` : null;
      await sendJson(res, headed(text, written(begun, pages, until)), signal, 'application/x-ndjson');
      return WRITTEN;
    }),
  ];
};

const IMPORT_MAX_BYTES = 4_000_000;

export const importOperations = {
  import: operation({
    method: 'post',
    path: '/assistants/:id/import',
    id: 'importAssistant',
    audience: 'owners',
    resource: 'assistant',
    summary: `Take over the settings and the knowledge of an export: at most ${IMPORT_MAX_BYTES / 1e6} MB, its bytes as the body`,
    upload: { description: 'The bytes of an export.', isHeld: true },
    answer: z.object({
      settings: z
        .array(z.string())
        .meta({ description: 'What has changed: names of settings, `engine`, or `web.` and a name.' }),
      entries: z.int().min(0).meta({ description: 'How many entries the file and now the assistant have.' }),
      changed: z.boolean().meta({ description: 'Whether the knowledge was another one before.' }),
      skipped: z.int().min(0).meta({ description: 'Lines of conversations, which are not imported.' }),
    }),
    audit: 'assistant.import',
    errors: ['conflict', 'validation_failed', 'invalid_json'],
  }),
};

/** The fields whose values differ from the stored ones. */
const differing = <Fields extends object>(wanted: Fields, now: object): Partial<Fields> =>
  Object.fromEntries(
    Object.entries(wanted).filter(([name, value]) => !isDeepStrictEqual(value, now[name as keyof typeof now])),
  ) as Partial<Fields>;

type ImportDependencies = { assistants: AssistantStore; allowPrivate: boolean };

export const importRoutes = ({ assistants, allowPrivate }: ImportDependencies): Handled[] => {
  const readEntries = async ({ text, lineOf }: ExportFile['entries'], caller: ReadFor): Promise<KnowledgeInput[]> => {
    if (text === '') return [];
    const { entries, refused } = await readKnowledge('json', text, caller);
    const [first] = refused;
    if (first) throw invalid('file', 'invalid', `line ${lineOf(first.line)}: ${first.reason}`);
    return entries;
  };

  /** Whether the assistant, or its draft, has exactly these entries in this order. */
  const hasEntries = async (assistant: Assistant, wanted: KnowledgeInput[], signal: AbortSignal): Promise<boolean> => {
    const { assistantId, drafts } = assistant;
    const pages = drafts
      ? assistants.drafts.readEntries(assistantId, signal)
      : assistants.readKnowledge(assistantId, signal);
    const slices = createSlices();
    let nth = 0;
    for await (const page of pages) {
      for (const { question, variants, answer, language, actions, tags } of page) {
        const entry: KnowledgeInput = { question, variants, answer, language, actions, tags };
        if (!isDeepStrictEqual(entry, wanted[nth])) return false;
        nth += 1;
        if (slices.isOver()) await slices.next();
      }
    }
    return nth === wanted.length;
  };

  return [
    handled(importOperations.import, async ({ params: { id = '' }, operator, req, res, note, signal }) => {
      const stored = await assistants.getAssistant(id);
      const file = await readExportFile(uploadedBytes(req, res, IMPORT_MAX_BYTES));
      const entries = await readEntries(file.entries, { assistantId: id, signal, ...readFor(req, res) });
      const by = authorOf(operator);
      const now = await assistants.drafts.apply(stored);
      const { apiKey: _key, ...engine } = { apiKey: undefined, ...toEngineView(now.engine) };
      const changesEngine = !isDeepStrictEqual(engine, file.engine);
      const settings: Partial<AssistantInput> = differing(file.settings, now);
      const web = differing(file.web, now.web);

      // The engine goes first: if its address is refused, nothing else is changed.
      if (changesEngine) {
        if (file.engine.kind === 'openai') await requirePublicUrl(file.engine.baseUrl, { allowPrivate }, 'baseUrl');
        await assistants.setEngine(id, file.engine, { by });
      }
      if (Object.keys(settings).length > 0) await assistants.updateAssistant(id, settings, { by });
      if (Object.keys(web).length > 0) await assistants.setWeb(id, web);
      const changed = !(await hasEntries(await assistants.getAssistant(id), entries, signal));
      // See `importKnowledge`.
      if (changed) await workOnBody(req, res, assistants.addKnowledge(id, entries, { replace: true, by }));
      const names = [...Object.keys(settings), ...(changesEngine ? ['engine'] : []), ...Object.keys(web).map(webName)];
      note({ target: id, details: { settings: names.join(', '), entries: entries.length, changed } });
      return { settings: names, entries: entries.length, changed, skipped: file.skipped };
    }),
  ];
};

const webName = (name: string): string => `web.${name}`;
