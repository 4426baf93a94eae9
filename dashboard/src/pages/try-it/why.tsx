import { at } from '../../api.ts';
import { Shown } from '../../parts/states.tsx';
import { WhyFacts } from '../../parts/why/facts.tsx';
import { WhyToggle } from '../../parts/why/toggle.tsx';
import { useRead } from '../../query.ts';
import type { Conversation, Reply } from '../../types.ts';

const Reasons = ({ id, reply: { conversationId, messageId } }: { id: string; reply: Reply }) => {
  const read = useRead<Conversation>(at`/conversations/${conversationId}`);
  return (
    <Shown read={read} rows={2}>
      {({ messages }) => {
        const { why, sources } = messages.find((message) => message.messageId === messageId) ?? {};
        return why ? (
          <WhyFacts assistantId={id} why={why} sources={sources} />
        ) : (
          <span className="dim">No details are stored for this reply.</span>
        );
      }}
    </Shown>
  );
};

/** The reasons for a reply, for operators. They are loaded when the section is opened. */
export const Why = ({ id, reply }: { id: string; reply: Reply }) => (
  <WhyToggle>{() => <Reasons id={id} reply={reply} />}</WhyToggle>
);
