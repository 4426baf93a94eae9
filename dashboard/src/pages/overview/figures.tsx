import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { withQuery } from '../../api.ts';
import type { Overview } from '../../types.ts';

type Figures = Overview['figures'];
type Slot = Figures['totals'];

const shareOf = (part: number, whole: number): string => (whole === 0 ? '–' : `${Math.round((part / whole) * 100)} %`);

const timeOf = (ms: number): string =>
  ms < 1_000 ? `${ms}\u00A0ms` : `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)}\u00A0s`;

const sum = (counts: Record<string, number>): number => Object.values(counts).reduce((all, count) => all + count, 0);

const REASONS: Record<string, string> = {
  user_requested: 'asked for',
  low_confidence: 'not sure',
  engine_error: 'engine failed',
  contact_details: 'left contact details',
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

export const Tile = ({ label, value, note, to }: TileProps) => {
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

export const FigureTiles = ({ id, totals }: { id: string; totals: Slot }) => {
  const base = `/assistants/${id}`;
  const inbox = (view: string) => withQuery('/inbox', { view, assistant: id });
  const replies = totals.answered + totals.hedged + totals.offered + totals.notAnswered;
  return (
    <div className="tiles">
      <Tile label="Messages" value={totals.turns} note="of visitors" to={inbox('all')} />
      <Tile label="Answered" value={totals.answered} note={`${shareOf(totals.answered, replies)} of questions`} />
      <Tile label="Hedged" value={totals.hedged} note={`${shareOf(totals.hedged, replies)}: “this may be …”`} />
      <Tile label="Offered" value={totals.offered} note="questions to choose from" />
      {totals.byWordsOnly > 0 && (
        <Tile
          label="By words only"
          value={shareOf(totals.byWordsOnly, replies)}
          note={`${totals.byWordsOnly} replies without the model`}
        />
      )}
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
