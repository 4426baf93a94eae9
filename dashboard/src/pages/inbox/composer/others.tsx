import { useAnnouncePresence, usePresent } from '../../../live/live.tsx';
import { Notice } from '../../../parts/notice.tsx';

type Props = { conversationId: string; isWriting: boolean };

/** Tells other operators what this one does in the conversation, and warns while another one writes. */
export const Others = ({ conversationId, isWriting }: Props) => {
  useAnnouncePresence(conversationId, isWriting ? 'writing' : 'reading');
  const writing = usePresent(conversationId).filter(({ state }) => state === 'writing');
  if (writing.length === 0) return null;
  const names = writing.map(({ email }) => email).join(', ');
  return <Notice tone="warn">{`${names} ${writing.length === 1 ? 'is' : 'are'} writing in this conversation.`}</Notice>;
};
