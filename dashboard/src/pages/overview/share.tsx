import { Link } from 'wouter';

export type SharePart = { name: string; count: number; tone: 'good' | 'bad' | 'warn' | 'calm' | 'dark'; to?: string };

const WIDTH = 1000;
const GAP = 4;

/** The parts of a number as one bar, with a list of the same figures below it. */
export const Share = ({ parts, label }: { parts: SharePart[]; label: string }) => {
  const total = parts.reduce((sum, { count }) => sum + count, 0);
  const there = parts.filter(({ count }) => count > 0);
  let x = 0;
  return (
    <div>
      <div className="share-total num">{total}</div>
      <svg className="share" viewBox={`0 0 ${WIDTH} 10`} preserveAspectRatio="none" aria-hidden="true">
        {total === 0 && <rect width={WIDTH} height="10" className="share-none" />}
        {there.map(({ name, count, tone }) => {
          const width = (count / total) * WIDTH;
          const bar = <rect key={name} x={x} width={Math.max(width - GAP, 2)} height="10" className={`tone-${tone}`} />;
          x += width;
          return bar;
        })}
      </svg>
      <ul className="share-list" aria-label={label}>
        {parts.map(({ name, count, tone, to }) => {
          const content = (
            <>
              <span className={`share-dot tone-${tone}`} aria-hidden="true" />
              {name} <span className="num">{count}</span>
            </>
          );
          return (
            <li key={name} data-none={count === 0}>
              {to !== undefined && count > 0 ? <Link to={to}>{content}</Link> : content}
            </li>
          );
        })}
      </ul>
    </div>
  );
};
