import { useAgent } from '../agents.ts';
import { Bubble } from './message.tsx';
import type { ConversationFacts } from './thread.ts';

type Note = ConversationFacts['notes'][number];

/** A note between the messages. Visitors never see it. */
export const NoteView = ({ note, assistantId }: { note: Note; assistantId: string }) => {
  const author = useAgent(assistantId, note.operatorId);
  return (
    <Bubble
      kind="note"
      who="Internal note"
      at={note.createdAt}
      content={note.content}
      beside={author && <span className="dim clip">{author.email}</span>}
    />
  );
};
