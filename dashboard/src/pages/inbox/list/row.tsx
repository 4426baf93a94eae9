import { VisuallyHidden } from '@mantine/core';
import { memo } from 'react';
import { Link } from 'wouter';
import { Status } from '../../../parts/status.tsx';
import { When } from '../../../parts/when.tsx';
import type { InboxRow } from '../../../types.ts';
import { useAgent } from '../agents.ts';
import { TagChip } from '../tag.tsx';
import { handoffReason } from '../thread/lines.tsx';
import { initialsOf, reasonWords, STATUS_TONES, STATUS_WORDS } from '../words.ts';
import { Waiting } from './waiting.tsx';

const TAGS = 2;
const SPEAKERS = { user: '', assistant: 'Assistant: ', operator: 'Operator: ', system: '' } as const;

/** What the assistant talks about with a visitor need not be read. */
const concernsPeople = ({ status, assigneeId }: InboxRow): boolean => status === 'escalated' || assigneeId !== null;
const isUnread = (row: InboxRow): boolean =>
  concernsPeople(row) && (row.seq > (row.readSeq ?? 0) || row.last?.pending === true);

const Assignee = ({ row: { assistantId, assigneeId } }: { row: InboxRow }) => {
  const agent = useAgent(assistantId, assigneeId);
  if (assigneeId === null) return null;
  const email = agent?.email ?? 'an operator';
  return (
    <span className="initials" title={`Assigned to ${email}`}>
      <span aria-hidden="true">{initialsOf(email)}</span>
      <VisuallyHidden>Assigned to {email}</VisuallyHidden>
    </span>
  );
};

const previewOf = ({ role, content }: NonNullable<InboxRow['last']>): string => {
  const reason = role === 'system' ? handoffReason(content) : null;
  return reason === null ? `${SPEAKERS[role]}${content}` : reasonWords(reason);
};

type Props = { row: InboxRow; to: string; isOpen: boolean; assistant: string | null; onFocus: (id: string) => void };

/** One line of the list. It is drawn again only when its conversation changes. */
export const Row = memo(({ row, to, isOpen, assistant, onFocus }: Props) => {
  const { conversationId, sessionId, status, tags, last, waitingSince, remindedAt, updatedAt } = row;
  const unread = isUnread(row);
  return (
    <Link
      className="inbox-row"
      to={to}
      aria-current={isOpen ? 'true' : undefined}
      data-unread={unread}
      data-conversation={conversationId}
      onFocus={() => onFocus(conversationId)}
    >
      <span className="inbox-row-head">
        {unread && <VisuallyHidden>Unread</VisuallyHidden>}
        <span className="inbox-row-name clip">{sessionId}</span>
        <span className="dim nowrap">
          <When at={last?.createdAt ?? updatedAt} />
        </span>
      </span>
      <span className="inbox-row-text clip">{last === null ? 'No messages yet' : previewOf(last)}</span>
      <span className="inbox-row-foot">
        <Status tone={remindedAt === null ? STATUS_TONES[status] : 'bad'}>
          {remindedAt !== null && 'not taken, '}
          {waitingSince === null ? STATUS_WORDS[status] : <Waiting since={waitingSince} />}
        </Status>
        {tags.slice(0, TAGS).map((one) => (
          <TagChip key={one.tag} {...one} />
        ))}
        {tags.length > TAGS && <span className="dim">+{tags.length - TAGS}</span>}
        <span className="grow" />
        {assistant !== null && <span className="dim clip">{assistant}</span>}
        <Assignee row={row} />
      </span>
    </Link>
  );
});
