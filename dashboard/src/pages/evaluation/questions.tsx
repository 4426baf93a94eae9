import { Button, FileButton, Menu } from '@mantine/core';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { decodeText } from '../../../../src/platform/process/text-file.ts';
import { at, call } from '../../api.ts';
import { Back } from '../../parts/back.tsx';
import { useConfirm } from '../../parts/confirm.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { QuestionCase, QuestionImport, QuestionSet } from '../../types.ts';
import { useEvaluation } from './begin.tsx';
import { QuestionDialog } from './question-dialog.tsx';
import { expectedWords } from './verdicts.tsx';

const NEW = { question: '', language: null, expected: { kind: 'text', text: '' } } as const;

type RowProps = { one: QuestionCase; onChange: () => void; onRemove: () => void };

const Row = ({ one, onChange, onRemove }: RowProps) => (
  <li className="row">
    <div className="row-main">
      <div className="row-title">{one.question}</div>
      <div className="row-sub two-lines">
        {one.language !== null && `${one.language} · `}
        expects {expectedWords(one.expected)}
      </div>
    </div>
    <RowMenu label={`Actions for “${one.question}”`}>
      <Menu.Item leftSection={<Icon name="pencil" size={16} />} onClick={onChange}>
        Change…
      </Menu.Item>
      <Menu.Item leftSection={<Icon name="trash" size={16} />} color="red" onClick={onRemove}>
        Remove
      </Menu.Item>
    </RowMenu>
  </li>
);

const refusedWords = ({ refused }: QuestionImport): string =>
  refused
    .slice(0, 5)
    .map(({ line, reason }) => `Line ${line}: ${reason}`)
    .join('. ');

const questionsIn = (count: number): string =>
  `${count.toLocaleString('en')} ${count === 1 ? 'question' : 'questions'}`;

/** The questions of a set. */
const Questions = ({ id, setId }: { id: string; setId: string }) => {
  const [, navigate] = useLocation();
  const sets = at`/assistants/${id}/question-sets`;
  const path = `${sets}/${encodeURIComponent(setId)}`;
  const read = useRead<QuestionSet>(path);
  const { ask, dialog } = useConfirm();
  const [changing, setChanging] = useState<QuestionCase | typeof NEW | null>(null);
  const importFile = useChange({
    run: async ({ file, replace }: { file: File; replace: boolean }) =>
      call<QuestionImport>('POST', `${path}/import`, {
        body: {
          format: /\.jsonl$/i.test(file.name) ? 'jsonl' : 'csv',
          text: decodeText(new Uint8Array(await file.arrayBuffer())),
          replace,
        },
      }),
    invalidates: [sets],
    done: ({ imported }) => `${questionsIn(imported)} imported.`,
  });
  const remove = useChange({
    run: (caseId: string) => call<void>('DELETE', `${path}/cases/${encodeURIComponent(caseId)}`),
    invalidates: [sets],
    done: 'The question is removed.',
  });
  const removeSet = useChange({
    run: () => call<void>('DELETE', path),
    invalidates: [sets],
    after: () => navigate(`/assistants/${id}/evaluate`),
  });
  const { isKnown, hasDraft, cost, isPending, ask: askFirst, begin, dialog: evaluation } = useEvaluation(id);
  const evaluate = ({ name, cases }: QuestionSet): void =>
    hasDraft || cost ? askFirst({ setId, name, questions: cases.length }, hasDraft) : begin({ setId, against: 'live' });
  const askRemoveSet = () =>
    ask({
      title: 'Remove this question set?',
      body: 'Its questions are gone. The results of its evaluations stay.',
      action: 'Remove',
      danger: true,
      onConfirm: () => removeSet.mutate(),
    });
  const isEmpty = (read.data?.cases.length ?? 0) === 0;
  return (
    <Page
      title={read.data?.name ?? 'Question set'}
      above={<Back to={`/assistants/${id}/evaluate`}>Evaluate</Back>}
      description={read.data && `${questionsIn(read.data.cases.length)} · version ${read.data.version}`}
      actions={
        <>
          <RowMenu label="More actions">
            {['csv', 'jsonl'].map((format) => (
              <Menu.Item key={format} component="a" href={`/operator/v1${path}/export?format=${format}`} download>
                Download as {format.toUpperCase()}
              </Menu.Item>
            ))}
            <Menu.Item color="red" onClick={askRemoveSet}>
              Remove the set…
            </Menu.Item>
          </RowMenu>
          <Button variant="default" onClick={() => setChanging(NEW)}>
            Add question
          </Button>
          <Button disabled={isEmpty || !isKnown} loading={isPending} onClick={() => read.data && evaluate(read.data)}>
            Evaluate
          </Button>
        </>
      }
    >
      {importFile.data && importFile.data.refused.length > 0 && (
        <Notice tone="bad">{`${importFile.data.refused.length} rows were refused. ${refusedWords(importFile.data)}`}</Notice>
      )}
      <Section
        title="Questions"
        actions={
          <>
            {[false, ...(isEmpty ? [] : [true])].map((replace) => (
              <FileButton
                key={String(replace)}
                accept=".csv,.jsonl"
                onChange={(file) => file && importFile.mutate({ file, replace })}
              >
                {(props) => (
                  <Button size="xs" variant="default" loading={importFile.isPending} {...props}>
                    {replace ? 'Replace by a file' : 'Import'}
                  </Button>
                )}
              </FileButton>
            ))}
          </>
        }
        flush
      >
        <Shown read={read} rows={4}>
          {({ cases }) =>
            cases.length === 0 ? (
              <Empty icon="list" title="No questions yet">
                Add questions here, import them, or take them over from the page Learn and from results.
              </Empty>
            ) : (
              <ul className="rows" aria-label="Questions">
                {cases.map((one) => (
                  <Row
                    key={one.caseId}
                    one={one}
                    onChange={() => setChanging(one)}
                    onRemove={() => remove.mutate(one.caseId)}
                  />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      {changing && (
        <QuestionDialog
          id={id}
          setId={setId}
          {...('caseId' in changing && { caseId: changing.caseId })}
          draft={changing}
          onClose={() => setChanging(null)}
        />
      )}
      {dialog}
      {evaluation}
    </Page>
  );
};

export default Questions;
