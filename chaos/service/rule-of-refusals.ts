import type { Histories, Violation } from './history.ts';

/** How many commands MongoDB refuses. */
export const REFUSED_WRITES = 3;
export const REFUSAL_RULE = 'a refused write fails alone';
/** The longest time after a refusal in which its failures are counted. No other fault concerns MongoDB then. */
export const REFUSAL_LASTS_MS = 4_000;

/**
 * MongoDB refuses a command, not a message. The messages that were written by the same command are tried again in
 * smaller batches, so no more messages fail than commands were refused.
 */
export const judgeRefusals = ({ sent, refusedAt }: Histories): Violation[] =>
  refusedAt.flatMap((at) => {
    const failed = sent.filter(({ attempts }) =>
      attempts.some((one) => one.result.startsWith('500') && one.at > at && one.at < at + REFUSAL_LASTS_MS),
    );
    const [first] = failed;
    if (!first || failed.length <= REFUSED_WRITES) return [];
    const what = `${REFUSED_WRITES} commands were refused, and ${failed.length} messages failed`;
    return [{ rule: REFUSAL_RULE, session: first.session, what }];
  });
