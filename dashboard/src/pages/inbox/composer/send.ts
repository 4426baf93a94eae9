import { type QueryClient, useMutation, useMutationState } from '@tanstack/react-query';
import { at, call } from '../../../api.ts';
import { isProblem } from '../../../problem.ts';
import { refreshThread } from '../thread/thread.ts';
import { type Draft, readDraft, writeDraft } from './drafts.ts';

export type Outgoing = Pick<Draft, 'mode' | 'text' | 'sinceSeq'> & { at: string };
type Sent = { messageId?: string };

const sendKey = (conversationId: string) => ['send', conversationId];

/** Messages that this page sent, so that they are not taken for those of another operator. */
const mine = new Set<string>();
export const isMine = (messageId: string): boolean => mine.has(messageId);

const problemWords = (problem: unknown, mode: Draft['mode']): string => {
  const what = mode === 'note' ? 'The note' : 'The reply';
  if (isProblem(problem, 0) || (isProblem(problem) && problem.status >= 500))
    return `${what} may not have been sent: ${problem.message} Look at the conversation before you send it again.`;
  return `${what} was not sent: ${problem instanceof Error ? problem.message : 'Something went wrong.'}`;
};

/** Returns a text that was not sent to its field, above what has been written since. */
const giveBack = (conversationId: string, { mode, text, sinceSeq }: Outgoing, problem: unknown): void => {
  const now = readDraft(conversationId);
  const both = now.text === '' ? text : `${text}\n\n${now.text}`;
  writeDraft(conversationId, { mode, text: both, sinceSeq, problem: problemWords(problem, mode) });
};

/** Sends a reply or a note. The page shows it at once, and gives the text back if it was not sent. */
export const useSend = (client: QueryClient, conversationId: string) =>
  useMutation({
    mutationKey: sendKey(conversationId),
    scope: { id: `send-${conversationId}` },
    networkMode: 'always',
    mutationFn: ({ mode, text }: Outgoing) =>
      call<Sent>('POST', `${at`/conversations/${conversationId}`}/${mode === 'note' ? 'notes' : 'replies'}`, {
        body: { content: text },
      }),
    // The mutation stays pending until the conversation has been read, so that the message does not vanish between.
    onSuccess: ({ messageId }) => {
      if (messageId !== undefined) mine.add(messageId);
      return refreshThread(client, conversationId);
    },
    onError: (problem, outgoing) => {
      giveBack(conversationId, outgoing, problem);
      void refreshThread(client, conversationId);
    },
  });

/** What is being sent now, oldest first. */
export const useOutgoing = (conversationId: string): Outgoing[] =>
  useMutationState({
    filters: { mutationKey: sendKey(conversationId), status: 'pending' },
    select: ({ state }) => state.variables as Outgoing,
  });
