import { at } from '../../api.ts';
import { Live, useLive } from '../../parts/live.tsx';
import { Section } from '../../parts/page.tsx';
import { Empty } from '../../parts/states.tsx';
import { Status, type Tone } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { ChannelCalls } from '../../types.ts';

type Call = ChannelCalls['calls'][number];

const toneOf = (status: number): Tone => {
  if (status < 300) return 'good';
  return status === 429 || status === 499 ? 'warn' : 'bad';
};

const Row = ({ one }: { one: Call }) => (
  <li className="row call">
    <Status tone={toneOf(one.status)}>
      <span className="mono">{one.status}</span>
    </Status>
    <span className="clip mono">{one.sessionId ?? <span className="dim">{one.error?.replaceAll('_', ' ')}</span>}</span>
    <span className="dim num nowrap">{one.ms} ms</span>
    <span className="dim nowrap call-at">
      <When at={one.at} />
    </span>
  </li>
);

export const LastCalls = ({ id }: { id: string }) => {
  const live = useLive();
  const read = useRead<ChannelCalls>(at`/assistants/${id}/channel/calls`, { every: live.every });
  if (!read.data) return null;
  const { calls } = read.data;
  return (
    <Section title="Last calls" flush actions={<Live live={live} failed={read.isError} />}>
      {calls.length === 0 ? (
        <Empty icon="plug" title="No calls yet">
          The last 20 calls are listed here for 7 days, including refused ones.
        </Empty>
      ) : (
        <ul className="rows" aria-label="Last calls">
          {calls.map((one, index) => (
            <Row key={`${one.at} ${index}`} one={one} />
          ))}
        </ul>
      )}
    </Section>
  );
};
