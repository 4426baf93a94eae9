import { Button, Group } from '@mantine/core';

type Props = { cursor: string; next: string | null | undefined; onGo: (cursor: string) => void };

/** Buttons to move between the pages of a list. The first page has the newest rows. */
export const Pager = ({ cursor, next, onGo }: Props) =>
  cursor === '' && !next ? null : (
    <Group justify="space-between">
      <Button variant="default" disabled={cursor === ''} onClick={() => onGo('')}>
        Newest
      </Button>
      <Button variant="default" disabled={!next} onClick={() => onGo(next ?? '')}>
        Older
      </Button>
    </Group>
  );
