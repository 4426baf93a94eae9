import { Button, NativeSelect, TextInput } from '@mantine/core';
import { at, withQuery } from '../../api.ts';
import { type Address, useAddress } from '../../parts/address.ts';
import { Live, useLive } from '../../parts/live.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Pager } from '../../parts/pager.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { useRead } from '../../query.ts';
import type { Deliveries as DeliveryList, Endpoints } from '../../types.ts';
import { EVENT_NAMES, SENT } from '../webhooks/event-names.ts';
import { OUTCOMES } from './outcome.tsx';
import { DeliveryRows } from './rows.tsx';

const SPANS = [
  { value: '', label: 'Any time' },
  { value: '1h', label: 'Last hour', ms: 3_600_000 },
  { value: '24h', label: 'Last 24 hours', ms: 86_400_000 },
  { value: '7d', label: 'Last 7 days', ms: 7 * 86_400_000 },
];

const MINUTE_MS = 60_000;
const REFUSING = /^[345]\d\d$/;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * The start of a time span that ends now, rounded to the minute, so that polling does not change the filter each time.
 */
const since = (span: string): string | undefined => {
  const ms = SPANS.find(({ value }) => value === span)?.ms;
  return ms === undefined ? undefined : new Date(Math.floor((Date.now() - ms) / MINUTE_MS) * MINUTE_MS).toISOString();
};

const FILTERS = ['outcome', 'status', 'event', 'endpoint', 'span', 'id'] as const;
type Filter = (typeof FILTERS)[number];
type Filters = Address<Filter>;

const queryOf = ({ of }: Filters) => ({
  outcome: of('outcome'),
  status: REFUSING.test(of('status')) ? of('status') : '',
  event: of('event'),
  endpointId: of('endpoint'),
  from: since(of('span')),
  cursor: of('cursor'),
});

const FilterBar = ({ id, filters }: { id: string; filters: Filters }) => {
  const { of, any, clear, bound } = filters;
  const endpoints = useRead<Endpoints>(at`/assistants/${id}/endpoints`);
  return (
    <div className="filters" role="search" aria-label="Filter deliveries">
      <NativeSelect label="Outcome" data={[{ value: '', label: 'Any outcome' }, ...OUTCOMES]} {...bound('outcome')} />
      <TextInput
        label="Answer"
        placeholder="For example 500"
        inputMode="numeric"
        maxLength={3}
        {...bound('status')}
        {...(of('status').length === 3 && !REFUSING.test(of('status')) && { error: 'From 300 to 599' })}
      />
      <NativeSelect
        label="Event"
        data={[{ value: '', label: 'Any event' }, ...EVENT_NAMES, SENT, 'webhook.test']}
        {...bound('event')}
      />
      <NativeSelect
        label="Endpoint"
        data={[
          { value: '', label: 'Any endpoint' },
          ...(endpoints.data?.endpoints ?? []).map(({ endpointId, url }) => ({
            value: endpointId,
            label: url.replace(/^https:\/\//, ''),
          })),
        ]}
        {...bound('endpoint')}
      />
      <NativeSelect label="Time" data={SPANS.map(({ value, label }) => ({ value, label }))} {...bound('span')} />
      <TextInput
        label="Id"
        placeholder="Event or conversation"
        classNames={{ input: 'mono' }}
        {...bound('id')}
        {...(of('id') !== '' && !UUID.test(of('id').trim()) && { error: 'Not a valid id' })}
      />
      {any && (
        <Button variant="subtle" color="gray" onClick={clear}>
          Clear
        </Button>
      )}
    </div>
  );
};

/** Queries deliveries by event and by conversation, because the id may belong to either. */
const useDeliveries = (id: string, filters: Filters, every: number | false) => {
  const path = at`/assistants/${id}/deliveries`;
  const wanted = filters.of('id').trim();
  const isId = UUID.test(wanted);
  const query = queryOf(filters);
  const plain = useRead<DeliveryList>(withQuery(path, { ...query, ...(isId && { eventId: wanted }) }), {
    every,
    keep: true,
  });
  const ofConversation = useRead<DeliveryList>(withQuery(path, { ...query, conversationId: wanted }), {
    every,
    keep: true,
    enabled: isId,
  });
  return isId && ofConversation.data && ofConversation.data.deliveries.length > 0 ? ofConversation : plain;
};

const Deliveries = ({ id }: { id: string }) => {
  const filters = useAddress(FILTERS, ['id', 'status']);
  const { of, set, any } = filters;
  const older = of('cursor') !== '';
  const live = useLive();
  const read = useDeliveries(id, filters, older ? false : live.every);
  return (
    <Page
      title="Deliveries"
      description="Every event for every endpoint, with request and response. Kept for 30 days."
      actions={!older && <Live live={live} failed={read.isError} />}
    >
      <FilterBar id={id} filters={filters} />
      {read.data?.moreWaiting && (
        <Notice tone="warn">
          So many events wait that some of them are not listed. Choose an endpoint or a conversation.
        </Notice>
      )}
      <Section flush>
        <Shown read={read} rows={8}>
          {({ deliveries }) =>
            deliveries.length === 0 ? (
              <Empty icon="list" title={any || older ? 'No matches' : 'Nothing sent yet'}>
                {any || older
                  ? 'Try fewer filters.'
                  : 'Add an endpoint under Webhooks. Events are then sent to it and listed here.'}
              </Empty>
            ) : (
              <DeliveryRows id={id} rows={deliveries} />
            )
          }
        </Shown>
      </Section>
      <Pager cursor={of('cursor')} next={read.data?.nextCursor} onGo={(cursor) => set('cursor', cursor)} />
    </Page>
  );
};

export default Deliveries;
