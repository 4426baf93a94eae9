import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { withQuery } from '../../api.ts';
import type { Overview } from '../../types.ts';
import { Chart, type Series } from './chart.tsx';

type Figures = Overview['figures'];
type Slot = Figures['totals'];

const shareOf = (part: number, whole: number): string => (whole === 0 ? '–' : `${Math.round((part / whole) * 100)} %`);

const timeOf = (ms: number): string => (ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`);

const sum = (counts: Record<string, number>): number => Object.values(counts).reduce((all, count) => all + count, 0);

const REASONS: Record<string, string> = {
  user_requested: 'asked for',
  low_confidence: 'not sure',
  engine_error: 'engine failed',
  manual: 'by hand',
  other: 'other reasons',
};

const reasonsOf = (escalated: Slot['escalated']): string =>
  Object.entries(escalated)
    .filter(([, count]) => count > 0)
    .toSorted(([, a], [, b]) => b - a)
    .map(([reason, count]) => `${count} ${REASONS[reason] ?? reason}`)
    .join(', ');

type TileProps = { label: string; value: ReactNode; note?: ReactNode; to?: string };

const Tile = ({ label, value, note, to }: TileProps) => {
  const content = (
    <>
      <span className="tile-label">{label}</span>
      <span className="tile-value num">{value}</span>
      <span className="dim">{note}</span>
    </>
  );
  return to === undefined ? (
    <div className="tile tile-still">{content}</div>
  ) : (
    <Link className="tile" to={to}>
      {content}
    </Link>
  );
};

const TURNS: Series[] = [
  { name: 'answered', label: 'Answered', color: 'var(--good)' },
  { name: 'offered', label: 'Offered', color: 'var(--mantine-color-anchor)' },
  { name: 'notAnswered', label: 'Not answered', color: 'var(--warn)' },
  { name: 'rest', label: 'Other', color: 'var(--calm)' },
];
const PEOPLE: Series[] = [
  { name: 'escalated', label: 'Escalated', color: 'var(--warn)' },
  { name: 'resolved', label: 'Resolved', color: 'var(--good)' },
  { name: 'taught', label: 'Taught', color: 'var(--mantine-color-anchor)' },
];
const DELIVERIES: Series[] = [
  { name: 'delivered', label: 'Delivered', color: 'var(--good)' },
  { name: 'failed', label: 'Failed', color: 'var(--bad)' },
];
const TIMES: Series[] = [
  { name: 'p50', label: 'Half within', color: 'var(--mantine-color-anchor)' },
  { name: 'p95', label: '95 % within', color: 'var(--calm)' },
];
const HOURS: Series[] = [{ name: 'turns', label: 'Messages', color: 'var(--mantine-color-anchor)' }];

const rowOf = ({ at, ...slot }: Figures['slots'][number]) => ({
  at: at.length === 10 ? at.slice(5) : at,
  answered: slot.answered,
  offered: slot.offered,
  notAnswered: slot.notAnswered,
  rest: slot.other + slot.held,
  escalated: sum(slot.escalated),
  resolved: slot.resolved,
  taught: slot.taught,
  delivered: slot.deliveries.delivered,
  failed: slot.deliveries.rejected + slot.deliveries.not_sent + slot.deliveries.unknown,
  p50: slot.replyMs?.p50 ?? 0,
  p95: slot.replyMs?.p95 ?? 0,
});

export const FigureTiles = ({ id, totals }: { id: string; totals: Slot }) => {
  const base = `/assistants/${id}`;
  const inbox = (view: string) => withQuery('/inbox', { view, assistant: id });
  const replies = totals.answered + totals.offered + totals.notAnswered;
  return (
    <div className="tiles">
      <Tile label="Messages" value={totals.turns} note="of visitors" to={inbox('all')} />
      <Tile label="Answered" value={totals.answered} note={`${shareOf(totals.answered, replies)} of questions`} />
      <Tile label="Offered" value={totals.offered} note="questions to choose from" />
      <Tile label="Not answered" value={totals.notAnswered} note="learn from them" to={`${base}/learn`} />
      <Tile
        label="With a person"
        value={sum(totals.escalated)}
        note={reasonsOf(totals.escalated) || 'escalated'}
        to={inbox('person')}
      />
      <Tile label="Resolved" value={totals.resolved} note={`${totals.handedBack} handed back`} to={inbox('resolved')} />
      <Tile
        label="Reply time"
        value={totals.replyMs ? timeOf(totals.replyMs.p50) : '–'}
        note={totals.replyMs ? `95 % within ${timeOf(totals.replyMs.p95)}` : 'half within'}
      />
    </div>
  );
};

export const FigureCharts = ({ figures }: { figures: Figures }) => {
  const rows = figures.slots.map(rowOf);
  const hours = figures.busiestHours.map((turns, hour) => ({ at: `${String(hour).padStart(2, '0')}:00`, turns }));
  return (
    <div className="two">
      <Chart title="Replies" description="How the assistant answered" rows={rows} series={TURNS} stacked />
      <Chart title="Conversations" description="Given to people, and ended" rows={rows} series={PEOPLE} />
      <Chart title="Deliveries" description="Events sent to your endpoints" rows={rows} series={DELIVERIES} stacked />
      <Chart
        title="Reply time"
        description="From the message to its stored reply"
        rows={rows}
        series={TIMES}
        unit="ms"
      />
      <Chart
        title="Busiest hours"
        description="Messages by hour of the day, in your time zone"
        rows={hours}
        series={HOURS}
      />
    </div>
  );
};
