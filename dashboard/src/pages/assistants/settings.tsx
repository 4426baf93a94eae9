import { Button, Group, NativeSelect, Stack, Switch, TagsInput, Textarea, TextInput } from '@mantine/core';
import { at, call, withQuery } from '../../api.ts';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { Facts, Page, Section, Sections } from '../../parts/page.tsx';
import { Value } from '../../parts/code.tsx';
import { Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { SESSION, useChange, useRead } from '../../query.ts';
import type { Assistant } from '../../types.ts';
import { SemanticStatus } from '../knowledge/semantic-status.tsx';
import { CannedEditor } from '../inbox/composer/manage-canned.tsx';
import { DraftBar } from '../versions/draft.tsx';
import { EngineForm } from './engine-form.tsx';
import { HoursForm } from './settings/hours-form.tsx';
import { KeptForm, LimitsForm } from './settings/limits-form.tsx';
import { TagsForm } from './settings/tags-form.tsx';

const GUARDS = [
  { value: 'flag', label: 'Answer and flag it' },
  { value: 'refuse', label: 'Refuse to answer' },
  { value: 'off', label: 'Do nothing' },
];

const ANSWERING = [
  { value: 'careful', label: 'Careful: fewer answers, hardly a wrong one' },
  { value: 'balanced', label: 'Balanced' },
  { value: 'direct', label: 'Direct: more answers, more wrong ones' },
];

const fieldsOf = ({ name, instructions, languages, holdingText, answering, threshold, guard, ...rest }: Assistant) => ({
  name,
  instructions,
  languages,
  holdingText: holdingText ?? '',
  answering: answering as string,
  threshold: threshold === null ? '' : String(threshold),
  quickMessageSeconds: rest.quickMessageSeconds === null ? '' : String(rest.quickMessageSeconds),
  dedupeWindowSeconds: String(rest.dedupeWindowSeconds),
  guard: guard as string,
  allowedLinks: rest.allowedLinks,
  strict: rest.strict,
});
type Fields = ReturnType<typeof fieldsOf>;

const numberOf = (text: string): number | string =>
  text.trim() === '' || Number.isNaN(Number(text)) ? text : Number(text);

const toBody = (fields: Fields) => ({
  ...fields,
  holdingText: fields.holdingText.trim() === '' ? null : fields.holdingText,
  threshold: fields.threshold.trim() === '' ? null : numberOf(fields.threshold),
  quickMessageSeconds: fields.quickMessageSeconds.trim() === '' ? null : numberOf(fields.quickMessageSeconds),
  dedupeWindowSeconds: numberOf(fields.dedupeWindowSeconds),
});

/** The changed fields. Unchanged fields are not sent, so that concurrent changes to them are kept. */
const changesOf = (fields: Fields, before: Fields) => {
  const body = toBody(fields);
  const names = Object.keys(body) as (keyof Fields)[];
  return Object.fromEntries(
    names.flatMap((name) =>
      JSON.stringify(fields[name]) === JSON.stringify(before[name]) ? [] : [[name, body[name]]],
    ),
  );
};

/** What language models use only. With another engine, these fields stand below "Advanced". */
const OfModel = ({ form }: { form: ReturnType<typeof useFields<Fields>> }) => (
  <>
    <Textarea
      label="Instructions"
      description="How the assistant should speak and what it must not do. Used by language models only."
      autosize
      minRows={3}
      maxRows={14}
      {...form.text('instructions')}
    />
    <Switch
      label="Strict replies"
      description="A language model’s reply with a number, a name or a source that your knowledge and documents do not have is not sent. The visitor gets the answer without the model."
      checked={form.values.strict}
      onChange={(event) => form.set('strict', event.currentTarget.checked)}
    />
  </>
);

const GeneralForm = ({ assistant }: { assistant: Assistant }) => {
  const path = at`/assistants/${assistant.assistantId}`;
  const save = useChange({
    run: (fields: Fields) =>
      call<Assistant>('PATCH', withQuery(path, { seen: assistant.draftRevision }), {
        body: changesOf(fields, fieldsOf(assistant)),
      }),
    invalidates: ['/assistants', SESSION],
    done: 'Saved.',
    quiet: true,
    after: (saved) => form.reset(fieldsOf(saved)),
  });
  const form = useFields(fieldsOf(assistant), save.error);
  const changed = JSON.stringify(form.values) !== JSON.stringify(fieldsOf(assistant));
  const hasModel = assistant.engine.kind === 'openai';
  return (
    <form onSubmit={onSubmit(() => save.mutate(form.values))} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={form.names} />
        <TextInput label="Name" maxLength={100} {...form.text('name')} />
        {hasModel && <OfModel form={form} />}
        <TagsInput
          label="Languages"
          description="Language tags such as en or pt-BR; the first is preferred. Leave empty to use the visitor’s language."
          placeholder={form.values.languages.length === 0 ? 'en' : ''}
          {...form.pick('languages')}
        />
        <Textarea
          label="Holding text"
          description="Sent once when a person takes over. Leave empty for a standard text in the visitor’s language."
          autosize
          minRows={2}
          {...form.text('holdingText')}
        />
        <NativeSelect
          label="Answers"
          description="How sure it must be. If it is less sure, it says “This may be what you are looking for”, or asks back."
          data={ANSWERING}
          {...form.text('answering')}
        />
        <details className="numbers" open={save.error !== null}>
          <summary>Advanced</summary>
          <Stack gap="md" mt="sm">
            {!hasModel && <OfModel form={form} />}
            <TextInput
              label="Quick messages, seconds"
              description="0.5 to 10. Messages of a visitor that come within this time get one reply, which then comes this much later. Leave empty to answer each one."
              inputMode="decimal"
              {...form.text('quickMessageSeconds')}
            />
            <NativeSelect
              label="Prompt injection"
              description="What to do with messages such as “forget your instructions”."
              data={GUARDS}
              {...form.text('guard')}
            />
            <TagsInput
              label="Hosts that replies can link to"
              description="In addition to hosts that the knowledge links to. Used by language models only."
              {...form.pick('allowedLinks')}
            />
            <Group grow align="flex-start">
              <TextInput
                label="Threshold"
                description="Confidence from 0 to 1, in place of the choice under Answers."
                inputMode="decimal"
                {...form.text('threshold')}
              />
              <TextInput
                label="Duplicate window, seconds"
                description="0 to 600. A message repeated within this time gets the same reply."
                inputMode="numeric"
                {...form.text('dedupeWindowSeconds')}
              />
            </Group>
          </Stack>
        </details>
        <Button type="submit" loading={save.isPending} disabled={!changed} className="self-start">
          Save changes
        </Button>
      </Stack>
    </form>
  );
};

const TITLES = [
  'General',
  'Engine',
  'Opening hours',
  'Limits',
  'Retention',
  'Tags',
  'Canned replies',
  'About',
] as const;

const Settings = ({ id }: { id: string }) => {
  const read = useRead<Assistant>(withQuery(at`/assistants/${id}`, { draft: 'true' }));
  return (
    <Page title="Settings">
      <DraftBar id={id} />
      <Shown read={read}>
        {(assistant) => (
          <Sections titles={TITLES}>
            <Section title="General">
              <GeneralForm assistant={assistant} />
            </Section>
            <Section
              title="Engine"
              description={
                <>
                  Makes the replies. Try it after every change.
                  <SemanticStatus id={id} />
                </>
              }
            >
              <EngineForm assistant={assistant} />
            </Section>
            <Section
              title="Opening hours"
              description="When people answer, and what happens to a conversation that nobody takes."
            >
              <HoursForm assistant={assistant} />
            </Section>
            <Section
              title="Limits"
              description="How much visitors and callers may send, and what a language model may cost."
              folded
            >
              <LimitsForm assistant={assistant} />
            </Section>
            <Section title="Retention" description="How long conversations are kept." folded>
              <KeptForm assistant={assistant} />
            </Section>
            <Section title="Tags" description="What operators choose from when they tag a conversation.">
              <TagsForm id={id} />
            </Section>
            <Section title="Canned replies" description="Texts that all operators of this assistant can use.">
              <CannedEditor assistantId={id} />
            </Section>
            <Section title="About">
              <Facts
                facts={{
                  'Assistant id': <Value value={assistant.assistantId} label="assistant id" />,
                  Created: <When at={assistant.createdAt} exact />,
                }}
              />
            </Section>
          </Sections>
        )}
      </Shown>
    </Page>
  );
};

export default Settings;
