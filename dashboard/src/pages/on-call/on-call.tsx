import { Link } from 'wouter';
import { Live, useLive } from '../../parts/live.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { Status } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { Me, Queues, QueueState } from '../../types.ts';
import { AlertRow, nameOf } from '../alerts.tsx';
import { Chart } from '../overview/chart.tsx';
import { FindWork } from './find-work.tsx';

const NAMES: Record<QueueState['name'], { title: string; what: string; took: string }> = {
  turns: { title: 'Turns', what: 'answered', took: 'from message to reply' },
  deliveries: { title: 'Deliveries', what: 'sent', took: 'from event to sending' },
  knowledge: { title: 'Knowledge', what: 'wake-ups', took: 'waiting' },
  sources: { title: 'Sources', what: 'wake-ups', took: 'waiting' },
};

const rounded = (value: number): string => value.toLocaleString('en', { maximumFractionDigits: 1 });

const Workers = ({ workers }: Pick<QueueState, 'workers'>) => (
  <ul className="on-call-workers">
    {workers.map(({ worker, host, pid, heardAt, silent }) => (
      <li key={worker}>
        <Status tone={silent ? 'bad' : 'good'}>
          <span className="break">
            {silent ? 'Silent' : 'Works'}: {host}, process {pid}, heard <When at={heardAt} />
          </span>
        </Status>
      </li>
    ))}
    {workers.length === 0 && (
      <li>
        <Status tone="bad">No worker is heard</Status>
      </li>
    )}
  </ul>
);

const QueueRow = ({ queue }: { queue: QueueState }) => {
  const { name, jobs, waitingSince, workers, perMinute, p95 } = queue;
  const { title, what, took } = NAMES[name];
  return (
    <li className="row on-call-queue">
      <div className="row-main">
        <h3 className="row-title">{title}</h3>
        <Workers workers={workers} />
      </div>
      <dl className="on-call-facts">
        <div>
          <dt>Waiting</dt>
          <dd className="num">{jobs?.waiting ?? '?'}</dd>
        </div>
        <div>
          <dt>Oldest since</dt>
          <dd>{waitingSince === null ? '–' : <When at={waitingSince} />}</dd>
        </div>
        <div>
          <dt>In work</dt>
          <dd className="num">{jobs?.active ?? '?'}</dd>
        </div>
        <div>
          <dt>A minute</dt>
          <dd className="num">
            {perMinute === null ? '?' : rounded(perMinute)} <span className="dim">{what}</span>
          </dd>
        </div>
        <div>
          <dt>95 % within</dt>
          <dd className="num">
            {p95 === null ? '–' : `${p95} s`} {p95 !== null && <span className="dim">{took}</span>}
          </dd>
        </div>
      </dl>
    </li>
  );
};

const MINUTE_MS = 60_000;
const HOUR = 60;
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });

/** What takes longer is not told apart. */
const LONGEST_S = 300;

/** The last hour minute by minute: how much, and how fast. A minute that nobody has told of has no bar. */
const History = ({ queue, now }: { queue: QueueState; now: string }) => {
  const { title, what, took } = NAMES[queue.name];
  const last = Math.floor(new Date(now).getTime() / MINUTE_MS) * MINUTE_MS - MINUTE_MS;
  const known = new Map(queue.minutes.map((one) => [new Date(one.at).getTime(), one]));
  const rows = Array.from({ length: HOUR }, (_, nth) => {
    const at = last - (HOUR - 1 - nth) * MINUTE_MS;
    const { ended = 0, p95 = 0 } = known.get(at) ?? {};
    return { at: clock.format(at), ended, p95: p95 ?? LONGEST_S };
  });
  return (
    <>
      <Chart
        title={`${title} of the last hour`}
        description="How many in each minute"
        rows={rows}
        series={[{ name: 'ended', label: what, color: 'var(--mantine-color-blue-6)' }]}
      />
      <Chart
        title={`How long ${title.toLowerCase()} took`}
        description={`95 % within so many seconds, ${took}`}
        rows={rows}
        series={[{ name: 'p95', label: '95 % within', color: 'var(--calm)' }]}
      />
    </>
  );
};

/** What somebody who was woken needs: what waits, how old it is, how fast it moves, what is wrong, and what to do. */
const OnCall = ({ me }: { me: Me }) => {
  const live = useLive();
  const read = useRead<Queues>('/queues', { every: live.every, keep: true });
  return (
    <Page
      title="On call"
      description="What waits, how fast it moves, what is wrong, and what to do."
      actions={<Live live={live} failed={read.isError} />}
    >
      {read.data?.problems.map(({ problem, remedy }) => (
        <Notice key={problem} tone="bad" title={problem}>
          {remedy}
        </Notice>
      ))}
      <FindWork />
      <Shown read={read} rows={6}>
        {({ at, queues, alerts }) => (
          <>
            <Section
              flush
              title="Queues"
              actions={
                <>
                  <a className="link small" href="/operator/queues">
                    Board
                  </a>
                  <Link className="link small" to="/inbox?view=all">
                    Conversations
                  </Link>
                </>
              }
            >
              <ul className="rows" aria-label="Queues">
                {queues.map((queue) => (
                  <QueueRow key={queue.name} queue={queue} />
                ))}
              </ul>
            </Section>
            <Section
              flush
              title="Open alerts"
              actions={
                <Link className="link small" to="/alerts">
                  All alerts
                </Link>
              }
            >
              {alerts.length === 0 ? (
                <Empty icon="bell" title="No alert is open" />
              ) : (
                <ul className="rows" aria-label="Open alerts">
                  {alerts.map((alert) => (
                    <AlertRow key={alert.alertId} alert={alert} name={nameOf(me, alert)} />
                  ))}
                </ul>
              )}
            </Section>
            <div className="two">
              {queues
                .filter(({ name }) => name === 'turns' || name === 'deliveries')
                .map((queue) => (
                  <History key={queue.name} queue={queue} now={at} />
                ))}
            </div>
          </>
        )}
      </Shown>
    </Page>
  );
};

export default OnCall;
