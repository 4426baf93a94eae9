import { Menu, UnstyledButton } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { Link, useLocation } from 'wouter';
import { call } from '../api.ts';
import { dropDrafts } from '../pages/inbox/composer/drafts.ts';
import { NotifyItem } from '../live/notify-item.tsx';
import { Icon } from '../parts/icon.tsx';
import { LEFT, SESSION, useChange } from '../query.ts';
import type { Me } from '../types.ts';
import { ColorScheme } from './color-scheme.tsx';

/** Signs out and clears all cached data, so that the next person at this browser cannot see it. */
export const useSignOut = (path: '/session' | '/sessions', done: string) => {
  const client = useQueryClient();
  const [, go] = useLocation();
  return useChange({
    run: async () => {
      // Set before the request: another request may get its 401 before this one is answered.
      client.setQueryData([LEFT], true);
      await call<void>('DELETE', path).catch((failure: unknown) => {
        client.removeQueries({ queryKey: [LEFT] });
        throw failure;
      });
    },
    done,
    after: () => {
      dropDrafts();
      go('/', { replace: true });
      client.removeQueries({ predicate: ({ queryKey: [key] }) => key !== SESSION && key !== LEFT });
      client.setQueryData([SESSION], null);
    },
  });
};

export const AccountMenu = ({ me }: { me: Me }) => {
  const signOut = useSignOut('/session', 'You are signed out.');
  return (
    <div className="side-foot">
      <Menu position="top-start" width={220}>
        <Menu.Target>
          <UnstyledButton className="switch" aria-label={`Account of ${me.email}`}>
            <Icon name="user" />
            <span className="switch-name">{me.email}</span>
          </UnstyledButton>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Label>Signed in as {me.role}</Menu.Label>
          <Menu.Item component={Link} to="/account" leftSection={<Icon name="user" size={16} />}>
            My account
          </Menu.Item>
          <NotifyItem />
          <Menu.Item leftSection={<Icon name="out" size={16} />} onClick={() => signOut.mutate()}>
            Sign out
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <ColorScheme />
    </div>
  );
};
