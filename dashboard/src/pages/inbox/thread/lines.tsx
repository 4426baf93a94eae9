const days = new Intl.DateTimeFormat('en-GB', { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' });
const HANDOFF = 'Handed off to a human: ';

export const dayOf = (at: string): string => days.format(new Date(at));

const nameOf = (day: string): string => {
  const now = Date.now();
  if (day === days.format(now)) return 'Today';
  if (day === days.format(now - 86_400_000)) return 'Yesterday';
  return day;
};

export const DayBreak = ({ day }: { day: string }) => (
  <div className="thread-line" role="separator" aria-label={nameOf(day)}>
    <span>{nameOf(day)}</span>
  </div>
);

export const NewMessages = () => (
  <div className="thread-line thread-line-new" role="separator" aria-label="New messages">
    <span>New messages</span>
  </div>
);

/** The reason of a handoff message; null for another message of the system. */
export const handoffReason = (content: string): string | null =>
  content.startsWith(HANDOFF) ? content.slice(HANDOFF.length) : null;
