import { parseArgs } from 'node:util';
import { FAULTS } from '../../test/kit/planted.ts';

/** A number of the command line: its default, the least and the most that is allowed. It is whole unless it says so. */
type Rule = [byDefault: number, least: number, most: number, fraction?: 'fraction'];

/** Reads the command line: `numbers` within their limits, the names of `flags`, and of texts with their defaults. */
export const readArguments = <Name extends string, Flag extends string = never, Text extends string = never>(
  numbers: Record<Name, Rule>,
  { flags = [], texts = [] }: { flags?: Flag[]; texts?: Text[] } = {},
) => {
  const all = [...Object.keys(numbers), ...texts].map((name) => [name, { type: 'string' as const }]);
  const switches = flags.map((name) => [name, { type: 'boolean' as const }]);
  const options = Object.fromEntries([...all, ...switches]) as Record<string, { type: 'string' | 'boolean' }>;
  const values: Record<string, unknown> = parseArgs({ options }).values;
  const read = Object.entries<Rule>(numbers).map(([name, [byDefault, least, most, fraction]]) => {
    const value = Number(values[name] ?? byDefault);
    if (!(value >= least && value <= most && (fraction || Number.isInteger(value))))
      throw new Error(`--${name} must be a ${fraction ? '' : 'whole '}number from ${least} to ${most}`);
    return [name, value];
  });
  const { plant } = values;
  if (typeof plant === 'string' && !FAULTS[plant])
    throw new Error(`--plant: there are ${Object.keys(FAULTS).join(', ')}`);
  return { ...values, ...Object.fromEntries(read) } as Record<Name, number> &
    Partial<Record<Flag, boolean> & Record<Text, string>>;
};
