import { Button } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'wouter';
import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Endpoint, Endpoints, EndpointSecret } from '../../types.ts';
import { RecentDeliveries } from '../deliveries/recent.tsx';
import { EndpointForm, type EndpointFields, isComplete, NEW_ENDPOINT, endpointBodyOf } from './endpoint-form.tsx';
import { EndpointState, eventsOf } from './endpoint-state.tsx';
import { Verify } from './verify.tsx';

const MOST = 10;

export const endpointSecretOf = (secret: string, title: string): Secret => ({
  title,
  label: 'Signing secret',
  value: secret,
  note: 'Your server uses it to verify that an event comes from this service. The whole value is the key, including “whsec_”. Libraries of Standard Webhooks take it as it is.',
});

const Row = ({ id, endpoint }: { id: string; endpoint: Endpoint }) => (
  <li>
    <Link className="row row-stack" to={`/assistants/${id}/webhooks/${endpoint.endpointId}`}>
      <div className="row-main">
        <div className="row-title mono">{endpoint.url}</div>
        <div className="row-sub">{eventsOf(endpoint)}</div>
      </div>
      <EndpointState endpoint={endpoint} />
      <span className="wide">
        <Icon name="right" size={16} />
      </span>
    </Link>
  </li>
);

const AddEndpoint = ({
  path,
  opened,
  onClose,
  onMade,
}: {
  path: string;
  opened: boolean;
  onClose: () => void;
  onMade: (made: EndpointSecret) => void;
}) => {
  const add = useChange({
    run: (fields: EndpointFields) => call<EndpointSecret>('POST', path, { body: endpointBodyOf(fields) }),
    invalidates: ['/assistants/'],
    quiet: true,
    after: (made) => {
      form.reset(NEW_ENDPOINT);
      onMade(made);
    },
  });
  const form = useFields(NEW_ENDPOINT, add.error);
  return (
    <FormDialog
      title="Add an endpoint"
      size="lg"
      opened={opened}
      onClose={onClose}
      onSend={() => add.mutate(form.values)}
      action="Add endpoint"
      change={add}
      fields={form.names}
      disabled={!isComplete(form.values)}
    >
      <EndpointForm form={form} />
    </FormDialog>
  );
};

const Webhooks = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/endpoints`;
  const read = useRead<Endpoints>(path, { every: 10_000 });
  const [adding, setAdding] = useState(false);
  const [secret, setSecret] = useState<Secret | null>(null);
  const full = (read.data?.endpoints.length ?? 0) >= MOST;
  const button = (
    <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setAdding(true)} disabled={full}>
      Add endpoint
    </Button>
  );
  return (
    <Page
      title="Webhooks"
      description="Events of conversations are posted to your server: signed, in order, each at most once."
      actions={button}
    >
      <Section
        title="Endpoints"
        flush
        {...(full && { description: `An assistant can have at most ${MOST} endpoints.` })}
      >
        <Shown read={read} rows={2}>
          {({ endpoints }) =>
            endpoints.length === 0 ? (
              <Empty icon="send" title="No endpoints yet">
                Add your server’s URL. It then gets an event for each new conversation, message and handoff.
              </Empty>
            ) : (
              <ul className="rows" aria-label="Endpoints">
                {endpoints.map((endpoint) => (
                  <Row key={endpoint.endpointId} id={id} endpoint={endpoint} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <RecentDeliveries id={id} />
      <Verify />
      <AddEndpoint
        path={path}
        opened={adding}
        onClose={() => setAdding(false)}
        onMade={(made) => {
          setAdding(false);
          setSecret(endpointSecretOf(made.secret, 'The endpoint is added'));
        }}
      />
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
    </Page>
  );
};

export default Webhooks;
