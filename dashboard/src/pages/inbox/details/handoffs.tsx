import { When } from '../../../parts/when.tsx';
import { handoffReason } from '../thread/lines.tsx';
import type { Message } from '../thread/thread.ts';
import { reasonWords } from '../words.ts';
import { Part } from './section.tsx';

/** The handoffs and hand-backs among the loaded messages, the latest first. */
export const Handoffs = ({ messages }: { messages: readonly Message[] }) => {
  const lines = messages.filter(({ role }) => role === 'system').toReversed();
  if (lines.length === 0) return null;
  return (
    <Part title="Handoffs">
      <ul className="details-list">
        {lines.map(({ messageId, content, createdAt }) => {
          const reason = handoffReason(content);
          return (
            <li key={messageId}>
              <span className="break">{reason === null ? content : `To a person: ${reasonWords(reason)}`}</span>
              <span className="dim nowrap">
                <When at={createdAt} />
              </span>
            </li>
          );
        })}
      </ul>
    </Part>
  );
};
