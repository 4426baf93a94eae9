import type { ReactNode } from 'react';
import { dayAndMonth } from '../../parts/when.tsx';
import type { Overview } from '../../types.ts';
import { Chart } from './chart.tsx';
import { type Series, TURNS } from './numbers.tsx';

type Figures = Overview['figures'];

const sum = (counts: Record<string, number>): number => Object.values(counts).reduce((all, count) => all + count, 0);

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
  at: at.length === 10 ? dayAndMonth(at) : at,
  answered: slot.answered,
  hedged: slot.hedged,
  offered: slot.offered,
  notAnswered: slot.notAnswered,
  rest: slot.other + slot.held,
  escalated: sum(slot.escalated),
  resolved: slot.resolved,
  taught: slot.taught,
  delivered: slot.deliveries.delivered,
  failed: slot.deliveries.rejected + slot.deliveries.not_sent + slot.deliveries.unknown,
  p50: slot.replyMs?.p50 ?? null,
  p95: slot.replyMs?.p95 ?? null,
});

/** The charts, with `children` as the last card of their grid. */
export const FigureCharts = ({ figures, children }: { figures: Figures; children: ReactNode }) => {
  const rows = figures.slots.map(rowOf);
  const hours = figures.busiestHours.map((turns, hour) => ({ at: `${String(hour).padStart(2, '0')}:00`, turns }));
  return (
    <div className="two">
      <Chart title="Replies" description="How the assistant answered" rows={rows} series={TURNS} stacked />
      <Chart title="Conversations" description="Given to people, and ended" rows={rows} series={PEOPLE} />
      <Chart title="Deliveries" description="Events sent to your endpoints" rows={rows} series={DELIVERIES} stacked />
      <Chart title="Reply time" description="From the message to its stored reply, in ms" rows={rows} series={TIMES} />
      <Chart
        title="Busiest hours"
        description="Messages by hour of the day, in your time zone"
        rows={hours}
        series={HOURS}
      />
      {children}
    </div>
  );
};
