import { Status, type Tone } from '../../parts/status.tsx';
import type { Evaluation, EvaluationResult, QuestionCase } from '../../types.ts';

type Verdict = EvaluationResult['verdict'];

export const VERDICTS: Record<Verdict, { label: string; tone: Tone }> = {
  worse: { label: 'Worse', tone: 'bad' },
  wrong: { label: 'Wrong', tone: 'bad' },
  hedged: { label: 'Hedged', tone: 'warn' },
  offered: { label: 'Offered', tone: 'warn' },
  other: { label: 'Other', tone: 'busy' },
  better: { label: 'Better', tone: 'good' },
  right: { label: 'Right', tone: 'good' },
  same: { label: 'Same', tone: 'calm' },
};

/** The verdicts that an evaluation can give, those to look at first in front. */
export const verdictsOf = ({ set, against }: Evaluation): Verdict[] => {
  if (against === 'draft') return ['worse', 'other', 'better', 'same'];
  return set === null ? ['other', 'same'] : ['wrong', 'hedged', 'offered', 'right'];
};

export const VerdictStatus = ({ verdict }: { verdict: Verdict }) => (
  <Status tone={VERDICTS[verdict].tone}>{VERDICTS[verdict].label}</Status>
);

/** How many replies were right, wrong and so on, in words. */
export const countsOf = (one: Evaluation): string =>
  verdictsOf(one)
    .toReversed()
    .flatMap((verdict) =>
      one.counts[verdict] > 0
        ? [`${one.counts[verdict].toLocaleString('en')} ${VERDICTS[verdict].label.toLowerCase()}`]
        : [],
    )
    .join(' · ');

const STATES: Record<Evaluation['state'], { label: string; tone: Tone }> = {
  waiting: { label: 'Waits', tone: 'calm' },
  running: { label: 'Running', tone: 'busy' },
  done: { label: 'Done', tone: 'good' },
  stopped: { label: 'Stopped', tone: 'calm' },
  failed: { label: 'Failed', tone: 'bad' },
};

export const isUnfinished = ({ endedAt }: Evaluation): boolean => endedAt === null;

export const EvaluationStatus = ({ one }: { one: Evaluation }) => {
  const { label, tone } = STATES[one.state];
  return (
    <Status tone={tone}>
      {isUnfinished(one) ? `${label}: ${one.done.toLocaleString('en')} of ${one.total.toLocaleString('en')}` : label}
    </Status>
  );
};

export const nameOfRun = ({ set, against }: Evaluation): string =>
  `${set?.name ?? 'Questions of visitors'}${against === 'draft' ? ': draft against live' : ''}`;

/** What a case expects, in words. */
export const expectedWords = (expected: QuestionCase['expected']): string => {
  switch (expected.kind) {
    case 'entry':
      return `the entry “${expected.entry}”`;
    case 'page':
      return expected.passage ? `${expected.page}: “${expected.passage}”` : expected.page;
    case 'text':
      return `a reply with “${expected.text}”`;
    case 'none':
      return 'no answer';
  }
};
