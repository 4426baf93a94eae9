import { Button } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { memo, type RefObject, useCallback, useEffect, useMemo } from 'react';
import { isProblem } from '../../problem.ts';
import { Empty, Failure, Loading } from '../../parts/states.tsx';
import type { Me } from '../../types.ts';
import { type Act, useAct } from './actions/change.ts';
import { actionsOn } from './actions/actions.ts';
import { Composer } from './composer/composer.tsx';
import { isMine } from './composer/send.ts';
import { ConversationHead, type Panel } from './conversation-head.tsx';
import { ConversationDetails } from './details/details.tsx';
import { forgetConversation } from './erased.ts';
import { OpenConversation } from './open-conversation.ts';
import { useNewAfter, useReadPosition } from './reading.ts';
import { type Thread, useThread } from './thread/thread.ts';
import { ThreadView } from './thread/view.tsx';

/** What the shortcuts can do with the open conversation. */
export type Commands = { resolve: () => void; assignToMe: () => void };

const answeredSeqOf = ({ messages }: Thread): number =>
  messages.findLast(({ role, messageId }) => role === 'operator' && !isMine(messageId))?.seq ?? 0;

const NotThere = ({ erased, onBack }: { erased: boolean; onBack: () => void }) => (
  <section className="pane pane-reading" aria-label="Conversation">
    <Empty
      icon="search"
      title={erased ? 'This conversation was erased' : 'This conversation is not there'}
      action={
        <Button variant="default" size="xs" onClick={onBack}>
          Back to the list
        </Button>
      }
    >
      {erased
        ? 'Its messages and your draft are deleted.'
        : 'It may have been erased, or it belongs to an assistant that is not yours.'}
    </Empty>
  </section>
);

type Props = {
  id: string;
  me: Me;
  panel: Panel;
  onPanel: (panel: Panel) => void;
  field: RefObject<HTMLTextAreaElement | null>;
  commands: RefObject<Commands | null>;
  onBack: () => void;
  onDetails: (shown: boolean) => void;
};

/** One conversation: its messages, actions and details. Memoised, because the list beside it changes often. */
export const ConversationPane = memo(({ id, me, panel, onPanel, field, commands, onBack, onDetails }: Props) => {
  const client = useQueryClient();
  const read = useThread(client, id);
  const thread = read.data;
  const change = useAct(id);
  const actions = useMemo(() => actionsOn(id), [id]);
  const { mutate } = change;
  const act = useCallback((one: Act) => mutate(one), [mutate]);
  const newAfter = useNewAfter(thread);
  useReadPosition(thread);

  const isGone = isProblem(read.error, 404);
  useEffect(() => {
    if (isGone) forgetConversation(client, id);
  }, [client, id, isGone]);

  useEffect(() => {
    commands.current = {
      resolve: () => act(actions.resolve(me.operatorId)),
      assignToMe: () => act(actions.assign(me.operatorId)),
    };
    return () => {
      commands.current = null;
    };
  }, [commands, act, actions, me.operatorId]);

  const facts = thread?.facts;
  const opened = useMemo(() => (facts ? { facts, me, actions, act } : null), [facts, me, actions, act]);

  if (isGone) return <NotThere erased={thread !== undefined} onBack={onBack} />;
  if (thread === undefined || opened === null)
    return (
      <section className="pane pane-reading" aria-label="Conversation">
        {read.error ? (
          <Failure problem={read.error} retry={() => void read.refetch()} />
        ) : (
          <Loading rows={5} height={64} />
        )}
      </section>
    );
  return (
    <OpenConversation value={opened}>
      <section className="pane pane-reading" aria-label="Conversation">
        <ConversationHead panel={panel} onPanel={onPanel} onBack={onBack} onDetails={() => onDetails(true)} />
        <ThreadView thread={thread} newAfter={newAfter} />
        <Composer field={field} answeredSeq={answeredSeqOf(thread)} />
      </section>
      <aside className="pane pane-details" aria-label="Details">
        <ConversationDetails messages={thread.messages} onBack={() => onDetails(false)} onErased={onBack} />
      </aside>
    </OpenConversation>
  );
});
