import { Button, Menu, NativeSelect } from '@mantine/core';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { at, call } from '../../api.ts';
import { Back } from '../../parts/back.tsx';
import { useConfirm } from '../../parts/confirm.tsx';
import { endpointNameOf } from '../../parts/endpoint-name.ts';
import { Icon } from '../../parts/icon.tsx';
import { Page } from '../../parts/page.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Endpoint as EndpointType, Started } from '../../types.ts';
import { RecentDeliveries } from '../deliveries/recent.tsx';
import { Edit } from './edit.tsx';
import { EndpointDetails, Pause } from './endpoint-details.tsx';
import { TEST_KINDS } from './event-names.ts';
import { endpointSecretOf } from './list.tsx';
import { RecoverDialog, RecoverySection } from './recovery.tsx';
import { Rotate } from './rotate.tsx';
import { TestResult } from './test-result.tsx';

type Props = { id: string; endpointId: string };

const useEndpointChanges = ({ id, endpointId }: Props) => {
  const [, go] = useLocation();
  const path = at`/endpoints/${endpointId}`;
  const invalidates = ['/endpoints/', '/assistants/'];
  const resume = useChange({
    run: () => call<EndpointType>('POST', `${path}/resume`),
    invalidates,
    done: 'The endpoint is resumed. Waiting events are being sent.',
  });
  const turn = useChange({
    run: (enabled: boolean) => call<EndpointType>('PATCH', path, { body: { enabled } }),
    invalidates,
    done: ({ enabled }) => (enabled ? 'The endpoint is on.' : 'The endpoint is off.'),
  });
  const remove = useChange({
    run: () => call<void>('DELETE', path),
    invalidates: ['/assistants/'],
    done: 'The endpoint is removed.',
    after: () => go(`/assistants/${id}/webhooks`, { replace: true }),
  });
  return { resume, turn, remove };
};

const Endpoint = ({ id, endpointId }: Props) => {
  const read = useRead<EndpointType>(at`/endpoints/${endpointId}`, { every: 5_000 });
  const [kind, setKind] = useState('webhook.test');
  const [tested, setTested] = useState<string | null>(null);
  const [dialogOf, setDialogOf] = useState<'edit' | 'rotate' | 'recover' | null>(null);
  const [secret, setSecret] = useState<Secret | null>(null);
  const { dialog, ask } = useConfirm();
  const { resume, turn, remove } = useEndpointChanges({ id, endpointId });
  const test = useChange({
    run: () => call<Started>('POST', at`/endpoints/${endpointId}/test`, { body: { event: kind } }),
    invalidates: ['/assistants/'],
    after: ({ deliveryId }) => setTested(deliveryId),
  });
  const endpoint = read.data;

  const askOff = () =>
    ask({
      title: 'Turn this endpoint off?',
      body: 'Waiting events will not be sent. Events that happen while it is off are not sent later.',
      action: 'Turn off',
      danger: true,
      onConfirm: () => turn.mutate(false),
    });
  const askRemove = () =>
    ask({
      title: 'Remove this endpoint?',
      body: 'Waiting events will not be sent. Past deliveries stay visible. The secret is deleted.',
      action: 'Remove endpoint',
      danger: true,
      onConfirm: () => remove.mutate(),
    });

  const actions = endpoint && (
    <>
      <NativeSelect
        aria-label="Kind of test event"
        data={TEST_KINDS}
        value={kind}
        onChange={({ currentTarget }) => setKind(currentTarget.value)}
      />
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
          Change the endpoint…
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
      title={endpoint ? endpointNameOf(endpoint.url) : 'Endpoint'}
      above={<Back to={`/assistants/${id}/webhooks`}>Webhooks</Back>}
      actions={actions}
    >
      <Shown read={read}>
        {(one) => (
          <>
            <Pause endpoint={one} onResume={() => resume.mutate()} busy={resume.isPending} />
            {tested !== null && <TestResult key={tested} id={id} deliveryId={tested} />}
            <EndpointDetails endpoint={one} onRotate={() => setDialogOf('rotate')} />
            <RecentDeliveries id={id} endpointId={endpointId} />
            <RecoverySection endpointId={endpointId} onRecover={() => setDialogOf('recover')} />
            {dialogOf === 'recover' && <RecoverDialog endpointId={endpointId} onClose={() => setDialogOf(null)} />}
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
          setSecret(endpointSecretOf(made.secret, 'The new signing secret'));
        }}
      />
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Page>
  );
};

export default Endpoint;
