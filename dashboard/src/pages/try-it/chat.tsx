import { Button, Group, Loader, Switch, Textarea } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { Fragment, type KeyboardEvent, useEffect, useRef, useState } from 'react';
import { Link } from 'wouter';
import { at } from '../../api.ts';
import { onSubmit } from '../../parts/form.tsx';
import { Icon } from '../../parts/icon.tsx';
import { learnLink } from '../../parts/learn-link.ts';
import { Notice } from '../../parts/notice.tsx';
import { Page } from '../../parts/page.tsx';
import { Empty } from '../../parts/states.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Conversation, Reply } from '../../types.ts';
import { AsCaller } from './as-caller.tsx';
import { streamTurn } from './stream-turn.ts';
import { Why } from './why.tsx';

type Line = { by: 'me'; text: string } | { by: 'assistant'; message: string; reply: Reply };

type Action = NonNullable<Reply['suggestedActions']>[number];

const actionWords = ({ type, payload }: Pick<Action, 'type' | 'payload'>): string => {
  if (type === 'link') return `opens ${payload}`;
  if (type === 'phone') return `calls ${payload}`;
  if (type === 'email') return `writes to ${payload}`;
  const reason = payload === 'user_requested' ? '' : `: ${payload.replaceAll('_', ' ')}`;
  return `asks for a person${reason}`;
};

const newSession = (): string =>
  `try-${[...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;

/** Only links to other sites are opened: one within the visitors' website does not work here. */
const Chip = ({ label, type, payload }: Action) => {
  const content = (
    <>
      {label}
      <span className="dim break">{actionWords({ type, payload })}</span>
    </>
  );
  return type === 'link' && /^https?:\/\//i.test(payload) ? (
    <a className="chip" href={payload} target="_blank" rel="noopener noreferrer">
      {content}
    </a>
  ) : (
    <span className="chip chip-idle">{content}</span>
  );
};

type SaidProps = { message: string; reply: Reply; id: string; isHandover: boolean; onSay: (text: string) => void };

const Said = ({ message, reply, id, isHandover, onSay }: SaidProps) => (
  <div className="said said-assistant">
    <p className="keep break">{reply.reply}</p>
    {reply.suggestedActions && (
      <div className="said-actions">
        {reply.suggestedActions.map(({ label, type, payload }) =>
          type === 'reply' ? (
            <Button key={`${type} ${label}`} variant="default" size="compact-sm" onClick={() => onSay(payload)}>
              {label}
            </Button>
          ) : (
            <Chip key={`${type} ${label}`} type={type} label={label} payload={payload} />
          ),
        )}
      </div>
    )}
    <Group gap="xs">
      <Why id={id} reply={reply} />
      {!isHandover && (
        <Button
          component={Link}
          to={learnLink(id, { question: message })}
          variant="subtle"
          color="gray"
          size="compact-xs"
          className="why"
        >
          Write a better answer
        </Button>
      )}
    </Group>
  </div>
);

/** Says why the assistant is silent once it has handed the conversation to a person. */
const HandedOver = ({ onRestart }: { onRestart: () => void }) => (
  <Notice
    tone="warn"
    icon="hand"
    title="A person answers now"
    actions={
      <Button variant="default" size="xs" onClick={onRestart}>
        Start over
      </Button>
    }
  >
    A visitor would wait for an operator, and the assistant stays silent. Nobody answers here.
  </Notice>
);

const Composer = ({ busy, onSay }: { busy: boolean; onSay: (text: string) => void }) => {
  const [text, setText] = useState('');
  const say = (): void => {
    if (text.trim() === '' || busy) return;
    onSay(text);
    setText('');
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    say();
  };
  return (
    <form className="composer" onSubmit={onSubmit(say)}>
      <Textarea
        aria-label="Message"
        placeholder="Ask what a visitor would ask"
        autosize
        minRows={1}
        maxRows={6}
        maxLength={8000}
        className="grow"
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
        autoFocus
      />
      <Button type="submit" disabled={text.trim() === ''} loading={busy}>
        Send
      </Button>
    </form>
  );
};

/** The playground: its conversations cause no events, and no visitor sees them. */
const TryIt = ({ id }: { id: string }) => {
  const [session, setSession] = useState(newSession);
  const [lines, setLines] = useState<Line[]>([]);
  const end = useRef<HTMLDivElement>(null);
  const [asCaller, setAsCaller] = useState(false);
  const [spoken, setSpoken] = useState('');
  const client = useQueryClient();
  const turn = useChange({
    run: (message: string) => streamTurn({ assistantId: id, sessionId: session, message }, setSpoken),
    after: (reply, message) => {
      setLines((now) => [...now, { by: 'assistant', message, reply }]);
      void client.invalidateQueries({ queryKey: [at`/conversations/${reply.conversationId}`] });
    },
  });
  const say = (text: string): void => {
    setLines((now) => [...now, { by: 'me', text }]);
    setSpoken('');
    turn.mutate(text);
  };
  useEffect(() => {
    end.current?.scrollIntoView({ block: 'end' }); // newer browsers return a promise, which React must not get
  }, [lines, turn.isPending, spoken, asCaller]);
  const restart = (): void => {
    setSession(newSession());
    setLines([]);
    turn.reset();
  };
  const last = lines.findLast((line) => line.by === 'assistant');
  const conversation = useRead<Conversation>(at`/conversations/${last?.reply.conversationId ?? ''}`, {
    enabled: last !== undefined,
  });
  const isHandedOver = conversation.data?.status === 'escalated';
  return (
    <Page
      title="Try it"
      description="Talk to the assistant as a visitor would. No events are sent, and visitors do not see this conversation."
      actions={
        lines.length > 0 && (
          <Button variant="default" leftSection={<Icon name="refresh" size={16} />} onClick={restart}>
            Start over
          </Button>
        )
      }
    >
      <Switch
        label="As the caller sees it"
        description="Shows each turn as a request to the chat API, and its response."
        checked={asCaller}
        onChange={(event) => setAsCaller(event.currentTarget.checked)}
      />
      <div className="card chat">
        <div className="chat-lines" role="log" aria-label="Conversation" tabIndex={0}>
          {lines.length === 0 && (
            <Empty icon="chat" title="Ask it something">
              Each reply shows the entries found, their confidence, and how long it took.
            </Empty>
          )}
          {lines.map((line, index) =>
            line.by === 'me' ? (
              <div key={index} className="said said-me keep break">
                {line.text}
              </div>
            ) : (
              <Fragment key={index}>
                <Said
                  message={line.message}
                  reply={line.reply}
                  id={id}
                  isHandover={isHandedOver && line === last}
                  onSay={say}
                />
                {asCaller && <AsCaller sessionId={session} message={line.message} reply={line.reply} />}
              </Fragment>
            ),
          )}
          {turn.isPending && spoken !== '' && (
            <div className="said said-assistant">
              <p className="keep break">{spoken}</p>
            </div>
          )}
          {turn.isPending && <Loader type="dots" size="sm" aria-label="Waiting for the reply" />}
          {isHandedOver && <HandedOver onRestart={restart} />}
          <div ref={end} />
        </div>
        <Composer busy={turn.isPending} onSay={say} />
      </div>
    </Page>
  );
};

export default TryIt;
