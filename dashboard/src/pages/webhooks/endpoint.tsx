import { Button, Group, Menu } from '@mantine/core';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { at, call } from '../../api.ts';
import { Back } from '../../parts/back.tsx';
import { Value } from '../../parts/code.tsx';
import { useConfirm } from '../../parts/confirm.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Facts, Page, Section } from '../../parts/page.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Shown } from '../../parts/states.tsx';
import { dateAndTime, When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Endpoint as EndpointType, Started } from '../../types.ts';
import { RecentDeliveries } from '../deliveries/recent.tsx';
import { Edit } from './edit.tsx';
import { EndpointState, eventsOf, isPaused } from './endpoint-state.tsx';
import { secretOf } from './list.tsx';
import { Rotate } from './rotate.tsx';
import { TestResult } from './test-result.tsx';

type Props = { id: string; endpointId: string };

const PAUSES = {
  gone: 'Your server answered 410 Gone. Its events wait, in order, until you resume it or they are too old.',
  retry_after: 'Your server asked for time. Its events wait, in order, and go on by themselves.',
};

const Pause = ({ endpoint, onResume, busy }: { endpoint: EndpointType; onResume: () => void; busy: boolean }) =>
  isPaused(endpoint) && endpoint.pause ? (
    <Notice
      tone="warn"
      icon="pause"
      title="Paused"
      actions={
        <Button size="xs" onClick={onResume} loading={busy}>
          Resume now
        </Button>
      }
    >
      {PAUSES[endpoint.pause.reason]}
    </Notice>
  ) : null;

const hasOverlap = ({ overlapUntil }: EndpointType): boolean =>
  overlapUntil !== null && Date.parse(overlapUntil) > Date.now();

const Details = ({ endpoint, onRotate }: { endpoint: EndpointType; onRotate: () => void }) => (
  <Section>
    <Facts
      facts={{
        State: <EndpointState endpoint={endpoint} />,
        URL: <Value value={endpoint.url} label="URL" />,
        Events: eventsOf(endpoint),
        'Signing secret': (
          <Group gap="sm">
            <span>
              {hasOverlap(endpoint) && endpoint.overlapUntil
                ? `Two sign: the old one until ${dateAndTime(endpoint.overlapUntil)}`
                : 'Shown once, when it was made'}
            </span>
            <Button variant="default" size="compact-sm" onClick={onRotate}>
              Rotate secret…
            </Button>
          </Group>
        ),
        Added: <When at={endpoint.createdAt} exact />,
      }}
    />
  </Section>
);

const useEndpointChanges = ({ id, endpointId }: Props) => {
  const [, go] = useLocation();
  const path = at`/endpoints/${endpointId}`;
  const touches = ['/endpoints/', '/assistants/'];
  const resume = useChange({
    run: () => call<EndpointType>('POST', `${path}/resume`),
    touches,
    done: 'It goes on: what waits is being sent.',
  });
  const turn = useChange({
    run: (enabled: boolean) => call<EndpointType>('PATCH', path, { body: { enabled } }),
    touches,
    done: ({ enabled }) => (enabled ? 'The endpoint is on.' : 'The endpoint is off.'),
  });
  const remove = useChange({
    run: () => call<void>('DELETE', path),
    touches: ['/assistants/'],
    done: 'The endpoint is removed.',
    after: () => go(`/assistants/${id}/webhooks`, { replace: true }),
  });
  return { resume, turn, remove };
};

const Endpoint = ({ id, endpointId }: Props) => {
  const read = useRead<EndpointType>(at`/endpoints/${endpointId}`, { every: 5_000 });
  const [tested, setTested] = useState<string | null>(null);
  const [dialogOf, setDialogOf] = useState<'edit' | 'rotate' | null>(null);
  const [secret, setSecret] = useState<Secret | null>(null);
  const { dialog, ask } = useConfirm();
  const { resume, turn, remove } = useEndpointChanges({ id, endpointId });
  const test = useChange({
    run: () => call<Started>('POST', at`/endpoints/${endpointId}/test`),
    touches: ['/assistants/'],
    after: ({ deliveryId }) => setTested(deliveryId),
  });
  const endpoint = read.data;

  const askOff = () =>
    ask({
      title: 'Turn this endpoint off?',
      body: 'What was not yet sent to it ends, and what happens while it is off is not sent later.',
      action: 'Turn off',
      danger: true,
      onConfirm: () => turn.mutate(false),
    });
  const askRemove = () =>
    ask({
      title: 'Remove this endpoint?',
      body: 'What was not yet sent to it ends. Its past deliveries stay to be read. Its secret is forgotten.',
      action: 'Remove endpoint',
      danger: true,
      onConfirm: () => remove.mutate(),
    });

  const actions = endpoint && (
    <>
      <Button
        leftSection={<Icon name="send" size={16} />}
        onClick={() => test.mutate()}
        loading={test.isPending}
        disabled={!endpoint.enabled}
      >
        Send test event
      </Button>
      <RowMenu label="More actions">
        <Menu.Item leftSection={<Icon name="pencil" size={16} />} onClick={() => setDialogOf('edit')}>
          Change URL or events…
        </Menu.Item>
        <Menu.Item leftSection={<Icon name="refresh" size={16} />} onClick={() => setDialogOf('rotate')}>
          Rotate secret…
        </Menu.Item>
        <Menu.Item
          leftSection={<Icon name="pause" size={16} />}
          onClick={endpoint.enabled ? askOff : () => turn.mutate(true)}
        >
          {endpoint.enabled ? 'Turn off…' : 'Turn on'}
        </Menu.Item>
        <Menu.Item className="danger" leftSection={<Icon name="trash" size={16} />} onClick={askRemove}>
          Remove…
        </Menu.Item>
      </RowMenu>
    </>
  );

  return (
    <Page
      title={endpoint ? (URL.parse(endpoint.url)?.host ?? 'Endpoint') : 'Endpoint'}
      above={<Back to={`/assistants/${id}/webhooks`}>Webhooks</Back>}
      actions={actions}
    >
      <Shown read={read}>
        {(one) => (
          <>
            <Pause endpoint={one} onResume={() => resume.mutate()} busy={resume.isPending} />
            {tested !== null && <TestResult key={tested} id={id} deliveryId={tested} />}
            <Details endpoint={one} onRotate={() => setDialogOf('rotate')} />
            <RecentDeliveries id={id} endpointId={endpointId} />
            {dialogOf === 'edit' && <Edit endpoint={one} onClose={() => setDialogOf(null)} />}
          </>
        )}
      </Shown>
      <Rotate
        endpointId={endpointId}
        opened={dialogOf === 'rotate'}
        onClose={() => setDialogOf(null)}
        onMade={(made) => {
          setDialogOf(null);
          setSecret(secretOf(made.secret, 'The new signing secret'));
        }}
      />
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Page>
  );
};

export default Endpoint;
