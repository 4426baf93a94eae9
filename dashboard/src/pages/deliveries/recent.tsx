import { Link } from 'wouter';
import { at, withQuery } from '../../api.ts';
import { Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useRead } from '../../query.ts';
import type { Deliveries } from '../../types.ts';
import { Live, LIVE_MS } from './live.tsx';
import { DeliveryRows } from './rows.tsx';

const SHOWN = 8;

/** The latest few, kept up to date, with the way to all of them. */
export const RecentDeliveries = ({ id, endpointId }: { id: string; endpointId?: string }) => {
  const path = at`/assistants/${id}/deliveries`;
  const read = useRead<Deliveries>(withQuery(path, { endpointId, limit: SHOWN }), { every: LIVE_MS });
  return (
    <Section
      title="Recent deliveries"
      flush
      actions={
        <>
          <Live on failed={read.isError} />
          <Link className="link small" to={withQuery(`/assistants/${id}/deliveries`, { endpoint: endpointId })}>
            All deliveries
          </Link>
        </>
      }
    >
      <Shown read={read}>
        {({ deliveries }) =>
          deliveries.length === 0 ? (
            <Empty icon="list" title="Nothing was sent yet">
              As soon as something happens in a conversation, its events stand here.
            </Empty>
          ) : (
            <DeliveryRows id={id} rows={deliveries} withUrl={endpointId === undefined} />
          )
        }
      </Shown>
    </Section>
  );
};
