import { Link } from 'wouter';
import { at, withQuery } from '../../api.ts';
import { Live, useLive } from '../../parts/live.tsx';
import { Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useRead } from '../../query.ts';
import type { Deliveries } from '../../types.ts';
import { DeliveryRows } from './rows.tsx';

const SHOWN = 8;

/** The latest deliveries, polled, with a link to the full list. */
export const RecentDeliveries = ({ id, endpointId }: { id: string; endpointId?: string }) => {
  const path = at`/assistants/${id}/deliveries`;
  const live = useLive();
  const read = useRead<Deliveries>(withQuery(path, { endpointId, limit: SHOWN }), { every: live.every });
  return (
    <Section
      title="Recent deliveries"
      flush
      actions={
        <>
          <Live live={live} failed={read.isError} />
          <Link className="link small" to={withQuery(`/assistants/${id}/deliveries`, { endpoint: endpointId })}>
            All deliveries
          </Link>
        </>
      }
    >
      <Shown read={read}>
        {({ deliveries }) =>
          deliveries.length === 0 ? (
            <Empty icon="list" title="Nothing sent yet">
              Events of conversations are listed here as they happen.
            </Empty>
          ) : (
            <DeliveryRows id={id} rows={deliveries} withUrl={endpointId === undefined} />
          )
        }
      </Shown>
    </Section>
  );
};
