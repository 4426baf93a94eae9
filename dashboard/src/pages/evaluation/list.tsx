import { Button, TextInput } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'wouter';
import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Evaluation, Evaluations, QuestionSet, QuestionSetRow, QuestionSets } from '../../types.ts';
import { useEvaluation } from './begin.tsx';
import { countsOf, EvaluationStatus, isUnfinished, nameOfRun } from './verdicts.tsx';

const POLL_MS = 1_500;
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

const SetRow = ({
  id,
  set,
  isReady,
  onRun,
  onCompare,
}: {
  id: string;
  set: QuestionSetRow;
  isReady: boolean;
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
        disabled={!isReady || set.questions === 0}
        onClick={onCompare}
        aria-label={`Compare draft by “${set.name}”`}
      >
        Compare draft
      </Button>
    )}
    <Button
      size="xs"
      variant="default"
      disabled={!isReady || set.questions === 0}
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
  const sets = useRead<QuestionSets>(`${base}/question-sets`);
  const runs = useRead<Evaluations>(`${base}/evaluations`, {
    every: (found) => found?.evaluations.some(isUnfinished) === true && POLL_MS,
  });
  const { isKnown, hasDraft, cost, ask, begin, dialog } = useEvaluation(id);
  const [adds, setAdds] = useState(false);
  const evaluate = (set: QuestionSetRow, compares: boolean): void =>
    cost ? ask(set, compares) : begin({ setId: set.setId, against: compares ? 'draft' : 'live' });
  return (
    <Page
      title="Evaluate"
      description="What the assistant would answer now, judged by the answers that you expect. Visitors and figures notice nothing of it."
      actions={
        <>
          <Button variant="default" onClick={() => ask(null, hasDraft)}>
            Try questions of visitors
          </Button>
          <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setAdds(true)}>
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
                    isReady={isKnown}
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
      {adds && <NewSet sets={`${base}/question-sets`} onClose={() => setAdds(false)} />}
      {dialog}
    </Page>
  );
};

export default Evaluate;
