import { Link } from 'wouter';
import { When } from '../../parts/when.tsx';
import type { DeliveryRow } from '../../types.ts';
import { Outcome } from './outcome.tsx';

export const addressOf = (id: string, deliveryId: string): string =>
  `/assistants/${id}/deliveries/${encodeURIComponent(deliveryId)}`;

const shortOf = (errorKind: NonNullable<DeliveryRow['errorKind']>): string => errorKind.replaceAll('_', ' ');

/** Two endpoints of one host differ by their paths: the host gives way first. */
const Target = ({ url }: { url: string | null }) => {
  const parsed = url === null ? null : URL.parse(url);
  return (
    <span className="delivery-url dim" title={url ?? undefined}>
      {parsed && (
        <>
          <span className="clip">{parsed.host}</span>
          <span className="clip delivery-path">{`${parsed.pathname}${parsed.search}`}</span>
        </>
      )}
    </span>
  );
};

const Row = ({ id, row, withUrl }: { id: string; row: DeliveryRow; withUrl: boolean }) => (
  <li>
    <Link className="row delivery" to={addressOf(id, row.deliveryId)}>
      <span className="delivery-outcome">
        <Outcome outcome={row.outcome} />
      </span>
      <span className="delivery-status num mono">
        {row.status ?? (row.errorKind ? <span className="dim">{shortOf(row.errorKind)}</span> : '')}
      </span>
      <span className="delivery-event clip mono">
        {row.event}
        {row.redelivery && <span className="tag">resent</span>}
      </span>
      {withUrl && <Target url={row.url} />}
      <span className="delivery-ms dim num">{row.ms === null ? '' : `${Math.round(row.ms)} ms`}</span>
      <span className="delivery-at dim">
        <When at={row.createdAt} />
      </span>
    </Link>
  </li>
);

/** Newest first, one line each, every one a link to what was sent and what came back. */
export const DeliveryRows = ({ id, rows, withUrl = true }: { id: string; rows: DeliveryRow[]; withUrl?: boolean }) => (
  <ul className="rows deliveries" aria-label="Deliveries" data-url={withUrl}>
    {rows.map((row) => (
      <Row key={row.deliveryId} id={id} row={row} withUrl={withUrl} />
    ))}
  </ul>
);
