import type { Limits } from '../types.ts';
import { Status, type Tone } from './status.tsx';
import { dayAndMonth } from './when.tsx';

type Allowance = NonNullable<Limits['turns']>;

const NEAR = 0.8;

const toneOf = ({ used, limit }: Allowance): Tone => {
  if (used >= limit) return 'bad';
  return used >= NEAR * limit ? 'warn' : 'good';
};

/** How much of a quota or a budget is used so far, and when it begins again. */
export const Allowed = ({ one, of }: { one: Allowance; of: 'messages' | 'tokens' }) => (
  <Status tone={toneOf(one)}>
    <span className="num">
      {one.used.toLocaleString('en')} of {one.limit.toLocaleString('en')} {of}, until {dayAndMonth(one.until)}
    </span>
  </Status>
);
