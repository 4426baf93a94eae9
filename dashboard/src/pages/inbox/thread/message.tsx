import { Loader } from '@mantine/core';
import { memo, type ReactNode } from 'react';
import { Icon, type IconName } from '../../../parts/icon.tsx';
import { dateAndTime } from '../../../parts/when.tsx';
import { WhyFacts } from '../../../parts/why/facts.tsx';
import { WhyToggle } from '../../../parts/why/toggle.tsx';
import { isMine } from '../composer/send.ts';
import { languageWords, reasonWords } from '../words.ts';
import { MessageEvents, type MessageEvent } from './events.tsx';
import { handoffReason } from './lines.tsx';
import type { Message } from './thread.ts';

const minutes = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });

const Time = ({ at }: { at: string }) => (
  <time dateTime={at} title={dateAndTime(at)} className="dim nowrap">
    {minutes.format(new Date(at))}
  </time>
);

type Kind = 'user' | 'assistant' | 'operator' | 'note';
const ICONS: Record<Kind, IconName> = { user: 'user', assistant: 'bot', operator: 'people', note: 'note' };

type BubbleProps = { kind: Kind; who: string; at: string; content: string; beside?: ReactNode; children?: ReactNode };

/** A text in the conversation, with the name of its writer. */
export const Bubble = ({ kind, who, at, content, beside, children }: BubbleProps) => (
  <article className="bubble" data-kind={kind} aria-label={`${who}, ${minutes.format(new Date(at))}`}>
    <div className="bubble-head">
      <Icon name={ICONS[kind]} size={15} />
      <span className="bubble-who">{who}</span>
      <Time at={at} />
      {beside}
    </div>
    <p className="keep break">{content}</p>
    {children}
  </article>
);

const SystemLine = ({ content, at, children }: { content: string; at: string; children: ReactNode }) => {
  const reason = handoffReason(content);
  const words = reason === null ? content : `Handed off to a person: ${reasonWords(reason)}`;
  return (
    <div className="system-line">
      <Icon name={reason === null ? 'bot' : 'hand'} size={15} />
      <span className="break">{words}</span>
      <Time at={at} />
      {children}
    </div>
  );
};

const Offered = ({ actions }: { actions: NonNullable<Message['suggestedActions']> }) => (
  <ul className="offered" aria-label="Suggested actions">
    {actions.map(({ label, type, payload }) => (
      <li key={`${type} ${label}`} className="chip" title={type === 'reply' ? undefined : payload}>
        {label}
      </li>
    ))}
  </ul>
);

type Props = { message: Message; assistantId: string; language: string; events: readonly MessageEvent[] | undefined };

/** A message of the conversation. Final messages never change, so each is drawn once. */
export const MessageView = memo(({ message, assistantId, language, events }: Props) => {
  const { messageId, role, content, createdAt, seq, suggestedActions, sources, why } = message;
  const caused = events && <MessageEvents events={events} assistantId={assistantId} />;
  if (role === 'system')
    return (
      <SystemLine content={content} at={createdAt}>
        {caused}
      </SystemLine>
    );
  const who = { user: 'Visitor', assistant: 'Assistant', operator: isMine(messageId) ? 'You' : 'Operator' }[role];
  return (
    <Bubble
      kind={role}
      who={who}
      at={createdAt}
      content={content}
      beside={
        role === 'user' &&
        message.language !== null &&
        message.language !== language && <span className="dim">{languageWords(message.language)}</span>
      }
    >
      {suggestedActions && <Offered actions={suggestedActions} />}
      {seq === null && (
        <div className="bubble-wait dim">
          <Loader type="dots" size="xs" aria-hidden="true" /> Waiting for the assistant
        </div>
      )}
      {why && <WhyToggle>{() => <WhyFacts assistantId={assistantId} why={why} sources={sources} />}</WhyToggle>}
      {caused}
    </Bubble>
  );
});
