import { NativeSelect, Stack, Textarea, TextInput } from '@mantine/core';
import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange, useRead } from '../../query.ts';
import type { QuestionCase, QuestionSets } from '../../types.ts';

type Expected = QuestionCase['expected'];
type Origin = { missId: string } | { resultId: string } | { conversationId: string };

/** A question before it is added: with what is known about its answer. */
export type QuestionDraft = {
  question: string;
  language: string | null;
  expected: Expected;
  from?: Origin;
};

const EXPECTED_MAX = 1_000;

/** Expects a reply with these words. */
export const expectReply = (words: string): Expected => ({ kind: 'text', text: words.slice(0, EXPECTED_MAX) });

const KINDS = [
  { value: 'entry', label: 'A knowledge entry' },
  { value: 'page', label: 'A page or file of a source' },
  { value: 'text', label: 'A reply with certain words' },
  { value: 'none', label: 'No answer' },
];

const VALUES: Record<string, { label: string; hint: string }> = {
  entry: { label: 'Entry', hint: 'Its question, or its id.' },
  page: { label: 'Page or file', hint: 'The address of the page, or the name of the file.' },
  text: { label: 'Words of the reply', hint: 'Case and spaces do not matter.' },
};

const valueOf = (expected: Expected): string => {
  if (expected.kind === 'entry') return expected.entry;
  if (expected.kind === 'page') return expected.page;
  return expected.kind === 'text' ? expected.text : '';
};

type Values = {
  set: string;
  newSet: string;
  question: string;
  language: string;
  kind: string;
  value: string;
  passage: string;
};

const expectedOf = ({ kind, value, passage }: Values) => ({
  kind,
  ...(kind !== 'none' && { [kind]: value }),
  ...(kind === 'page' && passage.trim() !== '' && { passage }),
});

type Props = {
  id: string;
  draft: QuestionDraft;
  /** The set and the question to change. Without them, a question is added to a set that the person chooses. */
  setId?: string;
  caseId?: string;
  onClose: () => void;
};

/** Adds a question with its expected answer to a set, or changes it. */
export const QuestionDialog = ({ id, draft, setId, caseId, onClose }: Props) => {
  const base = at`/assistants/${id}/question-sets`;
  const sets = useRead<QuestionSets>(base, { enabled: setId === undefined }).data?.sets ?? [];
  const { expected } = draft;
  const save = useChange({
    run: async (values: Values): Promise<QuestionCase> => {
      const { set, question, language, newSet } = values;
      const body = { question, language: language.trim() || null, expected: expectedOf(values) };
      let target = setId ?? (set || sets[0]?.setId);
      if (target === undefined) {
        const created = await call<{ setId: string }>('POST', base, { body: { name: newSet } });
        target = created.setId;
      }
      if (caseId !== undefined)
        return call<QuestionCase>('PUT', `${base}/${target}/cases/${encodeURIComponent(caseId)}`, { body });
      return call<QuestionCase>('POST', `${base}/${target}/cases`, {
        body: { ...body, ...(draft.from && { from: draft.from }) },
      });
    },
    invalidates: [base],
    done: caseId === undefined ? 'The question is in the set.' : 'The question is changed.',
    quiet: true,
    after: onClose,
  });
  const fields = useFields<Values>(
    {
      set: '',
      newSet: 'Every release',
      question: draft.question,
      language: draft.language ?? '',
      kind: expected.kind,
      value: valueOf(expected),
      passage: (expected.kind === 'page' && expected.passage) || '',
    },
    save.error,
  );
  const { kind } = fields.values;
  const value = VALUES[kind];
  return (
    <FormDialog
      title={caseId === undefined ? 'Add to a question set' : 'Change the question'}
      opened
      onClose={onClose}
      onSend={() => save.mutate(fields.values)}
      action={caseId === undefined ? 'Add' : 'Save'}
      change={save}
      fields={['question', 'language']}
    >
      <Stack gap="sm">
        {setId === undefined && sets.length > 0 && (
          <NativeSelect
            label="Set"
            data={sets.map((one) => ({ value: one.setId, label: one.name }))}
            {...fields.text('set')}
          />
        )}
        {setId === undefined && sets.length === 0 && (
          <TextInput label="Name of the new set" maxLength={100} {...fields.text('newSet')} />
        )}
        <Textarea label="Question" autosize minRows={1} maxRows={5} required {...fields.text('question')} />
        <NativeSelect label="Expected answer" data={KINDS} {...fields.text('kind')} />
        {value && (
          <Textarea
            label={value.label}
            description={value.hint}
            autosize
            minRows={1}
            maxRows={5}
            required
            {...fields.text('value')}
          />
        )}
        {kind === 'page' && (
          <Textarea
            label="Words of the passage"
            description="Leave it empty if any passage of the page is right."
            autosize
            minRows={1}
            maxRows={4}
            {...fields.text('passage')}
          />
        )}
        <TextInput
          label="Language"
          description="Like en or de. Leave it empty to detect it."
          {...fields.text('language')}
        />
      </Stack>
    </FormDialog>
  );
};
