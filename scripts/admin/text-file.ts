import { readFileSync } from 'node:fs';
import { decodeText } from '../../src/platform/process/text-file.ts';
import { Failure } from './failure.ts';

/** The text of a file. Fails if it cannot be read. */
export const readText = (file: string): string => {
  try {
    return decodeText(readFileSync(file));
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    throw new Failure('file_unreadable', `${file} cannot be read: ${code ?? message}.`, { cause });
  }
};
