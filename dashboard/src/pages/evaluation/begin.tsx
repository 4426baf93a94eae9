import { Checkbox, Group, NativeSelect, NumberInput, Stack, TextInput } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { useLocation } from 'wouter';
import { at, call, withQuery } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Assistant, Evaluation, Evaluations, QuestionSetRow } from '../../types.ts';
import { useDraft } from '../versions/draft.tsx';

const ENDS = [
  { value: 'all', label: 'All' },
  { value: 'unanswered', label: 'Not answered' },
  { value: 'offered', label: 'Offered others to choose from' },
  { value: 'escalated', label: 'Went to a person' },
];

const useBegin = (id: string) => {
  const [, navigate] = useLocation();
  const runs = at`/assistants/${id}/evaluations`;
  return useChange({
    run: (body: object) => call<Evaluation>('POST', runs, { body }),
    invalidates: [runs],
    after: ({ evaluationId }) => navigate(`/assistants/${id}/evaluate/${evaluationId}`),
  });
};

/** What the provider may use: null if the assistant has none. */
type Cost = { tokensPerReply: number | null } | null;

type EvaluatedSet = Pick<QuestionSetRow, 'setId' | 'name' | 'questions'>;

type BeginProps = {
  begin: ReturnType<typeof useBegin>;
  /** The set whose questions are answered. Null: questions of visitors. */
  set: EvaluatedSet | null;
  hasDraft: boolean;
  /** Whether the draft is compared, unless the person chooses otherwise. */
  compares: boolean;
  cost: Cost;
  onClose: () => void;
};

/** The beginning of a day in the browser's time zone, so many days later. Undefined if there is none. */
const dayAt = (day: string, later: number): string | undefined => {
  const time = new Date(`${day}T00:00`);
  time.setDate(time.getDate() + later);
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
};

const estimate = (replies: number, { tokensPerReply }: NonNullable<Cost>): string => {
  const most = `At most ${replies.toLocaleString('en')} ${replies === 1 ? 'reply' : 'replies'}`;
  if (tokensPerReply === null) return `${most}. The provider has not replied yet, so their cost is not known.`;
  const about = (tokensPerReply * replies).toLocaleString('en');
  return `${most}, about ${about} tokens: ${tokensPerReply.toLocaleString('en')} each on average in the last 30 days. The evaluation stops before it uses more than you allow.`;
};

/** Asks which questions are answered, and by what. */
const Begin = ({ begin, set, hasDraft, compares, cost, onClose }: BeginProps) => {
  const fields = useFields<{
    limit: number | string;
    only: string;
    language: string;
    from: string;
    to: string;
    compare: boolean;
    asks: boolean;
    tokens: number | string;
  }>(
    { limit: 100, only: 'all', language: '', from: '', to: '', compare: compares, asks: false, tokens: 100_000 },
    begin.error,
  );
  const { limit, only, language, from, to, compare, asks, tokens } = fields.values;
  const time = { from: dayAt(from, 0), to: dayAt(to, 1) };
  const questions = set
    ? { setId: set.setId }
    : { real: { limit: Number(limit), only, language: language.trim() || null, ...time } };
  const body = { ...questions, against: compare ? 'draft' : 'live', ...(asks && { tokens: Number(tokens) }) };
  const replies = (set?.questions ?? Number(limit)) * (compare ? 2 : 1);
  return (
    <FormDialog
      title={set ? `Evaluate “${set.name}”` : 'Try questions of visitors'}
      opened
      onClose={onClose}
      onSend={() => begin.mutate(body)}
      action="Begin"
      change={begin}
    >
      <Stack gap="sm">
        {!set && (
          <>
            <NumberInput label="How many of the last questions" min={1} max={500} {...fields.pick('limit')} />
            <NativeSelect label="Which ones" data={ENDS} {...fields.text('only')} />
            <TextInput
              label="Language"
              description="Like en or de. Leave it empty for all languages."
              {...fields.text('language')}
            />
            <Group grow align="flex-start" className="pairs">
              <TextInput type="date" label="Asked from" {...fields.text('from')} />
              <TextInput type="date" label="Until" {...fields.text('to')} />
            </Group>
          </>
        )}
        {hasDraft && (
          <Checkbox
            label="Compare the draft with what is live"
            checked={compare}
            onChange={(event) => fields.set('compare', event.currentTarget.checked)}
          />
        )}
        {cost && (
          <Checkbox
            label="Ask the provider"
            description="It writes its own words, so a person compares them. Without it, retrieval answers."
            checked={asks}
            onChange={(event) => fields.set('asks', event.currentTarget.checked)}
          />
        )}
        {cost && asks && (
          <NumberInput
            label="Tokens that it may use"
            description={estimate(replies, cost)}
            min={1}
            max={1_000_000_000}
            thousandSeparator=","
            {...fields.pick('tokens')}
          />
        )}
      </Stack>
    </FormDialog>
  );
};

type Evaluating = {
  /** False until it is known whether there is a draft or a provider: nothing can begin before. */
  isKnown: boolean;
  hasDraft: boolean;
  cost: Cost;
  isPending: boolean;
  begin: (body: object) => void;
  /** Asks first what is answered, and by what. `set`: null for questions of visitors. */
  ask: (set: EvaluatedSet | null, compares: boolean) => void;
  dialog: ReactNode;
};

/** Begins evaluations of an assistant. */
export const useEvaluation = (id: string): Evaluating => {
  const base = at`/assistants/${id}`;
  const begin = useBegin(id);
  const draft = useDraft(id).data;
  const hasDraft = draft?.draft != null;
  const live = useRead<Assistant>(base).data?.engine;
  const drafted = useRead<Assistant>(withQuery(base, { draft: 'true' })).data?.engine;
  const asksProvider = [live, drafted].some((engine) => engine?.kind === 'openai');
  const runs = useRead<Evaluations>(`${base}/evaluations`, { enabled: asksProvider });
  const cost = asksProvider ? { tokensPerReply: runs.data?.tokensPerReply ?? null } : null;
  const [asked, setAsked] = useState<{ set: EvaluatedSet | null; compares: boolean } | null>(null);
  const dialog = asked && (
    <Begin begin={begin} {...asked} hasDraft={hasDraft} cost={cost} onClose={() => setAsked(null)} />
  );
  return {
    isKnown: draft !== undefined && live !== undefined && drafted !== undefined,
    hasDraft,
    cost,
    isPending: begin.isPending,
    begin: begin.mutate,
    ask: (set, compares) => setAsked({ set, compares }),
    dialog,
  };
};
