import { Button } from '@mantine/core';
import { Link } from 'wouter';
import { Page } from '../parts/page.tsx';
import { Empty } from '../parts/states.tsx';

export const NotHere = () => (
  <Page title="Not found">
    <Empty
      icon="search"
      title="There is no page at this address"
      action={
        <Button component={Link} to="/" variant="default" size="xs">
          Go home
        </Button>
      }
    />
  </Page>
);

export const NotForYou = () => (
  <Page title="Not for your role">
    <Empty icon="key" title="This page is for owners">
      Agents answer conversations in the inbox and try the assistants. An owner can change your role.
    </Empty>
  </Page>
);
