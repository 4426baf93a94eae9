import type { Delivery } from '../../types.ts';

type Timings = NonNullable<Delivery['timings']>;

const STEPS = [
  ['dns', 'DNS lookup'],
  ['connect', 'Connect'],
  ['tls', 'TLS'],
  ['firstByte', 'Wait for the answer'],
] as const;

const WIDTH = 1000;
const LEAST = 6;

const spansOf = (timings: Timings): { name: string; key: string; ms: number }[] => {
  const steps = STEPS.flatMap(([key, name]) => {
    const ms = timings[key];
    return ms === null ? [] : [{ key, name, ms }];
  });
  const rest = (timings.total ?? 0) - steps.reduce((sum, { ms }) => sum + ms, 0);
  const name = timings.firstByte === null ? 'Until the end' : 'Send and read';
  return rest > 0 ? [...steps, { key: 'rest', name, ms: rest }] : steps;
};

const msWords = (ms: number): string => (ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`);

/** The phases of a request as a bar, with a list of the same figures beside it. */
export const Timing = ({ timings }: { timings: Timings }) => {
  const spans = spansOf(timings);
  const total = Math.max(timings.total ?? 0, 0.1);
  const scale = (WIDTH - LEAST * spans.length) / total;
  let x = 0;
  const bars = spans.map((span) => {
    const width = LEAST + span.ms * scale;
    const bar = { ...span, x, width };
    x += width;
    return bar;
  });
  return (
    <div>
      <svg className="timing" viewBox={`0 0 ${WIDTH} 14`} preserveAspectRatio="none" aria-hidden="true">
        {bars.map(({ key, x, width }) => (
          <rect key={key} x={x} y="0" width={Math.max(width - 2, 1)} height="14" className={`bar bar-${key}`} />
        ))}
      </svg>
      <ul className="timing-list" aria-label="Timings">
        {bars.map(({ key, name, ms }) => (
          <li key={key}>
            <span className={`bar-dot bar-${key}`} aria-hidden="true" />
            {name} <span className="num dim">{msWords(ms)}</span>
          </li>
        ))}
        <li>
          <strong>Total</strong> <span className="num">{msWords(timings.total ?? 0)}</span>
        </li>
      </ul>
    </div>
  );
};
