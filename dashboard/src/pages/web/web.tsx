import { Anchor, Button, Group, NativeSelect, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core';
import { useMemo, useState } from 'react';
import { at, call } from '../../api.ts';
import { Code, Value } from '../../parts/code.tsx';
import { useConfirm } from '../../parts/confirm.tsx';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { Facts, Page, Section } from '../../parts/page.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Shown } from '../../parts/states.tsx';
import { Status } from '../../parts/status.tsx';
import { linesOf, originOf } from '../../parts/typed.ts';
import { When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Assistant, WebChannel, WebIdentity } from '../../types.ts';
import { WidgetPreview } from './preview.tsx';

const THEMES = [
  { value: 'auto', label: 'As the visitor’s system' },
  { value: 'light', label: 'Light' },
  { value: 'dark', label: 'Dark' },
];
const SIDES = [
  { value: 'end', label: 'Right (left in right-to-left languages)' },
  { value: 'start', label: 'Left (right in right-to-left languages)' },
];

type Fields = Omit<WebChannel, 'page' | 'identity' | 'origins' | 'starters'> & { origins: string; starters: string };

const fieldsOf = ({ page: _page, identity: _identity, origins, starters, ...rest }: WebChannel): Fields => ({
  ...rest,
  origins: origins.join('\n'),
  starters: starters.join('\n'),
});

const bodyOf = ({ origins, starters, ...rest }: Fields) => ({
  ...rest,
  origins: [...new Set(linesOf(origins).map(originOf))],
  starters: linesOf(starters),
});

const snippetFor = (id: string): string =>
  `<script src="${window.location.origin}/widget.js" data-assistant="${id}" async></script>`;

type FormProps = { form: ReturnType<typeof useFields<Fields>> };

const Access = ({ form }: FormProps) => (
  <>
    <Switch
      label="Show the widget and the hosted page"
      checked={form.values.enabled}
      onChange={(event) => form.set('enabled', event.currentTarget.checked)}
    />
    <Textarea
      label="Sites that may show the widget"
      description="One origin a line, such as https://www.example.com. The hosted page needs none."
      placeholder="https://www.example.com"
      autosize
      minRows={2}
      maxRows={8}
      {...form.text('origins')}
    />
  </>
);

const Looks = ({ form, name }: FormProps & { name: string }) => (
  <>
    <TextInput label="Title" placeholder={name} maxLength={60} {...form.text('title')} />
    <Textarea
      label="Greeting"
      description="Leave it empty for a greeting in the language of each visitor’s page."
      autosize
      minRows={2}
      maxRows={6}
      maxLength={500}
      {...form.text('greeting')}
    />
    <Textarea
      label="Questions to begin with"
      description="Up to four, one a line. Visitors choose them with a tap."
      autosize
      minRows={2}
      maxRows={4}
      {...form.text('starters')}
    />
    <Group gap="md" align="flex-end" grow>
      <TextInput type="color" label="Colour" classNames={{ input: 'color-input' }} {...form.text('accent')} />
      <NativeSelect label="Theme" data={THEMES} {...form.text('theme')} />
    </Group>
    <NativeSelect label="Side of the page" data={SIDES} {...form.text('side')} />
    <Text size="sm" c="dimmed">
      Texts on your colour stay readable: a shade of it is used where its contrast would be too low.
    </Text>
  </>
);

const Settings = ({ path, web, name }: { path: string; web: WebChannel; name: string }) => {
  const save = useChange({
    run: (fields: Fields) => call<WebChannel>('PATCH', path, { body: bodyOf(fields) }),
    invalidates: [path],
    done: 'Saved.',
    quiet: true,
    after: (saved) => form.reset(fieldsOf(saved)),
  });
  const form = useFields(fieldsOf(web), save.error);
  const { title, greeting, starters, accent, theme, side } = form.values;
  const looks = useMemo(
    () => ({ title: title || name, greeting, starters: linesOf(starters).slice(0, 4), accent, theme, side }),
    [title, name, greeting, starters, accent, theme, side],
  );
  const changed = JSON.stringify(bodyOf(form.values)) !== JSON.stringify(bodyOf(fieldsOf(web)));
  return (
    <div className="web-settings">
      <form onSubmit={onSubmit(() => save.mutate(form.values))} noValidate>
        <Stack gap="md">
          <FormProblem problem={save.error} fields={form.names} />
          <Access form={form} />
          <Looks form={form} name={name} />
          <Button type="submit" loading={save.isPending} disabled={!changed} className="self-start">
            Save changes
          </Button>
        </Stack>
      </form>
      <WidgetPreview settings={looks} />
    </div>
  );
};

const Identity = ({ path, web }: { path: string; web: WebChannel }) => {
  const [secret, setSecret] = useState<Secret | null>(null);
  const { dialog, ask } = useConfirm();
  const rotate = useChange({
    run: () => call<WebIdentity>('POST', `${path}/identity`),
    invalidates: [path],
    after: (made) => setSecret({ title: 'Secret that signs user ids', label: 'Secret', value: made.secret }),
  });
  const remove = useChange({
    run: () => call<WebChannel>('DELETE', `${path}/identity`),
    invalidates: [path],
    done: 'User ids are no longer accepted.',
  });
  const { identity } = web;
  const askRotate = () =>
    ask({
      title: 'Make a new secret?',
      body: 'Signatures of the present secret stop working at once. Signed-in visitors go on when their page has a new one.',
      action: 'Make a new secret',
      onConfirm: () => rotate.mutate(),
    });
  const askRemove = () =>
    ask({
      title: 'Remove the secret?',
      body: 'Visitors can no longer be signed in. Their conversations stay.',
      action: 'Remove',
      danger: true,
      onConfirm: () => remove.mutate(),
    });
  return (
    <Stack gap="md">
      <Facts
        facts={{
          State: identity ? (
            <Status tone="good">
              Accepted, with the secret of <When at={identity.createdAt} />
            </Status>
          ) : (
            <Status tone="calm">Not set up</Status>
          ),
        }}
      />
      <Group gap="xs">
        <Button variant="default" loading={rotate.isPending} onClick={identity ? askRotate : () => rotate.mutate()}>
          {identity ? 'Rotate the secret…' : 'Make a secret'}
        </Button>
        {identity && (
          <Button variant="default" onClick={askRemove}>
            Remove…
          </Button>
        )}
      </Group>
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Stack>
  );
};

const Web = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/web`;
  const read = useRead<WebChannel>(path);
  const assistant = useRead<Assistant>(at`/assistants/${id}`);
  return (
    <Page
      title="Web chat"
      description="Visitors talk with the assistant on your site, or on a page that is hosted here."
    >
      <Shown read={read} rows={5}>
        {(web) => (
          <>
            <Section title="Settings">
              <Settings path={path} web={web} name={assistant.data?.name ?? ''} />
            </Section>
            <Section
              title="On your site"
              description="Put this line into your pages. It loads nothing else from elsewhere."
            >
              <Stack gap="md">
                <Code text={snippetFor(id)} label="snippet" />
                <Facts
                  facts={{
                    'Hosted page': web.enabled ? (
                      <Anchor href={web.page} target="_blank" rel="noopener" size="sm" className="break">
                        {window.location.origin}
                        {web.page}
                      </Anchor>
                    ) : (
                      <Value value={`${window.location.origin}${web.page}`} label="address of the hosted page" />
                    ),
                  }}
                />
              </Stack>
            </Section>
            <Section
              title="Signed-in users"
              description="Your server signs the id of a user with this secret. The user then has one conversation in every browser, and nobody else can claim it."
            >
              <Identity path={path} web={web} />
            </Section>
          </>
        )}
      </Shown>
    </Page>
  );
};

export default Web;
