import { Text } from '@mantine/core';
import { Code } from '../../parts/code.tsx';
import { Section } from '../../parts/page.tsx';
import type { Delivery as DeliveryType } from '../../types.ts';
import { isFinal } from './outcome.tsx';

const Headers = ({ headers, label }: { headers: DeliveryType['responseHeaders']; label: string }) => (
  <dl className="headers" aria-label={label}>
    {Object.entries(headers).map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{[value].flat().join(', ')}</dd>
      </div>
    ))}
  </dl>
);

export const Request = ({ delivery }: { delivery: DeliveryType }) => (
  <Section title="Request">
    <div className="line mono">
      <strong>POST</strong> {delivery.url}
    </div>
    <Headers headers={delivery.requestHeaders} label="Request headers" />
    {delivery.body === null ? (
      <Text size="sm" c="dimmed">
        The body was erased with its conversation.
      </Text>
    ) : (
      <Code text={delivery.body} label="request body" />
    )}
    <p className="dim">The signature’s value is not stored. “Copy as curl” signs the request again with your secret.</p>
  </Section>
);

export const Response = ({ delivery }: { delivery: DeliveryType }) => (
  <Section title="Response">
    {delivery.status === null ? (
      <Text size="sm" c="dimmed">
        {isFinal(delivery.outcome) ? 'No answer.' : 'No answer yet.'}
      </Text>
    ) : (
      <>
        <div className="line mono">
          <strong>{delivery.status}</strong>
          {delivery.remoteAddress !== null && <span className="dim"> from {delivery.remoteAddress}</span>}
        </div>
        <Headers headers={delivery.responseHeaders} label="Response headers" />
        {delivery.responseBody ? (
          <Code text={delivery.responseBody} label="response body" />
        ) : (
          <Text size="sm" c="dimmed">
            The body is empty.
          </Text>
        )}
        {delivery.truncated && <p className="dim">Only the first 16 KiB are stored.</p>}
      </>
    )}
  </Section>
);
