import { type Command, InvalidArgumentError } from 'commander';
import { MAX_OVERLAP_HOURS } from '../../src/assistants/api-keys.ts';
import { parseWholeNumber } from '../../src/platform/process/validation.ts';
import { isUuid } from '../../src/platform/process/ids.ts';
import { usage } from './failure.ts';

/** Parsers of arguments. Each throws an error that Commander reports as wrong usage. */

export const wholeNumber =
  (min: number, max: number) =>
  (value: string): number => {
    const number = parseWholeNumber(value, min, max);
    if (number === null) throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    return number;
  };

/** What `none` is until `setNulls`, because Commander replaces null by an empty text. */
const NONE = Symbol('none') as unknown as null; // its type is that of what `setNulls` makes of it

/** Called before the action of each command, which then has null for `none`. */
export const setNulls = (command: Command): void => {
  for (const [name, value] of Object.entries(command.opts())) if (value === NONE) command.setOptionValue(name, null);
};

/** A value, or `none`. */
export const orNone =
  <Value>(parse: (value: string) => Value) =>
  (value: string): Value | null =>
    value === 'none' ? NONE : parse(value);

export const wholeNumberOrNone = (min: number, max: number) => orNone(wholeNumber(min, max));

export const shortText =
  (max: number) =>
  (value: string): string => {
    const text = value.trim();
    if (text === '' || text.length > max || !text.isWellFormed()) {
      throw new InvalidArgumentError(`It must have 1 to ${max} characters.`);
    }
    return text;
  };

export const commaList = (value: string): string[] =>
  value
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');

/** Accepts only a token that can follow `Bearer ` in a header. */
export const bearerToken = (value: string): string => {
  if (!/^[\x21-\x7e]{1,255}$/.test(value)) {
    throw new InvalidArgumentError('It must be 1 to 255 visible ASCII characters, without a space.');
  }
  return value;
};

export const color = (value: string): string => {
  if (!/^#[0-9a-f]{6}$/i.test(value)) throw new InvalidArgumentError('It must be a colour like #1e90ff.');
  return value.toLowerCase();
};

export const uuid = (value: string): string => {
  if (!isUuid(value)) throw new InvalidArgumentError('It must be a UUID.');
  return value;
};

export const pointInTime = (value: string): Date => {
  const time = new Date(value);
  if (Number.isNaN(time.getTime())) throw new InvalidArgumentError('It must be a time like 2026-01-31T12:00:00Z.');
  return time;
};

/** A secret is given in a variable of the environment, because others can read arguments and the history of a shell. */
export const fromVariable = (name: string): string => {
  const value = process.env[name];
  if (!value) throw usage(`The variable ${name} is not set.`);
  return value;
};

/** How long the old secret stays valid after a rotation. */
export const overlapOption = (what: string) =>
  [
    '--overlap <hours>',
    `how long the old one ${what} (0–${MAX_OVERLAP_HOURS})`,
    wholeNumber(0, MAX_OVERLAP_HOURS),
  ] as const;

export const ASSISTANT_OPTION = ['--assistant <id>', 'id of the assistant'] as const;

/** The example at the end of a command's help. */
export const example = (...lines: string[]): string =>
  `\nExample${lines.length > 1 ? 's' : ''}:\n${lines.map((line) => `  npm run admin -- ${line}`).join('\n')}`;
