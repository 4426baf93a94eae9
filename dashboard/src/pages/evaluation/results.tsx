import { Button, Group, NativeSelect } from '@mantine/core';
import { useEffect, useState } from 'react';
import { Link } from 'wouter';
import { at, call, withQuery } from '../../api.ts';
import { useAddress } from '../../parts/address.ts';
import { Back } from '../../parts/back.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Pager } from '../../parts/pager.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { WhyFacts } from '../../parts/why/facts.tsx';
import { WhyToggle } from '../../parts/why/toggle.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Evaluation, EvaluationResult, EvaluationResults } from '../../types.ts';
import { expectReply, QuestionDialog, type QuestionDraft } from './question-dialog.tsx';
import {
  countsOf,
  EvaluationStatus,
  expectedWords,
  isUnfinished,
  nameOfRun,
  VERDICTS,
  verdictsOf,
  VerdictStatus,
} from './verdicts.tsx';

const POLL_MS = 1_500;

type Given = Pick<EvaluationResult, 'kind' | 'reply' | 'sources'>;

/** A reply of a result as the answer to expect from now on. */
const markOf = ({ resultId, question, language }: EvaluationResult, { kind, reply, sources }: Given): QuestionDraft => {
  const [source] = sources;
  const [lastLine = ''] = reply.split('\n').slice(-1);
  const page = source && { kind: 'page' as const, page: source.url ?? source.title, passage: null };
  const none = { kind: 'none' as const };
  const isAnswer = kind === 'answered' || kind === 'hedged';
  // Which of the offered entries is meant is for the person to say.
  if (kind === 'offered') return { question, language, expected: { kind: 'entry', entry: '' }, from: { resultId } };
  return { question, language, expected: isAnswer ? (page ?? expectReply(lastLine)) : none, from: { resultId } };
};

/**
 * The replies of a result that a person can mark as right: those that are not what is expected already, and that do not
 * only offer answers.
 */
const marksOf = (one: EvaluationResult): { label: string; draft: QuestionDraft }[] => {
  const { live, caseId } = one;
  const isCompared = live != null && one.verdict !== 'same';
  const only = caseId === null ? 'Add to a set' : 'This is right';
  const given = [
    { label: isCompared ? 'Draft is right' : only, reply: one, judged: live ? one.judged : one.verdict },
    ...(isCompared ? [{ label: 'Live is right', reply: live, judged: live.judged }] : []),
  ];
  return given
    .filter(({ reply, judged }) => reply.reply !== '' && (caseId === null || judged !== 'right'))
    .filter(({ label, reply }) => reply.kind !== 'offered' || label === 'Add to a set')
    .map(({ label, reply }) => ({ label, draft: markOf(one, reply) }));
};

/** What a person should look at first where two texts differ. */
const Differences = ({ before, now }: NonNullable<EvaluationResult['difference']>) => {
  if (before.length + now.length === 0) return <p className="dim">Both have the same numbers, links and names.</p>;
  const said = [
    ...(before.length > 0 ? [`Only before: ${before.join(', ')}.`] : []),
    ...(now.length > 0 ? [`Only now: ${now.join(', ')}.`] : []),
  ];
  return <p className="dim break">{said.join(' ')}</p>;
};

type ResultProps = { id: string; one: EvaluationResult; onMark: (draft: QuestionDraft) => void };

const Result = ({ id, one, onMark }: ResultProps) => (
  <li className="miss">
    <div className="miss-head">
      <div className="grow">
        <div className="row-title">{one.question}</div>
        {one.expected && <div className="dim break">Expected: {expectedWords(one.expected)}</div>}
      </div>
      <VerdictStatus verdict={one.verdict} />
    </div>
    {one.live && one.verdict !== 'same' && (
      <>
        <p className="dim">Live{one.live.judged ? `, ${VERDICTS[one.live.judged].label.toLowerCase()}` : ''}:</p>
        <blockquote className="miss-answer">{one.live.reply}</blockquote>
        <p className="dim">Draft{one.judged ? `, ${VERDICTS[one.judged].label.toLowerCase()}` : ''}:</p>
      </>
    )}
    <blockquote className="miss-answer">{one.reply === '' ? 'The engine failed.' : one.reply}</blockquote>
    {one.difference && <Differences {...one.difference} />}
    {one.before && !one.live && one.verdict !== 'same' && (
      <p className="dim break">
        The visitor got: {one.before.reply}{' '}
        {one.conversationId !== null && <Link to={`/inbox/${one.conversationId}`}>See the conversation</Link>}
      </p>
    )}
    <Group gap="xs" my={4}>
      {marksOf(one).map(({ label, draft }) => (
        <Button
          key={label}
          size="compact-xs"
          variant="default"
          onClick={() => onMark(draft)}
          aria-label={`${label}: “${one.question}”`}
        >
          {label}
        </Button>
      ))}
    </Group>
    <WhyToggle>
      {() => (
        <>
          {one.live && <p className="dim">Draft:</p>}
          <WhyFacts assistantId={id} why={one.why} sources={one.sources} />
          {one.live && (
            <>
              <p className="dim">Live:</p>
              <WhyFacts assistantId={id} why={one.live.why} sources={one.live.sources} />
            </>
          )}
        </>
      )}
    </WhyToggle>
  </li>
);

/** What an evaluation found, the least certain first. */
const Results = ({ id, evaluationId }: { id: string; evaluationId: string }) => {
  const runs = at`/assistants/${id}/evaluations`;
  const path = `${runs}/${encodeURIComponent(evaluationId)}`;
  const run = useRead<Evaluation>(path, { every: (one) => (one === undefined || isUnfinished(one)) && POLL_MS });
  const { of, set, bound } = useAddress(['verdict']);
  const query = { verdict: of('verdict'), cursor: of('cursor') };
  const every = run.data !== undefined && isUnfinished(run.data) && POLL_MS;
  const read = useRead<EvaluationResults>(withQuery(`${path}/results`, query), { keep: true, every });
  // The last answers may have been stored after the last look.
  const endedAt = run.data?.endedAt;
  const { refetch } = read;
  useEffect(() => {
    if (endedAt) void refetch();
  }, [endedAt, refetch]);
  const [marking, setMarking] = useState<{ draft: QuestionDraft; caseId: string | null } | null>(null);
  const stop = useChange({
    run: () => call<Evaluation>('POST', `${path}/stop`),
    invalidates: [runs],
    done: 'The evaluation is stopped.',
  });
  const options = run.data
    ? verdictsOf(run.data).map((value) => ({
        value,
        label: `${VERDICTS[value].label} (${(run.data?.counts[value] ?? 0).toLocaleString('en')})`,
      }))
    : [];
  return (
    <Page
      title={run.data ? nameOfRun(run.data) : 'Evaluation'}
      above={<Back to={`/assistants/${id}/evaluate`}>Evaluate</Back>}
      description={
        run.data && (
          <>
            <EvaluationStatus one={run.data} /> {countsOf(run.data)} · begun <When at={run.data.createdAt} />
            {run.data.provider &&
              ` · ${run.data.provider.used.toLocaleString('en')} of ${run.data.provider.tokens.toLocaleString('en')} tokens`}
            {run.data.provider?.isUsedUp && ': the next call did not fit'}
            {run.data.state === 'stopped' &&
              run.data.against === 'draft' &&
              !run.data.provider?.isUsedUp &&
              ' · somebody stopped it, or changed the draft'}
          </>
        )
      }
      actions={
        run.data &&
        isUnfinished(run.data) && (
          <Button variant="default" loading={stop.isPending} onClick={() => stop.mutate()}>
            Stop
          </Button>
        )
      }
    >
      <div className="filters" role="search" aria-label="Filter results">
        <NativeSelect label="Verdict" data={[{ value: '', label: 'All' }, ...options]} {...bound('verdict')} />
      </div>
      <Section flush>
        <Shown read={read} rows={4}>
          {({ results }) =>
            results.length === 0 ? (
              <Empty icon="check" title="No results here" />
            ) : (
              <ul className="rows" aria-label="Results">
                {results.map((one) => (
                  <Result
                    key={one.resultId}
                    id={id}
                    one={one}
                    onMark={(draft) => setMarking({ draft, caseId: one.caseId })}
                  />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <Pager
        cursor={of('cursor')}
        next={read.data?.nextCursor}
        onGo={(cursor) => set('cursor', cursor)}
        labels={['First', 'Next']}
      />
      {marking && (
        <QuestionDialog
          id={id}
          draft={marking.draft}
          {...(marking.caseId !== null && run.data?.set && { caseId: marking.caseId, setId: run.data.set.setId })}
          onClose={() => setMarking(null)}
        />
      )}
    </Page>
  );
};

export default Results;
