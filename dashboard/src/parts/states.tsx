import { Button, Skeleton, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { isProblem } from '../problem.ts';
import { Icon, type IconName } from './icon.tsx';

/** Shown for an empty list: what the list will contain, and how to start. */
export const Empty = ({
  icon,
  title,
  children,
  action,
}: {
  icon: IconName;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
}) => (
  <div className="empty">
    <span className="empty-icon">
      <Icon name={icon} size={22} />
    </span>
    <Text fw={600}>{title}</Text>
    {children !== undefined && (
      <Text c="dimmed" size="sm" maw="46ch" component="div">
        {children}
      </Text>
    )}
    {action}
  </div>
);

const wordsOf = (problem: unknown): { title: string; text: string } => {
  if (isProblem(problem, 404))
    return { title: 'Not found', text: 'It may have been removed, or the address is wrong.' };
  if (isProblem(problem, 403))
    return { title: 'Not for your role', text: 'Only owners can open this page. An owner can change your role.' };
  if (isProblem(problem, 0))
    return { title: 'The service cannot be reached', text: 'Check your connection, then try again.' };
  return {
    title: 'This could not be loaded',
    text: problem instanceof Error ? problem.message : 'Something went wrong.',
  };
};

export const Failure = ({ problem, retry }: { problem: unknown; retry?: () => void }) => {
  const { title, text } = wordsOf(problem);
  const requestId = isProblem(problem) && problem.status >= 500 ? problem.requestId : null;
  return (
    <div className="empty" role="alert">
      <span className="empty-icon empty-icon-bad">
        <Icon name="warning" size={22} />
      </span>
      <Text fw={600}>{title}</Text>
      <Text c="dimmed" size="sm" maw="46ch">
        {text}
      </Text>
      {requestId !== null && (
        <Text c="dimmed" size="xs" ff="monospace">
          request {requestId}
        </Text>
      )}
      {retry && !isProblem(problem, 403) && (
        <Button variant="default" size="xs" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
};

export const Loading = ({ rows = 4, height = 44 }: { rows?: number; height?: number }) => (
  <Stack gap="xs" p="md" className="loading" role="status" aria-label="Loading">
    {Array.from({ length: rows }, (_, row) => (
      <Skeleton key={row} height={height} radius="sm" />
    ))}
  </Stack>
);

type Read<Answer> = { data: Answer | undefined; error: Error | null; refetch: () => unknown };

/**
 * Shows the result of a query, or that the query is loading or has failed. If a later poll fails, the last result stays
 * visible.
 */
export const Shown = <Answer,>({
  read,
  rows,
  children,
}: {
  read: Read<Answer>;
  rows?: number;
  children: (answer: Answer) => ReactNode;
}) => {
  if (read.data !== undefined) return children(read.data);
  if (read.error) return <Failure problem={read.error} retry={() => void read.refetch()} />;
  return <Loading {...(rows !== undefined && { rows })} />;
};
