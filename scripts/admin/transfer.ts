import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import type { Command } from 'commander';
import { LINE_KINDS, type LineCounts, readExportFile } from '../../src/assistants/export-file.ts';
import { parseKnowledge } from '../../src/assistants/knowledge/import.ts';
import { exportOperations } from '../../src/assistants/http/transfer.ts';
import type { Api } from './api.ts';
import { makeAs } from './apply.ts';
import { ASSISTANT_OPTION, example } from './arguments.ts';
import { Failure } from './failure.ts';
import type { Run } from './session.ts';

/** More than a line of an export. */
const TAIL_BYTES = 1024 * 1024;
const TRIES_MAX = 5;
const AGAIN_AFTER_MS = 1_000;
const ID = '6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11';

type Line = { kind?: string; cursor?: string; assistantId?: string; lines?: LineCounts };

const unreadable = (file: string, cause: unknown): Failure =>
  new Failure('file_unreadable', `${file} cannot be opened: ${String((cause as NodeJS.ErrnoException).code)}.`, {
    cause,
  });

const parsed = (file: string, text: string): Line => {
  try {
    const line = JSON.parse(text) as unknown;
    if (typeof line === 'object' && line !== null) return line;
  } catch {
    // reported below
  }
  throw new Failure('conflict', `${file} is there already, and is not an export.`);
};

const readAt = async (handle: FileHandle, from: number, length: number): Promise<Buffer> => {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, from);
  return buffer.subarray(0, bytesRead);
};

/** The last whole line of the file, which a part of a line behind it is cut off from. Null: the file is empty now. */
const cutToLastLine = async (handle: FileHandle, file: string, assistantId: string): Promise<Line | null> => {
  const { size } = await handle.stat();
  if (size === 0) return null;
  const head = await readAt(handle, 0, TAIL_BYTES);
  const first = head.indexOf('\n');
  if (!head.toString('latin1').startsWith('{"kind":"header"'.slice(0, size))) parsed(file, '');
  if (first === -1) {
    await handle.truncate(0);
    return null;
  }
  if (parsed(file, head.toString('utf8', 0, first)).assistantId !== assistantId)
    throw new Failure('conflict', `${file} is an export of another assistant.`);
  const from = Math.max(0, size - TAIL_BYTES);
  const tail = await readAt(handle, from, TAIL_BYTES);
  const end = tail.lastIndexOf('\n');
  await handle.truncate(from + end + 1);
  return parsed(file, tail.toString('utf8', tail.lastIndexOf('\n', end - 1) + 1, end));
};

/** Cut off, or too busy: the same call may succeed later. */
const isPassing = (cause: unknown): boolean =>
  !(cause instanceof Failure) || ['unavailable', 'rate_limited'].includes(cause.code);
const isConflict = (cause: unknown): boolean => cause instanceof Failure && cause.code === 'conflict';

type Exported = { assistantId: string; file: string; conversations: boolean };

/** Writes an export to a file, and goes on after the last whole line of it whenever an answer has ended or was cut off. */
const exportTo = async (api: Api, { assistantId, file, conversations }: Exported): Promise<LineCounts> => {
  // It has what visitors wrote.
  const handle = await open(file, 'a+', 0o600).catch((cause: unknown) => {
    throw unreadable(file, cause);
  });
  try {
    for (let tries = 0; ; ) {
      const last = await cutToLastLine(handle, file, assistantId);
      if (last?.kind === 'end' && last.lines) return last.lines;
      const { size } = await handle.stat();
      const query = { after: last?.cursor, conversations: String(conversations) };
      try {
        const pieces = await api.read(exportOperations.export, { id: assistantId, what: 'assistant', query });
        for await (const piece of pieces) await handle.appendFile(piece);
        tries = 0;
      } catch (cause) {
        const hasGrown = (await handle.stat()).size > size;
        tries = hasGrown ? 1 : tries + 1;
        // The knowledge is exported of one moment, so after a change of it a part of it is worth nothing.
        if (isConflict(cause) && last) await handle.truncate(0);
        else if (!isPassing(cause)) throw cause;
        if (tries === TRIES_MAX) throw cause;
        await setTimeout(AGAIN_AFTER_MS);
      }
    }
  } finally {
    await handle.close();
  }
};

export const addExportCommand = (program: Command, run: Run): void => {
  program
    .command('export <assistantId> <file>')
    .description(
      'Write an assistant to a file: settings, knowledge and conversations; an unfinished file is gone on with',
    )
    .option('--no-conversations', 'only settings and knowledge')
    .addHelpText('after', example(`export ${ID} shop.ndjson`))
    .action((assistantId: string, file: string, { conversations }: { conversations: boolean }) =>
      run(async (api) => {
        const lines = await exportTo(api, { assistantId, file, conversations });
        const counts = LINE_KINDS.map((kind) => `${kind}: ${lines[kind]}`).join(', ');
        return { json: { file, lines }, text: `${file} is whole. Its lines: ${counts}.` };
      }),
    );
};

export const addImportCommand = (program: Command, run: Run): void => {
  program
    .command('import <file>')
    .description('Make an assistant have the settings and the knowledge of an export; its name stays')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--dry-run', 'only show what differs; ends with status 3 if anything does')
    .addHelpText('after', example(`import --assistant ${ID} shop.ndjson --dry-run`))
    .action((file: string, { assistant, dryRun = false }: { assistant: string; dryRun?: boolean }) =>
      run(async (api) => {
        const bytes = createReadStream(file);
        const { settings, engine, web, entries, skipped } = await readExportFile(bytes).catch((cause: unknown) => {
          throw (cause as NodeJS.ErrnoException).syscall === undefined ? cause : unreadable(file, cause);
        });
        const { entries: knowledge, refused } = parseKnowledge('json', entries.text || '[]');
        const [first] = refused;
        if (first)
          throw new Failure('validation_failed', `${file}: line ${entries.lineOf(first.line)}: ${first.reason}`);
        const wanted = {
          assistantId: assistant,
          settings,
          engine: { input: engine, keyEnv: undefined },
          web,
          knowledge,
        };
        const { json, text, ...more } = await makeAs(api, wanted, { dryRun });
        const skips = `${knowledge.length} entries in the file, ${skipped} lines of conversations skipped.`;
        return { json: { ...json, entries: knowledge.length, skipped }, text: `${text}\n${skips}`, ...more };
      }),
    );
};
