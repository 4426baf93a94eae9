import { Button, Menu } from '@mantine/core';
import { useState } from 'react';
import { at, call } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { RowMenu } from '../../parts/row-menu.tsx';
import { type Secret, SecretDialog } from '../../parts/secret.tsx';
import { Shown } from '../../parts/states.tsx';
import { dateAndTime } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Me, Operator, OperatorLink, Operators as OperatorList } from '../../types.ts';
import { AssistantsDialog } from './assistants-dialog.tsx';
import { Invite } from './invite.tsx';
import { OperatorRow } from './operator-row.tsx';
import { Tokens } from './tokens.tsx';

const PATH = '/operators';

const linkOf = ({ operator, path, expiresAt }: OperatorLink): Secret => ({
  title: operator.invited ? `${operator.email} is invited` : `A link for ${operator.email}`,
  label: 'Link',
  value: `${window.location.origin}${path}`,
  note: `Send it to ${operator.email} over a channel you trust: the first person to open it sets the password. It works once, until ${dateAndTime(expiresAt)}.`,
});

const useOperatorChanges = (onLink: (link: Secret) => void) => {
  const invalidates = [PATH];
  const update = useChange({
    run: ({ one, ...body }: { one: Operator; role?: Operator['role']; disabled?: boolean }) =>
      call<Operator>('PATCH', at`/operators/${one.operatorId}`, { body }),
    invalidates,
    done: ({ email }) => `${email} is saved.`,
  });
  const link = useChange({
    run: (one: Operator) => call<OperatorLink>('POST', at`/operators/${one.operatorId}/link`),
    invalidates,
    after: (made) => onLink(linkOf(made)),
  });
  const signOut = useChange({
    run: (one: Operator) => call<void>('DELETE', at`/operators/${one.operatorId}/sessions`),
    invalidates,
    done: (_answer, { email }) => `${email} is signed out everywhere.`,
  });
  return { update, link, signOut };
};

const Operators = ({ me }: { me: Me }) => {
  const read = useRead<OperatorList>(PATH);
  const [inviting, setInviting] = useState(false);
  const [limiting, setLimiting] = useState<Operator | null>(null);
  const [secret, setSecret] = useState<Secret | null>(null);
  const { dialog, ask } = useConfirm();
  const { update, link, signOut } = useOperatorChanges(setSecret);

  const askRole = (one: Operator) => {
    const role = one.role === 'owner' ? 'agent' : 'owner';
    ask({
      title: role === 'owner' ? `Make ${one.email} an owner?` : `Make ${one.email} an agent?`,
      body:
        role === 'owner'
          ? 'Owners see and change everything, including keys, webhooks and operators.'
          : 'Agents answer conversations and try assistants: all of them, until you choose some. They do not see keys, webhooks or operators.',
      action: role === 'owner' ? 'Make owner' : 'Make agent',
      onConfirm: () => update.mutate({ one, role }),
    });
  };
  const askDisable = (one: Operator) =>
    ask({
      title: `Disable ${one.email}?`,
      body: 'Their sessions end immediately. They cannot sign in until you enable them again.',
      action: 'Disable',
      danger: true,
      onConfirm: () => update.mutate({ one, disabled: true }),
    });
  const askLink = (one: Operator) =>
    ask({
      title: one.invited ? `A new invitation for ${one.email}?` : `Reset the password of ${one.email}?`,
      body: one.invited
        ? 'You get a new link. The earlier one stops working.'
        : 'You get a link for choosing a new password. The current password works until then.',
      action: 'Create the link',
      onConfirm: () => link.mutate(one),
    });
  const askSignOut = (one: Operator) =>
    ask({
      title: `Sign ${one.email} out everywhere?`,
      body: 'All their sessions end.',
      action: 'Sign out',
      danger: true,
      onConfirm: () => signOut.mutate(one),
    });

  const menuOf = (one: Operator) => (
    <RowMenu label={`Actions for ${one.email}`}>
      <Menu.Item onClick={() => askRole(one)}>{one.role === 'owner' ? 'Make agent…' : 'Make owner…'}</Menu.Item>
      {one.role === 'agent' && <Menu.Item onClick={() => setLimiting(one)}>Assistants…</Menu.Item>}
      {!one.disabled && (
        <Menu.Item onClick={() => askLink(one)}>{one.invited ? 'New invitation link…' : 'Reset password…'}</Menu.Item>
      )}
      <Menu.Item onClick={() => askSignOut(one)}>Sign out everywhere…</Menu.Item>
      {one.disabled ? (
        <Menu.Item onClick={() => update.mutate({ one, disabled: false })}>Enable</Menu.Item>
      ) : (
        <Menu.Item className="danger" onClick={() => askDisable(one)}>
          Disable…
        </Menu.Item>
      )}
    </RowMenu>
  );

  return (
    <Page
      title="Operators"
      description="Who can sign in. Owners can do everything; agents answer conversations in the inbox and try assistants."
      actions={
        <Button leftSection={<Icon name="plus" size={16} />} onClick={() => setInviting(true)}>
          Invite
        </Button>
      }
    >
      <Section flush>
        <Shown read={read}>
          {({ operators }) => (
            <ul className="rows" aria-label="Operators">
              {operators.map((one) => (
                <OperatorRow key={one.operatorId} one={one} me={me} menu={menuOf(one)} />
              ))}
            </ul>
          )}
        </Shown>
      </Section>
      <Tokens me={me} />
      {inviting && (
        <Invite
          assistants={me.assistants}
          onClose={() => setInviting(false)}
          onMade={(made) => {
            setInviting(false);
            setSecret(linkOf(made));
          }}
        />
      )}
      {limiting && <AssistantsDialog one={limiting} assistants={me.assistants} onClose={() => setLimiting(null)} />}
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
      {dialog}
    </Page>
  );
};

export default Operators;
