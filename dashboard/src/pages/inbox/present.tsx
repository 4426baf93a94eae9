import { usePresent } from '../../live/live.tsx';

/** The other operators who have the conversation open. */
export const PresentOperators = ({ conversationId }: { conversationId: string }) => {
  const emails = [...new Set(usePresent(conversationId).map(({ email }) => email))];
  return emails.length === 0 ? null : <span className="dim clip">Also here: {emails.join(', ')}</span>;
};
