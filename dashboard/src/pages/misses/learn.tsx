import { Button, Group } from '@mantine/core';
import { useState } from 'react';
import { useSearchParams } from 'wouter';
import { at, call } from '../../api.ts';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Miss, Misses } from '../../types.ts';
import { expectReply, QuestionDialog, type QuestionDraft } from '../evaluation/question-dialog.tsx';
import { type EntryDraft, EntryEditor } from '../knowledge/entry-editor.tsx';
import { MissRow } from './miss-row.tsx';

const REFRESH_MS = 15_000;
const QUESTION_MAX = 500;

/** Other ways to ask, from the examples of the group. */
const variantsOf = ({ question, examples }: Miss): string[] => [
  ...new Set(examples.map((one) => one.question).filter((other) => other !== question)),
];

const draftOf = (miss: Miss): EntryDraft => ({
  question: miss.question,
  variants: variantsOf(miss),
  answer: miss.answer?.content ?? '',
  language: null,
  fromMiss: miss.missId,
});

/** A question of a set, with what an operator answered as the words to expect. */
const questionOf = ({ missId, question, language, answer }: Miss): QuestionDraft => ({
  question,
  language,
  expected: expectReply(answer?.content ?? ''),
  from: { missId },
});

/** The draft that another page put into the address: a visitor's question and what an operator wrote. */
const useDraftInAddress = (): { draft: EntryDraft | null; forget: () => void } => {
  const [params, setParams] = useSearchParams();
  const question = (params.get('question') ?? '').trim().slice(0, QUESTION_MAX);
  const answer = (params.get('answer') ?? '').trim();
  return {
    draft: question === '' && answer === '' ? null : { question, answer, variants: [], language: null },
    forget: () => setParams({}, { replace: true }),
  };
};

const List = ({
  id,
  misses,
  onTeach,
  onCollect,
}: {
  id: string;
  misses: Misses['misses'];
  onTeach: (draft: EntryDraft) => void;
  onCollect: (draft: QuestionDraft) => void;
}) => {
  const dismiss = useChange({
    run: (missId: string) => call<void>('POST', at`/assistants/${id}/misses/${missId}/dismiss`),
    invalidates: [`/assistants/${id}/misses`],
    done: 'The question is hidden.',
  });
  if (misses.length === 0) {
    return (
      <Empty icon="check" title="Nothing to learn now">
        Questions that the assistant could not answer appear here, the most frequent first.
      </Empty>
    );
  }
  return (
    <ul className="rows" aria-label="Questions without a sure answer">
      {misses.map((miss) => (
        <MissRow key={miss.missId} miss={miss}>
          <Group gap="xs">
            <Button size="xs" onClick={() => onTeach(draftOf(miss))}>
              Make an entry
            </Button>
            <Button
              size="xs"
              variant="default"
              onClick={() => onCollect(questionOf(miss))}
              aria-label={`Add to a set: “${miss.question}”`}
            >
              Add to a set
            </Button>
            <Button
              size="xs"
              variant="default"
              loading={dismiss.isPending && dismiss.variables === miss.missId}
              onClick={() => dismiss.mutate(miss.missId)}
              aria-label={`Dismiss “${miss.question}”`}
            >
              Dismiss
            </Button>
          </Group>
        </MissRow>
      ))}
    </ul>
  );
};

/** Questions that the assistant could not answer, to turn them into knowledge. */
const Learn = ({ id }: { id: string }) => {
  const read = useRead<Misses>(at`/assistants/${id}/misses`, { every: REFRESH_MS });
  const given = useDraftInAddress();
  const [collected, setCollected] = useState<QuestionDraft | null>(null);
  const [chosen, setChosen] = useState<EntryDraft | null>(null);
  const draft = chosen ?? given.draft;
  const close = (): void => {
    setChosen(null);
    given.forget();
  };
  return (
    <Page
      title="Learn"
      description="Questions that the assistant could not answer, or was not sure about. Turn them into knowledge with the answer that a person gave."
    >
      <Section flush>
        <Shown read={read}>
          {({ misses }) => <List id={id} misses={misses} onTeach={setChosen} onCollect={setCollected} />}
        </Shown>
      </Section>
      {draft && (
        <EntryEditor
          key={draft.fromMiss ?? 'address'}
          path={at`/assistants/${id}/knowledge`}
          entry={null}
          draft={draft}
          onClose={close}
        />
      )}
      {collected && <QuestionDialog id={id} draft={collected} onClose={() => setCollected(null)} />}
    </Page>
  );
};

export default Learn;
