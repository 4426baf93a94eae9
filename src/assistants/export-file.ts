import * as z from 'zod';
import { ApiError, invalid } from '../platform/process/errors.ts';
import { createSlices } from '../platform/process/slices.ts';
import { check, detailOf, findUnstorable, forEachJsonMark } from '../platform/process/validation.ts';
import { AssistantInput } from './assistant.ts';
import { EngineInput, WebSettings } from './settings.ts';
import { MAX_KNOWLEDGE } from './knowledge/entry.ts';

/** The version of the file format. It rises when older readers would misunderstand a line. */
export const EXPORT_FORMAT = 1;
/** The maximum length of a line, in bytes. Every line of an export is shorter than half of it. */
const LINE_MAX_BYTES = 512 * 1024;
/** The maximum number of values in a line that is parsed here. Entries are parsed in another process. */
const LINE_VALUES_MAX = 2_000;

/**
 * The kinds of lines between the first and the last line, in their order. The lines of one conversation are together.
 */
export const LINE_KINDS = ['settings', 'entry', 'conversation', 'note', 'message', 'delivery'] as const;
export type LineKind = (typeof LINE_KINDS)[number];
export type LineCounts = Record<LineKind, number>;

export const noLines = (): LineCounts => ({ settings: 0, entry: 0, conversation: 0, note: 0, message: 0, delivery: 0 });

/** The name is not taken over: two assistants of one name would be mistaken for each other. */
const Settings = AssistantInput.omit({ name: true }).partial();
const Header = z.object({ format: z.int() });
const SettingsLine = z.object({
  settings: z.record(z.string(), z.unknown()),
  engine: EngineInput,
  web: WebSettings.partial(),
});
const End = z.object({ lines: z.object({ entry: z.int() }) });

/** What an import takes from a file. `skipped`: lines of conversations. */
export type ExportFile = {
  settings: Partial<Omit<z.output<typeof AssistantInput>, 'name'>>;
  engine: z.output<typeof EngineInput>;
  web: Partial<WebSettings>;
  /** The entries as the text of a JSON array. Each line of this text is a line of the file. Empty if there are none. */
  entries: { text: string; lineOf: (row: number) => number };
  skipped: number;
};

const wrong = (line: number, message: string) => invalid('file', 'invalid', `line ${line} ${message}`);

/** Each line without its line end. At most one line is in memory, besides the piece that arrived. */
async function* linesIn(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let parts: Uint8Array[] = [];
  let size = 0;
  let nth = 1;
  const add = (part: Uint8Array): void => {
    size += part.length;
    if (size > LINE_MAX_BYTES) throw wrong(nth, 'is longer than any line of an export');
    parts.push(part);
  };
  const take = (): Buffer => {
    const line = Buffer.concat(parts);
    [parts, size] = [[], 0];
    nth += 1;
    return line;
  };
  for await (const piece of bytes) {
    let from = 0;
    for (let end = piece.indexOf(10); end !== -1; end = piece.indexOf(10, from)) {
      add(piece.subarray(from, end));
      yield take();
      from = end + 1;
    }
    // A copy, because a small rest would keep the whole piece in memory.
    if (from < piece.length) add(Uint8Array.from(piece.subarray(from)));
  }
  if (size > 0) yield take();
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

const textOf = (bytes: Buffer, nth: number): string => {
  try {
    return utf8.decode(bytes);
  } catch {
    throw wrong(nth, 'is not UTF-8 text');
  }
};

const checkedAs = <Schema extends z.ZodType>(schema: Schema, value: unknown, nth: number): z.output<Schema> => {
  const checked = check(schema, value);
  if (checked.success) return checked.data;
  const [{ field, message }] = checked.error.issues.map(detailOf) as [ReturnType<typeof detailOf>];
  throw wrong(nth, `has a wrong field: ${field} ${message}`);
};

const valueOf = async (line: Buffer, nth: number): Promise<unknown> => {
  let values = 0;
  await forEachJsonMark(line, () => {
    values += 1;
    if (values > LINE_VALUES_MAX) throw wrong(nth, 'has more values than any such line of an export');
  });
  let value: unknown;
  try {
    value = JSON.parse(textOf(line, nth));
  } catch (cause) {
    throw cause instanceof ApiError ? cause : wrong(nth, 'is not JSON');
  }
  if (findUnstorable(value) !== null) throw wrong(nth, 'contains a character that is not well-formed Unicode');
  return value;
};

const settingsOf = (value: unknown, nth: number): Pick<ExportFile, 'settings' | 'engine' | 'web'> => {
  const { settings, engine, web } = checkedAs(SettingsLine, value, nth);
  // The schema adds defaults for omitted fields. They are dropped, so that a setting that an older version did not
  // export is kept.
  const all = Object.entries(checkedAs(Settings, settings, nth));
  // An export has no secrets. A key that somebody wrote into the file is ignored.
  const { apiKey: _never, ...withoutKey } = { apiKey: undefined, ...engine };
  return {
    settings: Object.fromEntries(all.filter(([name]) => Object.hasOwn(settings, name))),
    engine: withoutKey,
    web: Object.fromEntries(Object.entries(web).filter(([, one]) => one !== undefined)),
  };
};

/** `kind` comes first in each line, so that a line can be skipped without parsing it. */
const KIND_MAX_BYTES = 40;
const KIND = /^\{"kind":"([a-z]{1,20})"/;

/**
 * Reads the settings and the entries of a file as an export writes it, and skips what belongs to conversations. An
 * incomplete file is refused, because the import would remove the entries that the file lacks.
 */
export const readExportFile = async (bytes: AsyncIterable<Uint8Array>): Promise<ExportFile> => {
  const entries: string[] = [];
  const lineNumbers: number[] = [];
  let given: Pick<ExportFile, 'settings' | 'engine' | 'web'> | undefined;
  let [nth, skipped, isWhole] = [0, 0, false];
  const slices = createSlices();
  for await (const line of linesIn(bytes)) {
    nth += 1;
    if (slices.isOver()) await slices.next();
    if (line.length === 0) continue;
    const kind = KIND.exec(line.toString('latin1', 0, KIND_MAX_BYTES))?.[1];
    if ((nth === 1) !== (kind === 'header')) throw wrong(nth, 'is not where it is in an export');
    if (isWhole) throw wrong(nth, 'comes after the end');
    if (kind === 'header') {
      const { format } = checkedAs(Header, await valueOf(line, nth), nth);
      if (format !== EXPORT_FORMAT) throw wrong(nth, 'is of a format that this version does not read');
    } else if (kind === 'settings') given = settingsOf(await valueOf(line, nth), nth);
    else if (kind === 'entry') {
      if (entries.length === MAX_KNOWLEDGE) throw wrong(nth, `is one of more than ${MAX_KNOWLEDGE} entries`);
      entries.push(textOf(line, nth));
      lineNumbers.push(nth);
    } else if (kind === 'end') {
      const { lines } = checkedAs(End, await valueOf(line, nth), nth);
      isWhole = lines.entry === entries.length;
    } else if ((LINE_KINDS as readonly (string | undefined)[]).includes(kind)) skipped += 1;
    else throw wrong(nth, 'is of no kind that an export has');
  }
  if (!isWhole || !given) throw invalid('file', 'invalid', 'is not whole: finish the export, and import it then');
  const text = entries.length === 0 ? '' : `[${entries.join(',\n')}]`;
  return { ...given, entries: { text, lineOf: (row) => lineNumbers[row - 1] ?? nth }, skipped };
};
