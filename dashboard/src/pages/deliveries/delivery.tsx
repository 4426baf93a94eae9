import { Button } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'wouter';
import { at, withQuery } from '../../api.ts';
import { Back } from '../../parts/back.tsx';
import { Value } from '../../parts/code.tsx';
import { CopyButton } from '../../parts/copy.tsx';
import { Icon } from '../../parts/icon.tsx';
import { Notice } from '../../parts/notice.tsx';
import { Facts, Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { Delivery as DeliveryType } from '../../types.ts';
import { Checklist } from '../webhooks/test-result.tsx';
import { curlOf } from './curl.ts';
import { isFinal, OutcomeBadge, reasonOf } from './outcome.tsx';
import { Request, Response } from './exchange.tsx';
import { Resend } from './resend.tsx';
import { Timing } from './timing.tsx';

const factsOf = (id: string, delivery: DeliveryType) => ({
  'Event id': (
    <>
      <Value value={delivery.eventId} label="event id" />{' '}
      <Link className="link small" to={withQuery('/on-call', { find: delivery.deliveryId })}>
        Where it is
      </Link>
    </>
  ),
  ...(delivery.conversationId !== null && {
    Conversation: (
      <>
        <Value value={delivery.conversationId} label="conversation id" />{' '}
        <Link className="link small" to={withQuery(`/assistants/${id}/deliveries`, { id: delivery.conversationId })}>
          All its deliveries
        </Link>
      </>
    ),
  }),
  Endpoint: (
    <Link className="link break" to={`/assistants/${id}/webhooks/${delivery.endpointId}`}>
      {delivery.url ?? delivery.endpointId}
    </Link>
  ),
  Happened: <When at={delivery.happenedAt} exact />,
  ...(delivery.endedAt !== null && { Ended: <When at={delivery.endedAt} exact /> }),
  ...(delivery.tls && {
    TLS: `${delivery.tls.version}${delivery.tls.daysToExpiry === null ? '' : `, certificate valid for ${delivery.tls.daysToExpiry} days`}`,
  }),
  ...(delivery.sequence !== null && { Sequence: `${delivery.sequence} of its conversation, for this endpoint` }),
  ...(delivery.redelivery && { Resent: 'By an operator' }),
});

const Shape = ({ id, delivery }: { id: string; delivery: DeliveryType }) => {
  const reason = reasonOf(delivery);
  return (
    <>
      {reason !== null && (
        <Notice tone={delivery.outcome === 'unknown' ? 'warn' : 'bad'}>
          {reason}
          {delivery.errorDetail !== null && <span className="dim mono"> {delivery.errorDetail}</span>}
        </Notice>
      )}
      <Section>
        <Facts facts={factsOf(id, delivery)} />
      </Section>
      {delivery.test && (
        <Section title="Test event">
          <Checklist test={delivery.test} />
        </Section>
      )}
      {delivery.timings && (
        <Section title="Timings">
          <Timing timings={delivery.timings} />
        </Section>
      )}
      {delivery.outcome === 'queued' && delivery.body === null ? (
        <Section>
          <Empty icon="pause" title="Waiting to be sent">
            Earlier events of its conversation are sent first, or its endpoint is paused. This page updates by itself.
          </Empty>
        </Section>
      ) : (
        <div className="two">
          <Request delivery={delivery} />
          <Response delivery={delivery} />
        </div>
      )}
    </>
  );
};

const Delivery = ({ id, deliveryId }: { id: string; deliveryId: string }) => {
  const read = useRead<DeliveryType>(at`/deliveries/${deliveryId}`, {
    every: (delivery) => (delivery && isFinal(delivery.outcome) ? false : 1_500),
  });
  const [resending, setResending] = useState(false);
  const delivery = read.data;
  return (
    <Page
      title={delivery?.event ?? 'Delivery'}
      above={<Back to={`/assistants/${id}/deliveries`}>Deliveries</Back>}
      description={delivery && <OutcomeBadge outcome={delivery.outcome} />}
      actions={
        delivery && (
          <>
            {delivery.body !== null && <CopyButton value={curlOf(delivery)} label="Copy as curl" />}
            {delivery.resend && (
              <Button
                size="xs"
                variant="default"
                leftSection={<Icon name="refresh" size={15} />}
                onClick={() => setResending(true)}
              >
                Resend…
              </Button>
            )}
          </>
        )
      }
    >
      <Shown read={read}>{(one) => <Shape id={id} delivery={one} />}</Shown>
      {delivery?.resend && (
        <Resend id={id} delivery={delivery} opened={resending} onClose={() => setResending(false)} />
      )}
    </Page>
  );
};

export default Delivery;
