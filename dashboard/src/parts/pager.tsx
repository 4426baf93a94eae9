import { Button, Group } from '@mantine/core';

type Props = {
  cursor: string;
  next: string | null | undefined;
  onGo: (cursor: string) => void;
  labels?: [first: string, more: string];
};

/** Buttons to move between the pages of a list. Unless the labels say otherwise, the first page has the newest rows. */
export const Pager = ({ cursor, next, onGo, labels: [first, more] = ['Newest', 'Older'] }: Props) =>
  cursor === '' && !next ? null : (
    <Group justify="space-between">
      <Button variant="default" disabled={cursor === ''} onClick={() => onGo('')}>
        {first}
      </Button>
      <Button variant="default" disabled={!next} onClick={() => onGo(next ?? '')}>
        {more}
      </Button>
    </Group>
  );
