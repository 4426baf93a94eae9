import { Button, Menu } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { ApiKey, Keys as KeyList, Limits } from '../../types.ts';
import { EditKey, NewKey, RotateKey } from './key-forms.tsx';
import { KeyRow, RevokedKeys } from './key-row.tsx';
import { keySecretOf } from './key-secret.ts';

const Keys = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}/keys`;
  const read = useRead<KeyList>(path);
  const { data: limits } = useRead<Limits>(at`/assistants/${id}/limits`);
  const [adding, setAdding] = useState(false);
  const [secret, setSecret] = useState<Secret | null>(null);
  const [editing, setEditing] = useState<ApiKey | null>(null);
  const { dialog, ask } = useConfirm();
  const [rotating, setRotating] = useState<ApiKey | null>(null);
  const revoke = useChange({
    run: (one: ApiKey) => call<ApiKey>('POST', at`/keys/${one.keyId}/revoke`),
    invalidates: ['/assistants/'],
    done: ({ name }) => `“${name}” is revoked.`,
  });

  const menuOf = (one: ApiKey) => (
    <RowMenu label={`Actions for ${one.name}`}>
      <Menu.Item leftSection={<Icon name="pencil" size={16} />} onClick={() => setEditing(one)}>
        Change name or limits…
      </Menu.Item>
      <Menu.Item leftSection={<Icon name="refresh" size={16} />} onClick={() => setRotating(one)}>
        Rotate…
      </Menu.Item>
      <Menu.Item
        className="danger"
        leftSection={<Icon name="trash" size={16} />}
        onClick={() =>
          ask({
            title: `Revoke “${one.name}”?`,
            body: 'Requests with this key are refused within a second. This cannot be undone.',
            action: 'Revoke key',
            danger: true,
            onConfirm: () => revoke.mutate(one),
          })
        }
      >
        Revoke…
      </Menu.Item>
    </RowMenu>
  );

  return (
    <Page
      title="API keys"
      description="Your server sends a key with every request. Give each caller its own, so that you can revoke one without the others."
      actions={
        <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setAdding(true)}>
          Create key
        </Button>
      }
    >
      <Shown read={read}>
        {({ keys }) => {
          const live = keys.filter(({ revokedAt }) => revokedAt === null);
          const revoked = keys.filter(({ revokedAt }) => revokedAt !== null);
          return (
            <>
              <Section flush>
                {live.length === 0 ? (
                  <Empty icon="key" title="No keys yet">
                    With a key, your server sends visitors’ messages and gets the assistant’s replies.
                  </Empty>
                ) : (
                  <ul className="rows" aria-label="API keys">
                    {live.map((one) => (
                      <KeyRow
                        key={one.keyId}
                        one={one}
                        quota={limits?.keys.find(({ keyId }) => keyId === one.keyId)}
                        menu={menuOf(one)}
                      />
                    ))}
                  </ul>
                )}
              </Section>
              <RevokedKeys keys={revoked} />
            </>
          );
        }}
      </Shown>
      <NewKey
        path={path}
        opened={adding}
        onClose={() => setAdding(false)}
        onMade={(made) => {
          setAdding(false);
          setSecret(keySecretOf(made));
        }}
      />
      {editing && <EditKey key={editing.keyId} one={editing} onClose={() => setEditing(null)} />}
      {rotating && (
        <RotateKey
          one={rotating}
          onClose={() => setRotating(null)}
          onMade={(made) => {
            setRotating(null);
            setSecret(keySecretOf(made));
          }}
        />
      )}
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Page>
  );
};

export default Keys;
