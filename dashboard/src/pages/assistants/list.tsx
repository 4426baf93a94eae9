import { Button, TextInput } from '@mantine/core';
import { Link, useLocation, useSearchParams } from 'wouter';
import { call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { Status } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import { SESSION, useChange, useRead } from '../../query.ts';
import type { Assistant, Assistants as AssistantList } from '../../types.ts';
import { engineWords } from './engine-words.ts';

const PATH = '/assistants';

const Row = ({ one }: { one: Assistant }) => (
  <li>
    <Link className="row row-stack" to={`/assistants/${one.assistantId}/overview`}>
      <div className="row-main">
        <div className="row-title">{one.name}</div>
        <div className="row-sub">{engineWords(one.engine)}</div>
      </div>
      {one.channel.connected && (
        <Status tone={one.channel.open ? 'warn' : 'good'}>
          {one.channel.open ? 'Channel open' : 'Channel connected'}
        </Status>
      )}
      <span className="dim">
        Created <When at={one.createdAt} />
      </span>
    </Link>
  </li>
);

const NewAssistant = ({ opened, onClose }: { opened: boolean; onClose: () => void }) => {
  const [, go] = useLocation();
  const create = useChange({
    run: (body: { name: string }) => call<Assistant>('POST', PATH, { body }),
    invalidates: [PATH, SESSION],
    done: ({ name }) => `“${name}” is created. Next, add knowledge.`,
    quiet: true,
    after: ({ assistantId }) => {
      form.reset({ name: '' });
      go(`/assistants/${assistantId}/overview`);
    },
  });
  const form = useFields({ name: '' }, create.error);
  return (
    <FormDialog
      title="New assistant"
      opened={opened}
      onClose={onClose}
      onSend={() => create.mutate(form.values)}
      action="Create assistant"
      change={create}
      fields={form.names}
      disabled={form.values.name.trim() === ''}
    >
      <TextInput
        label="Name"
        description="You can set everything else later."
        data-autofocus
        maxLength={100}
        {...form.text('name')}
      />
    </FormDialog>
  );
};

const Assistants = () => {
  const read = useRead<AssistantList>(PATH);
  const [params, setParams] = useSearchParams();
  const open = () => setParams({ new: '' });
  const button = (
    <Button leftSection={<Icon name="plus" size={16} />} onClick={open}>
      New assistant
    </Button>
  );
  return (
    <Page title="Assistants" description="Each has its own knowledge, keys, channel and webhooks." actions={button}>
      <Section flush>
        <Shown read={read}>
          {({ assistants }) =>
            assistants.length === 0 ? (
              <Empty icon="bot" title="No assistant yet">
                Create one, add questions and answers, and try it here.
              </Empty>
            ) : (
              <ul className="rows" aria-label="Assistants">
                {assistants.map((one) => (
                  <Row key={one.assistantId} one={one} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <NewAssistant opened={params.has('new')} onClose={() => setParams({}, { replace: true })} />
    </Page>
  );
};

export default Assistants;
