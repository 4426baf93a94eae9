import { Button, Loader } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { memo, useMemo, useRef, useState } from 'react';
import { Icon } from '../../../parts/icon.tsx';
import { tellProblem } from '../../../query.ts';
import { useOutgoing } from '../composer/send.ts';
import { useEvents } from './delivered.ts';
import { type Item, itemsOf } from './items.ts';
import { DayBreak, NewMessages } from './lines.tsx';
import { Bubble, MessageView } from './message.tsx';
import { NoteView } from './note.tsx';
import { useHeldScroll } from './scroll.ts';
import { loadOlder, type Thread } from './thread.ts';

type Events = ReturnType<typeof useEvents>;

const ItemView = ({ item, facts, events }: { item: Item; facts: Thread['facts']; events: Events }) => {
  if (item.kind === 'day') return <DayBreak day={item.day} />;
  if (item.kind === 'new') return <NewMessages />;
  if (item.kind === 'note') return <NoteView note={item.note} assistantId={facts.assistantId} />;
  if (item.kind === 'outgoing') {
    const { mode, text, at } = item.outgoing;
    return (
      <Bubble
        kind={mode === 'note' ? 'note' : 'operator'}
        who={mode === 'note' ? 'Internal note' : 'You'}
        at={at}
        content={text}
        beside={<span className="dim">Sending…</span>}
      />
    );
  }
  const { message } = item;
  return (
    <MessageView
      message={message}
      assistantId={facts.assistantId}
      language={facts.language}
      events={message.seq === null || message.role === 'assistant' ? undefined : events.bySeq.get(message.seq)}
    />
  );
};

/** The messages of a conversation, with older ones loaded while scrolling up. */
export const ThreadView = memo(({ thread, newAfter }: { thread: Thread; newAfter: number | null }) => {
  const { facts, messages, from } = thread;
  const client = useQueryClient();
  const outgoing = useOutgoing(facts.conversationId);
  const events = useEvents(facts.conversationId);
  const items = useMemo(
    () => itemsOf({ messages, notes: facts.notes, outgoing, isWhole: from === 0, newAfter }),
    [messages, facts.notes, outgoing, from, newAfter],
  );
  const content = items.filter(({ kind }) => kind !== 'day' && kind !== 'new');
  const scroll = useHeldScroll(content[0]?.key, content.at(-1)?.key);
  const busy = useRef(false);
  const [loading, setLoading] = useState(false);

  const older = async (): Promise<void> => {
    if (busy.current || from === 0) return;
    busy.current = true;
    setLoading(true);
    await loadOlder(client, facts.conversationId).catch(tellProblem);
    busy.current = false;
    setLoading(false);
  };

  return (
    <div className="thread-frame">
      <div
        ref={scroll.box}
        className="thread"
        role="log"
        aria-label="Messages"
        tabIndex={0}
        onScroll={() => {
          if (scroll.onScroll().nearStart) void older();
        }}
      >
        <div ref={scroll.content} className="thread-content">
          {from > 0 && (
            <div className="thread-older">
              {loading ? (
                <Loader type="dots" size="sm" aria-label="Loading older messages" />
              ) : (
                <Button variant="subtle" size="compact-sm" onClick={() => void older()}>
                  Show older messages
                </Button>
              )}
            </div>
          )}
          {items.map((item) => (
            <ItemView key={item.key} item={item} facts={facts} events={events} />
          ))}
        </div>
      </div>
      {scroll.hasNew && (
        <Button
          className="thread-new"
          size="compact-sm"
          radius="xl"
          leftSection={<Icon name="down" size={15} />}
          onClick={scroll.toEnd}
        >
          New messages
        </Button>
      )}
    </div>
  );
});
