import { Button, Checkbox, Group, NativeSelect, NumberInput, Stack, TextInput } from '@mantine/core';
import { useState } from 'react';
import { Link, useLocation } from 'wouter';
import { at, call, withQuery } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Assistant, Evaluation, Evaluations, QuestionSet, QuestionSetRow, QuestionSets } from '../../types.ts';
import { useDraft } from '../versions/draft.tsx';
import { countsOf, EvaluationStatus, isUnfinished, nameOfRun } from './verdicts.tsx';

const POLL_MS = 1_500;
const ENDS = [
  { value: 'all', label: 'All' },
  { value: 'unanswered', label: 'Not answered' },
  { value: 'offered', label: 'Offered others to choose from' },
  { value: 'escalated', label: 'Went to a person' },
];

type Paths = { base: string; sets: string; runs: string };

const useBegin = (id: string, { runs }: Paths) => {
  const [, navigate] = useLocation();
  return useChange({
    run: (body: object) => call<Evaluation>('POST', runs, { body }),
    invalidates: [runs],
    after: ({ evaluationId }) => navigate(`/assistants/${id}/evaluate/${evaluationId}`),
  });
};

const NewSet = ({ sets, onClose }: { sets: string; onClose: () => void }) => {
  const create = useChange({
    run: (body: { name: string }) => call<QuestionSet>('POST', sets, { body }),
    invalidates: [sets],
    quiet: true,
    after: onClose,
  });
  const fields = useFields({ name: '' }, create.error);
  return (
    <FormDialog
      title="New question set"
      opened
      onClose={onClose}
      onSend={() => create.mutate(fields.values)}
      action="Create"
      change={create}
      fields={fields.names}
    >
      <TextInput label="Name" required maxLength={100} data-autofocus {...fields.text('name')} />
    </FormDialog>
  );
};

/** What the provider may use: null if the assistant has none. */
type Cost = { tokensPerReply: number | null } | null;

type BeginProps = {
  id: string;
  paths: Paths;
  /** The set whose questions are answered. Null: questions of visitors. */
  set: QuestionSetRow | null;
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
const Begin = ({ id, paths, set, hasDraft, compares, cost, onClose }: BeginProps) => {
  const begin = useBegin(id, paths);
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

const SetRow = ({
  id,
  set,
  onRun,
  onCompare,
}: {
  id: string;
  set: QuestionSetRow;
  onRun: () => void;
  /** Null if there is no draft. */
  onCompare: (() => void) | null;
}) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title">
        <Link to={`/assistants/${id}/evaluate/sets/${set.setId}`}>{set.name}</Link>
      </div>
      <div className="row-sub">
        {set.questions.toLocaleString('en')} {set.questions === 1 ? 'question' : 'questions'} · version {set.version},{' '}
        <When at={set.changedAt} />
      </div>
    </div>
    {onCompare && (
      <Button
        size="xs"
        variant="default"
        disabled={set.questions === 0}
        onClick={onCompare}
        aria-label={`Compare draft by “${set.name}”`}
      >
        Compare draft
      </Button>
    )}
    <Button
      size="xs"
      variant="default"
      disabled={set.questions === 0}
      onClick={onRun}
      aria-label={`Evaluate “${set.name}”`}
    >
      Evaluate
    </Button>
  </li>
);

const RunRow = ({ id, run }: { id: string; run: Evaluation }) => (
  <li>
    <Link className="row row-stack" to={`/assistants/${id}/evaluate/${run.evaluationId}`}>
      <div className="row-main">
        <div className="row-title">{nameOfRun(run)}</div>
        <div className="row-sub">
          <When at={run.createdAt} />
          {run.set && ` · version ${run.set.version}`}
          {run.done > 0 && ` · ${countsOf(run)}`}
        </div>
      </div>
      <EvaluationStatus one={run} />
    </Link>
  </li>
);

/** Question sets and what evaluations of them found. */
const Evaluate = ({ id }: { id: string }) => {
  const base = at`/assistants/${id}`;
  const paths = { base, sets: `${base}/question-sets`, runs: `${base}/evaluations` };
  const sets = useRead<QuestionSets>(paths.sets);
  const runs = useRead<Evaluations>(paths.runs, {
    every: (found) => found?.evaluations.some(isUnfinished) === true && POLL_MS,
  });
  const begin = useBegin(id, paths);
  const hasDraft = useDraft(id).data?.draft != null;
  const live = useRead<Assistant>(base).data?.engine;
  const drafted = useRead<Assistant>(withQuery(base, { draft: 'true' })).data?.engine;
  const asksProvider = [live, drafted].some((engine) => engine?.kind === 'openai');
  const cost = asksProvider ? { tokensPerReply: runs.data?.tokensPerReply ?? null } : null;
  const [opened, setOpened] = useState<'set' | { set: QuestionSetRow | null; compares: boolean } | null>(null);
  const close = () => setOpened(null);
  const evaluate = (set: QuestionSetRow, compares: boolean): void =>
    cost ? setOpened({ set, compares }) : begin.mutate({ setId: set.setId, against: compares ? 'draft' : 'live' });
  return (
    <Page
      title="Evaluate"
      description="What the assistant would answer now, judged by the answers that you expect. Visitors and figures notice nothing of it."
      actions={
        <>
          <Button variant="default" onClick={() => setOpened({ set: null, compares: hasDraft })}>
            Try questions of visitors
          </Button>
          <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setOpened('set')}>
            New question set
          </Button>
        </>
      }
    >
      <Section title="Question sets" flush>
        <Shown read={sets} rows={2}>
          {({ sets: all }) =>
            all.length === 0 ? (
              <Empty icon="list" title="No question sets yet">
                Collect the questions that must always be answered well, each with the answer that you expect.
              </Empty>
            ) : (
              <ul className="rows" aria-label="Question sets">
                {all.map((set) => (
                  <SetRow
                    key={set.setId}
                    id={id}
                    set={set}
                    onRun={() => evaluate(set, false)}
                    onCompare={hasDraft ? () => evaluate(set, true) : null}
                  />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <Section title="Evaluations" description="The last 30, newest first" flush>
        <Shown read={runs} rows={2}>
          {({ evaluations }) =>
            evaluations.length === 0 ? (
              <Empty icon="check" title="Nothing was evaluated yet" />
            ) : (
              <ul className="rows" aria-label="Evaluations">
                {evaluations.map((run) => (
                  <RunRow key={run.evaluationId} id={id} run={run} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      {opened === 'set' && <NewSet sets={paths.sets} onClose={close} />}
      {opened !== null && opened !== 'set' && (
        <Begin id={id} paths={paths} {...opened} hasDraft={hasDraft} cost={cost} onClose={close} />
      )}
    </Page>
  );
};

export default Evaluate;
