import { Link } from 'wouter';
import { at } from '../../api.ts';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { DeliveryRow, Endpoints } from '../../types.ts';
import { OutcomeBadge } from './outcome.tsx';

export const addressOf = (id: string, deliveryId: string): string =>
  `/assistants/${id}/deliveries/${encodeURIComponent(deliveryId)}`;

const shortOf = (errorKind: NonNullable<DeliveryRow['errorKind']>): string => errorKind.replaceAll('_', ' ');

/**
 * Shows a URL. If space is short, the host is shortened before the path, because endpoints of the same host differ only
 * in their paths.
 */
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

type RowProps = { id: string; row: DeliveryRow; withUrl: boolean; url: string | null };

const Row = ({ id, row, withUrl, url }: RowProps) => (
  <li>
    <Link className="row delivery" to={addressOf(id, row.deliveryId)}>
      <span className="delivery-outcome">
        <OutcomeBadge outcome={row.outcome} />
      </span>
      <span className="delivery-status num mono">
        {row.status ?? (row.errorKind ? <span className="dim">{shortOf(row.errorKind)}</span> : '')}
      </span>
      <span className="delivery-event clip mono">
        {row.event}
        {row.redelivery && <span className="tag">resent</span>}
      </span>
      {withUrl && <Target url={url} />}
      <span className="delivery-ms dim num">{row.ms === null ? '' : `${Math.round(row.ms)} ms`}</span>
      <span className="delivery-at dim">
        <When at={row.createdAt} />
      </span>
    </Link>
  </li>
);

/** Rows of deliveries, newest first. Each row links to the delivery's request and response. */
export const DeliveryRows = ({ id, rows, withUrl = true }: { id: string; rows: DeliveryRow[]; withUrl?: boolean }) => {
  const read = useRead<Endpoints>(at`/assistants/${id}/endpoints`, { enabled: withUrl });
  // A queued delivery has no URL yet. The worker will use the endpoint's current URL.
  const urlOf = ({ url, endpointId }: DeliveryRow): string | null =>
    url ?? read.data?.endpoints.find((one) => one.endpointId === endpointId)?.url ?? null;
  return (
    <ul className="rows deliveries" aria-label="Deliveries" data-url={withUrl}>
      {rows.map((row) => (
        <Row key={row.deliveryId} id={id} row={row} withUrl={withUrl} url={urlOf(row)} />
      ))}
    </ul>
  );
};
