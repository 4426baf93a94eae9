import { Button } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Section } from '../../parts/page.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Me, NewOperatorToken, OperatorToken, OperatorTokens } from '../../types.ts';
import { NewToken } from './new-token.tsx';
import { TokenRow } from './token-row.tsx';

const PATH = '/tokens';

const secretOf = ({ token, secret }: NewOperatorToken): Secret => ({
  title: `Operator token “${token.name}”`,
  label: 'Operator token',
  value: secret,
  sample: {
    label: 'Try it in a terminal',
    text: `curl ${window.location.origin}/operator/v1/assistants \\\n  -H 'Authorization: Bearer ${secret}'`,
  },
});

/** The list of operator tokens. */
export const Tokens = ({ me }: { me: Me }) => {
  const read = useRead<OperatorTokens>(PATH);
  const [adding, setAdding] = useState(false);
  const [shown, setShown] = useState(false);
  const [secret, setSecret] = useState<Secret | null>(null);
  const { dialog, ask } = useConfirm();
  const revoke = useChange({
    run: (one: OperatorToken) => call<OperatorToken>('POST', at`/tokens/${one.tokenId}/revoke`),
    invalidates: [PATH],
    done: ({ name }) => `“${name}” is revoked.`,
  });
  const askRevoke = (one: OperatorToken) =>
    ask({
      title: `Revoke “${one.name}”?`,
      body: 'Whatever uses it is refused with its next request, for good. It cannot be brought back.',
      action: 'Revoke token',
      danger: true,
      onConfirm: () => revoke.mutate(one),
    });

  return (
    <Section
      title="Operator tokens"
      description="What programs use in place of a password: deployment scripts, the admin command. A token ends with the owner who made it."
      flush
      actions={
        <Button variant="default" leftSection={<Icon name="plus" size={16} />} onClick={() => setAdding(true)}>
          Create token
        </Button>
      }
    >
      <Shown read={read}>
        {({ tokens }) => {
          const live = tokens.filter(({ revokedAt }) => revokedAt === null);
          const rows = shown ? tokens : live;
          return (
            <>
              {rows.length === 0 ? (
                <Empty icon="key" title="No token yet">
                  With a token a program can do by the API what you do here.
                </Empty>
              ) : (
                <ul className="rows" aria-label="Operator tokens">
                  {rows.map((one) => (
                    <TokenRow key={one.tokenId} one={one} me={me} onRevoke={() => askRevoke(one)} />
                  ))}
                </ul>
              )}
              {tokens.length > live.length && (
                <Button
                  variant="subtle"
                  color="gray"
                  size="xs"
                  m="xs"
                  aria-expanded={shown}
                  onClick={() => setShown(!shown)}
                >
                  {shown ? 'Hide' : 'Show'} revoked tokens ({tokens.length - live.length})
                </Button>
              )}
            </>
          );
        }}
      </Shown>
      {adding && (
        <NewToken
          assistants={me.assistants}
          onClose={() => setAdding(false)}
          onMade={(made) => {
            setAdding(false);
            setSecret(secretOf(made));
          }}
        />
      )}
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Section>
  );
};
