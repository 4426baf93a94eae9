import { SegmentedControl } from '@mantine/core';
import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { at, withQuery } from '../../api.ts';
import { useAssistant } from '../../assistant.ts';
import { useAddress } from '../../parts/address.ts';
import { Page, Section } from '../../parts/page.tsx';
import { Shown } from '../../parts/states.tsx';
import { useRead } from '../../query.ts';
import type { Me, Overview as Figures } from '../../types.ts';
import { RecentDeliveries } from '../deliveries/recent.tsx';
import { FigureCharts } from './charts.tsx';
import { FigureTiles } from './figures.tsx';
import { FirstSteps } from './first-steps.tsx';
import { Share, type SharePart } from './share.tsx';
import { Unhealthy } from './unhealthy.tsx';

const REFRESH_MS = 10_000;
const TIME_ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone;
const DAYS = [
  { value: '1', label: 'Today' },
  { value: '7', label: '7 days' },
  { value: '30', label: '30 days' },
];

const sumOf = (counts: Record<string, number>): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

const Tile = ({ label, value, to, note }: { label: string; value: ReactNode; to: string; note?: ReactNode }) => (
  <Link className="tile" to={to}>
    <span className="tile-label">{label}</span>
    <span className="tile-value num">{value}</span>
    <span className="dim">{note}</span>
  </Link>
);

const deliveryParts = (id: string, counts: Figures['deliveries']): SharePart[] => {
  const to = (outcome: string) => withQuery(`/assistants/${id}/deliveries`, { outcome, span: '24h' });
  return [
    { name: 'Delivered', count: counts.delivered ?? 0, tone: 'good', to: to('delivered') },
    { name: 'Rejected', count: counts.rejected ?? 0, tone: 'bad', to: to('rejected') },
    { name: 'Not sent', count: counts.not_sent ?? 0, tone: 'dark', to: to('not_sent') },
    { name: 'Unknown', count: counts.unknown ?? 0, tone: 'warn', to: to('unknown') },
    {
      name: 'Pending',
      count: (counts.queued ?? 0) + (counts.sending ?? 0),
      tone: 'calm',
      to: to('queued'),
    },
  ];
};

const waitingIn = (jobs: Record<string, number>): number => sumOf({ ...jobs, failed: 0 });

const endpointWords = ({ enabled, paused, failing }: Figures['endpoints']): string => {
  const ill = [paused > 0 && `${paused} paused`, failing > 0 && `${failing} failing`].filter(Boolean);
  if (ill.length > 0) return ill.join(', ');
  return enabled === 1 ? 'on' : `${enabled} on`;
};

const Board = ({ id, figures }: { id: string; figures: Figures }) => {
  const { deliveries, endpoints, knowledgeEntries, apiKeys, queues } = figures;
  const base = `/assistants/${id}`;
  return (
    <>
      <Unhealthy id={id} unhealthy={figures.unhealthy} />
      <FirstSteps id={id} figures={figures} />
      <FigureTiles id={id} totals={figures.figures.totals} />
      <FigureCharts figures={figures.figures}>
        <Section title="Deliveries now" description="In the last 24 hours, with pending ones">
          <Share parts={deliveryParts(id, deliveries)} label="Deliveries of the last 24 hours" />
        </Section>
      </FigureCharts>
      <div className="tiles">
        <Tile
          label="Knowledge"
          value={knowledgeEntries}
          note={knowledgeEntries === 1 ? 'entry' : 'entries'}
          to={`${base}/knowledge`}
        />
        <Tile label="API keys" value={apiKeys} note="in use" to={`${base}/keys`} />
        <Tile label="Endpoints" value={endpoints.all} note={endpointWords(endpoints)} to={`${base}/webhooks`} />
        <a className="tile" href="/operator/queues">
          <span className="tile-label">Queues</span>
          <span className="tile-value num">{waitingIn(queues.turns) + waitingIn(queues.deliveries)}</span>
          <span className="dim">jobs waiting or running, all assistants</span>
        </a>
      </div>
      <RecentDeliveries id={id} />
    </>
  );
};

const Overview = ({ id, me }: { id: string; me: Me }) => {
  const assistant = useAssistant(me);
  const { of, set } = useAddress(['days']);
  const days = DAYS.find(({ value }) => value === of('days'))?.value ?? '7';
  const path = withQuery(at`/assistants/${id}/overview`, { days, timeZone: TIME_ZONE });
  const read = useRead<Figures>(path, { every: REFRESH_MS, keep: true });
  return (
    <Page
      title={assistant?.name ?? 'Overview'}
      actions={
        <SegmentedControl
          aria-label="Time of the figures"
          size="xs"
          data={DAYS}
          value={days}
          onChange={(value) => set('days', value)}
        />
      }
    >
      <Shown read={read}>{(figures) => <Board id={id} figures={figures} />}</Shown>
    </Page>
  );
};

export default Overview;
