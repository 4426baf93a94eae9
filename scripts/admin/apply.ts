import { dirname, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Command } from 'commander';
import { parse, stringify } from 'yaml';
import * as z from 'zod';
import { AssistantInput } from '../../src/assistants/assistant.ts';
import { EngineInput, WebSettings } from '../../src/assistants/settings.ts';
import { knowledgeFormatOf, parseKnowledge } from '../../src/assistants/knowledge/import.ts';
import { type KnowledgeInput, MAX_KNOWLEDGE } from '../../src/assistants/knowledge/entry.ts';
import { assistantOperations } from '../../src/assistants/http/assistants.ts';
import { knowledgeOperations } from '../../src/assistants/knowledge/http.ts';
import { webChannelOperations } from '../../src/assistants/http/channel.ts';
import { check, detailOf } from '../../src/platform/process/validation.ts';
import type { Answered, Api } from './api.ts';
import { example, fromVariable } from './arguments.ts';
import { Failure } from './failure.ts';
import type { Run } from './session.ts';
import { plain } from './text.ts';
import { readText } from './text-file.ts';

/** The exit status of `--dry-run` if something would change. */
const WOULD_CHANGE = 3;
const SHOWN_CHARS = 80;

type Assistant = Answered<typeof assistantOperations.read>;
type Entry = Answered<typeof knowledgeOperations.list>['entries'][number];

const SETTINGS = Object.keys(AssistantInput.shape) as (keyof typeof AssistantInput.shape & keyof Assistant)[];

const EngineKind = z.looseObject({ kind: z.string(), keyEnv: z.string().min(1).optional() });
const Wanted = z.strictObject({
  assistant: z.uuid().optional(),
  ...AssistantInput.partial().shape,
  engine: EngineKind.optional(),
  web: z.strictObject(WebSettings.shape).partial().optional(),
  knowledge: z.union([z.string(), z.array(z.unknown())]).optional(),
});

/** What a file asks for. What it does not name stays as it is. */
export type Wanted = {
  assistantId: string | undefined;
  settings: Partial<AssistantInput>;
  engine: { input: z.output<typeof EngineInput>; keyEnv: string | undefined } | undefined;
  web: Partial<WebSettings> | undefined;
  knowledge: KnowledgeInput[] | undefined;
};

const shown = (value: unknown): string => {
  const text = plain(JSON.stringify(value) ?? '–').replaceAll('\n', ' ');
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
};

const wrong = (file: string, reason: string): Failure => new Failure('validation_failed', `${file}: ${reason}`);

const checked = <Schema extends z.ZodType>(file: string, schema: Schema, value: unknown, at = ''): z.output<Schema> => {
  const parsed = check(schema, value);
  if (parsed.success) return parsed.data;
  const reasons = parsed.error.issues.map((issue) => {
    const { field, message } = detailOf(issue);
    const unknown = issue.code === 'unrecognized_keys' ? issue.keys.map(shown).join(', ') : '';
    return `${at}${field} ${unknown === '' ? message : `has unknown fields: ${unknown}`}`.trim();
  });
  throw wrong(file, reasons.join('; '));
};

const readYaml = (file: string): unknown => {
  try {
    return parse(readText(file)) as unknown;
  } catch (cause) {
    if (cause instanceof Failure) throw cause;
    // The message quotes the file, which may hold a text that is not for a log.
    const { linePos: [{ line } = { line: 1 }] = [] } = cause as { linePos?: { line: number }[] };
    throw wrong(file, `line ${line} is not valid YAML`);
  }
};

/** The entries of a list in the file, or of a file beside it. A wrong entry refuses all. */
const readEntries = (file: string, knowledge: string | unknown[]): KnowledgeInput[] => {
  const beside = typeof knowledge === 'string' ? resolve(dirname(file), knowledge) : null;
  const format = beside === null ? 'json' : knowledgeFormatOf(beside);
  if (format === null) throw wrong(file, 'the name of knowledge does not show its format');
  const { entries, refused } = parseKnowledge(format, beside === null ? JSON.stringify(knowledge) : readText(beside));
  if (refused.length === 0) return entries;
  const reasons = refused.map(({ line, reason }) => (beside === null ? reason : `line ${line}: ${reason}`));
  throw wrong(beside ?? file, `knowledge: ${reasons.slice(0, 10).join('; ')}`);
};

const readWanted = (file: string): Wanted => {
  const given = readYaml(file);
  const { assistant: assistantId, engine, web, knowledge, ...settings } = checked(file, Wanted, given);
  const named = Object.entries(settings).filter(([name]) => Object.hasOwn(given as object, name));
  const { keyEnv, ...kind } = engine ?? { kind: '' };
  return {
    assistantId,
    settings: Object.fromEntries(named),
    engine: engine && { input: checked(file, EngineInput, kind, 'engine.'), keyEnv },
    web: web && Object.fromEntries(Object.entries(web)),
    knowledge: knowledge === undefined ? undefined : readEntries(file, knowledge),
  };
};

const one = (id: string) => ({ id, what: 'assistant' });
/** With the setting `drafts` changes go to the draft, so what is there already is looked for in it. */
const inDraft = { query: { draft: 'true' } };

/** The assistant that a file is about: by its id, else the only one of its name, else a new one. */
const findAssistant = async (api: Api, { assistantId, settings }: Wanted): Promise<Assistant | null> => {
  const read = (id: string) => api.call(assistantOperations.read, { ...one(id), ...inDraft });
  if (assistantId !== undefined) return read(assistantId);
  const { name } = settings;
  if (name === undefined) throw new Failure('validation_failed', 'The file names no assistant and no name.');
  const { assistants } = await api.call(assistantOperations.list);
  const found = assistants.filter((one) => one.name === name);
  if (found.length > 1)
    throw new Failure('validation_failed', `${found.length} assistants are called ${name}: give the id of one.`);
  return found[0] ? read(found[0].assistantId) : null;
};

/** A difference, as its line and its calls. `needs` is an environment variable. */
type Change = { line: string; make: (api: Api, id: string) => Promise<unknown>; needs?: string | undefined };

const changed = (name: string, before: unknown, after: unknown): string =>
  before === undefined ? `+ ${name}: ${shown(after)}` : `~ ${name}: ${shown(before)} → ${shown(after)}`;

const settingChanges = ({ settings }: Wanted, now: Assistant): Change[] => {
  const differing = SETTINGS.filter((name) => name in settings && !isDeepStrictEqual(settings[name], now[name]));
  if (differing.length === 0) return [];
  const body = Object.fromEntries(differing.map((name) => [name, settings[name]]));
  const [first, ...others] = differing.map((name) => changed(name, now[name], settings[name]));
  return [
    { line: first ?? '', make: (api, id) => api.call(assistantOperations.update, { ...one(id), body }) },
    ...others.map((line) => ({ line, make: async () => undefined })),
  ];
};

const engineChange = ({ engine }: Wanted, { engine: now }: Pick<Assistant, 'engine'>): Change[] => {
  if (!engine) return [];
  const { input, keyEnv } = engine;
  const { apiKey: _given, ...wanted } = { apiKey: undefined, ...input };
  const { apiKey: stored, ...before } = { apiKey: 'none', ...now };
  // A stored key cannot be compared. It is set if there is none, or if another address would lose it.
  const lacksKey = keyEnv !== undefined && stored === 'none';
  if (isDeepStrictEqual(wanted, before) && !lacksKey) return [];
  const make: Change['make'] = (api, id) =>
    api.call(assistantOperations.setEngine, {
      ...one(id),
      body: keyEnv === undefined ? input : ({ ...input, apiKey: fromVariable(keyEnv) } as typeof input),
    });
  return [{ line: `${changed('engine', before, wanted)}${lacksKey ? ', with a key' : ''}`, make, needs: keyEnv }];
};

const webChanges = async (api: Api, { web }: Wanted, now: Assistant | null): Promise<Change[]> => {
  if (!web) return [];
  const before = now && (await api.call(webChannelOperations.read, one(now.assistantId)));
  const differing = (Object.keys(web) as (keyof WebSettings)[]).filter(
    (name) => !isDeepStrictEqual(web[name], before?.[name]),
  );
  if (differing.length === 0) return [];
  const body = Object.fromEntries(differing.map((name) => [name, web[name]]));
  const lines = differing.map((name) => changed(`web.${name}`, before?.[name], web[name]));
  return lines.map((line, nth) => ({
    line,
    make: async (used, id) => (nth === 0 ? used.call(webChannelOperations.change, { ...one(id), body }) : undefined),
  }));
};

const withoutId = ({ entryId: _id, edit: _edit, ...entry }: Entry): KnowledgeInput => entry;

const keyOf = ({ question, language }: KnowledgeInput): string => `${language ?? ''}\n${question}`;

/** Entries that are sent together. An entry has 30 KB at most in most languages, and a body 4 MiB. */
const SENT_TOGETHER_CHARS = 500_000;

const inBatches = (entries: KnowledgeInput[]): KnowledgeInput[][] => {
  const batches: KnowledgeInput[][] = [];
  let left = 0;
  for (const entry of entries) {
    const { length } = JSON.stringify(entry);
    if (length > left || batches.length === 0) {
      batches.push([]);
      left = SENT_TOGETHER_CHARS;
    }
    batches.at(-1)?.push(entry);
    left -= length;
  }
  return batches;
};

/** What is new is added before anything is removed, so that visitors never find fewer answers. Entries keep their ids. */
const knowledgeChanges = (wanted: KnowledgeInput[], now: Entry[]): Change[] => {
  const left = new Map(Map.groupBy(now, (entry) => keyOf(entry)));
  const take = (key: string, matches: (entry: Entry) => boolean): Entry | undefined => {
    const same = left.get(key) ?? [];
    const at = same.findIndex(matches);
    return at === -1 ? undefined : same.splice(at, 1)[0];
  };
  const differing = wanted.filter(
    (entry) => !take(keyOf(entry), (known) => isDeepStrictEqual(withoutId(known), entry)),
  );
  const updates: Change[] = [];
  const added: KnowledgeInput[] = [];
  for (const entry of differing) {
    const known = take(keyOf(entry), () => true);
    if (!known) {
      added.push(entry);
      continue;
    }
    const params = { entryId: known.entryId };
    updates.push({
      line: `~ knowledge: ${shown(entry.question)}`,
      make: (api, id) => api.call(knowledgeOperations.update, { ...one(id), params, body: entry }),
    });
  }
  const additions = inBatches(added).flatMap((batch) => {
    const body = { format: 'json' as const, text: JSON.stringify(batch) };
    const all = (api: Api, id: string) => api.call(knowledgeOperations.importFile, { ...one(id), body });
    return batch.map(({ question }, nth): Change => {
      const make: Change['make'] = async (api, id) => (nth === 0 ? all(api, id) : undefined);
      return { line: `+ knowledge: ${shown(question)}`, make };
    });
  });
  const removals = [...left.values()].flat().map(({ entryId, question }): Change => {
    const make: Change['make'] = (api, id) => api.call(knowledgeOperations.remove, { ...one(id), params: { entryId } });
    return { line: `- knowledge: ${shown(question)}`, make };
  });
  // With no room for both, the others make room.
  const isRoom = now.length + added.length <= MAX_KNOWLEDGE;
  return isRoom ? [...additions, ...updates, ...removals] : [...removals, ...updates, ...additions];
};

const NEW_ENGINE = { engine: { kind: 'retrieval' as const } };

const changesOf = async (api: Api, wanted: Wanted, now: Assistant | null): Promise<Change[]> => {
  const entries =
    now && wanted.knowledge
      ? (await api.call(knowledgeOperations.list, { ...one(now.assistantId), ...inDraft })).entries
      : [];
  const { name, ...rest } = wanted.settings;
  const created = Object.entries({ name, ...rest }).map(([setting, value]): Change => {
    return { line: changed(setting, undefined, value), make: async () => undefined };
  });
  return [
    // The engine goes first: if the API refuses it, nothing else is changed.
    ...engineChange(wanted, now ?? NEW_ENGINE),
    ...(now ? settingChanges(wanted, now) : created),
    ...(await webChanges(api, wanted, now)),
    ...(wanted.knowledge ? knowledgeChanges(wanted.knowledge, entries) : []),
  ];
};

const create = async (api: Api, { settings }: Wanted): Promise<string> =>
  (await api.call(assistantOperations.create, { body: settings as AssistantInput })).assistantId;

type Options = { file: string; dryRun?: boolean };

/** Makes an assistant as it is wanted, and tells what was changed or, with `dryRun`, what would be. */
export const makeAs = async (api: Api, wanted: Wanted, { dryRun = false }: Pick<Options, 'dryRun'>) => {
  const now = await findAssistant(api, wanted);
  const changes = await changesOf(api, wanted, now);
  const lines = [...(now ? [] : ['+ assistant']), ...changes.map(({ line }) => line)];
  const report = { created: now === null, changes: lines };
  if (dryRun) {
    const json = { assistantId: now?.assistantId ?? null, ...report };
    return { json, text: lines.join('\n') || 'Nothing differs.', status: lines.length > 0 ? WOULD_CHANGE : 0 };
  }
  for (const { needs } of changes) if (needs !== undefined) fromVariable(needs);
  const assistantId = now?.assistantId ?? (await create(api, wanted));
  for (const { make } of changes) await make(api, assistantId);
  const done = lines.length === 0 ? 'Nothing differs.' : `Assistant ${assistantId} is as the file says.`;
  return { json: { assistantId, ...report }, text: [...lines, done].join('\n') };
};

/** An assistant's settings and knowledge as a file that `apply` takes, for this assistant or another one. */
const describe = async (api: Api, assistantId: string) => {
  const now = await api.call(assistantOperations.read, one(assistantId));
  const { page: _page, identity: _identity, ...web } = await api.call(webChannelOperations.read, one(assistantId));
  const { entries } = await api.call(knowledgeOperations.list, one(assistantId));
  const { apiKey: _key, ...engine } = { apiKey: undefined, ...now.engine };
  const settings = Object.fromEntries(SETTINGS.map((name) => [name, now[name]]));
  const json = { ...settings, engine, web, knowledge: entries.map(withoutId) };
  return { json, text: stringify(json).trimEnd() };
};

export const addApplyCommand = (program: Command, run: Run): void => {
  program
    .command('apply')
    .description('Make an assistant as a YAML file says; what the file does not name stays')
    .requiredOption('-f, --file <file>', 'the file')
    .option('--dry-run', `only show what differs; ends with status ${WOULD_CHANGE} if anything does`)
    .addHelpText('after', example('apply -f assistant.yaml --dry-run'))
    .action((options: Options) => run((api) => makeAs(api, readWanted(options.file), options)));
};

export const addDescribeCommand = (program: Command, run: Run): void => {
  program
    .command('describe <assistantId>')
    .description('Print the settings and knowledge of an assistant as a file for apply, without secrets')
    .addHelpText('after', example('describe 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 > assistant.yaml'))
    .action((assistantId: string) => run((api) => describe(api, assistantId)));
};
