import { Button, SegmentedControl } from '@mantine/core';
import { useMemo } from 'react';
import { at, withQuery } from '../api.ts';
import { Allowed } from '../parts/allowance.tsx';
import { useAddress } from '../parts/address.ts';
import { Icon } from '../parts/icon.tsx';
import { Page, Section } from '../parts/page.tsx';
import { Shown } from '../parts/states.tsx';
import { useRead } from '../query.ts';
import type { Limits, Usage as Used } from '../types.ts';
import { Chart } from './overview/chart.tsx';
import { type Series, TURNS } from './overview/numbers.tsx';
import { Tile } from './overview/figures.tsx';
import { dayAndMonth } from '../parts/when.tsx';

const DAY_MS = 86_400_000;
const PERIODS = [
  { value: 'month', label: 'This month' },
  { value: 'last', label: 'Last month' },
  { value: '90', label: '90 days' },
];

/** The days of a period, in UTC like the counts. */
const rangeOf = (period: string): { from?: string; to?: string } => {
  const now = new Date();
  const day = (at: Date): string => at.toISOString().slice(0, 10);
  if (period === '90') return { from: day(new Date(now.getTime() - 89 * DAY_MS)) };
  if (period !== 'last') return {};
  const first = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1);
  const to = day(new Date(first - DAY_MS));
  return { from: `${to.slice(0, 8)}01`, to };
};

const TOKENS: Series[] = [
  { name: 'completionTokens', label: 'Written', color: 'var(--mantine-color-anchor)' },
  { name: 'promptTokens', label: 'Read', color: 'var(--calm)' },
];

const numberOf = (count: number): string => count.toLocaleString('en');

const KeyTable = ({ keys, hasTokens }: { keys: Used['keys']; hasTokens: boolean }) => (
  <section className="numbers numbers-scroll" aria-label="Keys" tabIndex={0}>
    <table>
      <thead>
        <tr>
          <th scope="col">Key</th>
          <th scope="col">Messages</th>
          <th scope="col">Answered</th>
          <th scope="col">Hedged</th>
          <th scope="col">Offered</th>
          <th scope="col">Not answered</th>
          {hasTokens && <th scope="col">Tokens</th>}
        </tr>
      </thead>
      <tbody>
        {keys.map((one) => (
          <tr key={one.keyId ?? 'none'}>
            <th scope="row">{one.keyId === null ? 'Channel' : (one.name ?? 'A key that is gone')}</th>
            <td className="num">{numberOf(one.turns)}</td>
            <td className="num">{numberOf(one.answered)}</td>
            <td className="num">{numberOf(one.hedged)}</td>
            <td className="num">{numberOf(one.offered)}</td>
            <td className="num">{numberOf(one.notAnswered)}</td>
            {hasTokens && <td className="num">{numberOf(one.promptTokens + one.completionTokens)}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  </section>
);

const Shape = ({ used }: { used: Used }) => {
  const { totals, keys } = used;
  const rows = useMemo(
    () =>
      used.days.map(({ day, ...one }) => ({
        at: dayAndMonth(day),
        answered: one.answered,
        hedged: one.hedged,
        offered: one.offered,
        notAnswered: one.notAnswered,
        rest: one.other + one.held,
        promptTokens: one.promptTokens,
        completionTokens: one.completionTokens,
      })),
    [used],
  );
  const { delivered, rejected, not_sent: notSent, unknown } = totals.deliveries;
  const hasTokens = totals.providerReplies > 0;
  return (
    <>
      <div className="tiles">
        <Tile label="Messages" value={numberOf(totals.turns)} note={`${used.from} to ${used.to}, UTC`} />
        <Tile label="Answered" value={numberOf(totals.answered)} note={`${numberOf(totals.hedged)} more hedged`} />
        <Tile label="With a person" value={numberOf(totals.escalated)} note={`${numberOf(totals.resolved)} resolved`} />
        <Tile
          label="Deliveries"
          value={numberOf(delivered + rejected + notSent + unknown)}
          note={`${numberOf(delivered)} delivered`}
        />
        {hasTokens && (
          <Tile
            label="Tokens"
            value={numberOf(totals.promptTokens + totals.completionTokens)}
            note={`in ${numberOf(totals.providerReplies)} replies`}
          />
        )}
      </div>
      <div className={hasTokens ? 'two' : undefined}>
        <Chart title="Messages" description="By the end of their turn" rows={rows} series={TURNS} stacked />
        {hasTokens && (
          <Chart title="Tokens" description="As the provider reported them" rows={rows} series={TOKENS} stacked />
        )}
      </div>
      <Section title="Keys" description="What each caller sent">
        {keys.length === 0 ? (
          <p className="chart-none dim">Nothing in this time.</p>
        ) : (
          <KeyTable keys={keys} hasTokens={hasTokens} />
        )}
      </Section>
    </>
  );
};

const LimitRows = ({ limits: { turns, tokens, keys } }: { limits: Limits }) => {
  const rows = [
    ...(turns ? [{ name: 'This month', id: 'turns', one: turns, of: 'messages' as const }] : []),
    ...(tokens ? [{ name: 'Today', id: 'tokens', one: tokens, of: 'tokens' as const }] : []),
    ...keys.map((one) => ({ name: `This month, key ${one.name}`, id: one.keyId, one, of: 'messages' as const })),
  ];
  if (rows.length === 0) return null;
  return (
    <Section title="Limits" description="As they are now, in UTC. They are set under Settings and API keys." flush>
      <ul className="rows" aria-label="Limits">
        {rows.map(({ name, id, one, of }) => (
          <li key={id} className="row row-stack">
            <div className="row-main row-title">{name}</div>
            <Allowed one={one} of={of} />
          </li>
        ))}
      </ul>
    </Section>
  );
};

const Usage = ({ id }: { id: string }) => {
  const { of, set } = useAddress(['period']);
  const period = PERIODS.find(({ value }) => value === of('period'))?.value ?? 'month';
  const range = rangeOf(period);
  const read = useRead<Used>(withQuery(at`/assistants/${id}/usage`, range), { keep: true });
  const { data: limits } = useRead<Limits>(at`/assistants/${id}/limits`);
  const file = withQuery(at`/operator/v1/assistants/${id}/usage.csv`, range);
  return (
    <Page
      title="Usage"
      description="What this assistant used, by day and by key. Messages on the page Try it do not count."
      actions={
        <>
          <SegmentedControl
            aria-label="Time"
            size="xs"
            data={PERIODS}
            value={period}
            onChange={(value) => set('period', value)}
          />
          <Button component="a" href={file} download variant="default" leftSection={<Icon name="down" size={16} />}>
            CSV
          </Button>
        </>
      }
    >
      {limits && <LimitRows limits={limits} />}
      <Shown read={read}>{(used) => <Shape used={used} />}</Shown>
    </Page>
  );
};

export default Usage;
