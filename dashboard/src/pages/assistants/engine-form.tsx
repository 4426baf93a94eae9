import { Button, Checkbox, Group, PasswordInput, Radio, Stack, TextInput } from '@mantine/core';
import { Link } from 'wouter';
import { at, call, withQuery } from '../../api.ts';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { withScheme } from '../../parts/typed.ts';
import { useChange } from '../../query.ts';
import type { Assistant, Engine } from '../../types.ts';

const DEFAULTS = { baseUrl: '', model: '', timeoutMs: 20_000, temperature: null, maxTokens: 800, historyTokens: 2_000 };

const fieldsOf = (engine: Engine) => {
  const known = engine.kind === 'openai' ? engine : DEFAULTS;
  return {
    kind: engine.kind as string,
    baseUrl: known.baseUrl,
    model: known.model,
    apiKey: '',
    forgetKey: false,
    timeoutMs: String(known.timeoutMs),
    temperature: known.temperature === null ? '' : String(known.temperature),
    maxTokens: String(known.maxTokens),
    historyTokens: String(known.historyTokens),
  };
};
type Fields = ReturnType<typeof fieldsOf>;

const toBody = ({ kind, apiKey, forgetKey, ...fields }: Fields) =>
  kind === 'retrieval'
    ? { kind }
    : {
        kind,
        baseUrl: withScheme(fields.baseUrl),
        model: fields.model,
        timeoutMs: Number(fields.timeoutMs),
        temperature: fields.temperature.trim() === '' ? null : Number(fields.temperature),
        maxTokens: Number(fields.maxTokens),
        historyTokens: Number(fields.historyTokens),
        ...(apiKey !== '' && { apiKey }),
        ...(apiKey === '' && forgetKey && { apiKey: null }),
      };

const Provider = ({ form, engine }: { form: ReturnType<typeof useFields<Fields>>; engine: Engine }) => {
  const hasKey = engine.kind === 'openai' && engine.apiKey === 'configured';
  return (
    <>
      <TextInput
        label="Address"
        description="The base URL of an OpenAI-compatible API, without /chat/completions."
        placeholder="https://api.openai.com/v1"
        type="url"
        {...form.text('baseUrl')}
      />
      <TextInput label="Model" placeholder="gpt-4.1-mini" {...form.text('model')} />
      <PasswordInput
        label="Provider’s key"
        description={
          hasKey
            ? 'A key is stored. Leave this empty to keep it. With a new address, enter the key again.'
            : 'Stored encrypted. Never shown.'
        }
        autoComplete="off"
        {...form.text('apiKey')}
      />
      {hasKey && (
        <Checkbox
          label="Delete the stored key"
          checked={form.values.forgetKey}
          onChange={(event) => form.set('forgetKey', event.currentTarget.checked)}
        />
      )}
      <Group grow align="flex-start" className="pairs">
        <TextInput label="Timeout, ms" inputMode="numeric" {...form.text('timeoutMs')} />
        <TextInput label="Temperature" placeholder="Model default" inputMode="decimal" {...form.text('temperature')} />
      </Group>
      <Group grow align="flex-start" className="pairs">
        <TextInput label="Maximum reply, tokens" inputMode="numeric" {...form.text('maxTokens')} />
        <TextInput label="History, tokens" inputMode="numeric" {...form.text('historyTokens')} />
      </Group>
    </>
  );
};

export const EngineForm = ({ assistant: { assistantId, engine, draftRevision } }: { assistant: Assistant }) => {
  const save = useChange({
    run: (fields: Fields) => {
      const path = withQuery(at`/assistants/${assistantId}/engine`, { seen: draftRevision });
      return call<Assistant>('PUT', path, { body: toBody(fields) });
    },
    invalidates: ['/assistants'],
    done: 'The engine is saved.',
    quiet: true,
    after: (saved) => form.reset(fieldsOf(saved.engine)),
  });
  const form = useFields(fieldsOf(engine), save.error);
  const changed = JSON.stringify(form.values) !== JSON.stringify(fieldsOf(engine));
  return (
    <form onSubmit={onSubmit(() => save.mutate(form.values))} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={form.names} />
        <Radio.Group aria-label="Engine" {...form.pick('kind')}>
          <Stack gap="sm">
            <Radio
              value="retrieval"
              label="Answers from its knowledge"
              description="Gives the answer of an entry, or the sentences of a page. Fast, free, and writes nothing of its own. When nothing answers a question, it says so about six times of ten, and is wrongly sure once in twenty."
            />
            <Radio
              value="openai"
              label="A language model"
              description="A provider’s model writes replies from your knowledge. If the provider fails, the assistant answers from its knowledge alone."
            />
          </Stack>
        </Radio.Group>
        {form.values.kind === 'openai' && <Provider form={form} engine={engine} />}
        <Group gap="md">
          <Button type="submit" loading={save.isPending} disabled={!changed}>
            Save engine
          </Button>
          <Link className="link small" to={`/assistants/${assistantId}/try`}>
            Try it
          </Link>
        </Group>
      </Stack>
    </form>
  );
};
