import { AppShell, Box, Burger, Group, VisuallyHidden } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { type ReactNode, useEffect } from 'react';
import { useLocation } from 'wouter';
import { useAssistant } from '../assistant.ts';
import { StateNote } from '../live/state-note.tsx';
import type { Me } from '../types.ts';
import { AccountMenu } from './account-menu.tsx';
import { AssistantSwitch } from './assistant-switch.tsx';
import { Boundary } from './boundary.tsx';
import { GoTo } from './go-to.tsx';
import { Mark } from './mark.tsx';
import { Navigation } from './navigation.tsx';

/** The page at an address. The inbox stays one page while its conversations are opened. */
const pageAt = (location: string): string => (location.startsWith('/inbox') ? '/inbox' : location);

export const Shell = ({ me, children }: { me: Me; children: ReactNode }) => {
  const [opened, { toggle, close }] = useDisclosure();
  const [location] = useLocation();
  const assistant = useAssistant(me);
  useEffect(() => {
    close();
    window.scrollTo(0, 0);
  }, [location, close]);
  return (
    <AppShell
      header={{ height: { base: 52, sm: 0 } }}
      navbar={{ width: 248, breakpoint: 'sm', collapsed: { mobile: !opened } }}
      padding={0}
    >
      <a className="skip" href="#page">
        Skip to content
      </a>
      <AppShell.Header hiddenFrom="sm" className="top">
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Mark />
          {assistant && location.startsWith('/assistants/') && (
            <span className="top-name clip" aria-hidden="true" data-name={assistant.name} />
          )}
          <Burger
            opened={opened}
            onClick={toggle}
            size="sm"
            aria-label={opened ? 'Close the menu' : 'Open the menu'}
            aria-expanded={opened}
          />
        </Group>
      </AppShell.Header>
      <AppShell.Navbar className="side" aria-label="Pages">
        <div className="side-top">
          <Group px={6} justify="space-between">
            <Box visibleFrom="sm">
              <Mark />
            </Box>
            <GoTo me={me} current={assistant} />
          </Group>
          <AssistantSwitch me={me} current={assistant} />
        </div>
        <Navigation me={me} assistantId={assistant?.assistantId ?? null} />
        <StateNote />
        <AccountMenu me={me} />
      </AppShell.Navbar>
      <AppShell.Main id="page" tabIndex={-1}>
        <VisuallyHidden aria-live="polite">{assistant?.name}</VisuallyHidden>
        <Boundary key={pageAt(location)}>{children}</Boundary>
      </AppShell.Main>
    </AppShell>
  );
};
