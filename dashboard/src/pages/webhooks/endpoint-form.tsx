import { Checkbox, Radio, Stack, Switch, TextInput } from '@mantine/core';
import type { useFields } from '../../parts/form.tsx';
import { withScheme } from '../../parts/typed.ts';
import type { Endpoint } from '../../types.ts';
import { HeadersField } from './headers-field.tsx';
import { ERASED, EVENT_NAMES, EVENTS, SENT } from './event-names.ts';

export type EndpointFields = {
  url: string;
  every: boolean;
  events: string[];
  sent: boolean;
  sources: boolean;
  erased: boolean;
  headers: Endpoint['headers'];
  ratePerSecond: string;
  standardWebhooks: boolean;
};
export const NEW_ENDPOINT: EndpointFields = {
  url: '',
  every: true,
  events: [],
  sent: false,
  sources: false,
  erased: false,
  headers: [],
  ratePerSecond: '',
  standardWebhooks: false,
};

/** An endpoint that names all kinds wants every event, and those that it must name beside them. */
export const endpointFieldsOf = (endpoint: Endpoint): EndpointFields => {
  const { url, events, include, headers, ratePerSecond, standardWebhooks } = endpoint;
  const [sent, erased] = [events.includes(SENT), events.includes(ERASED)];
  const named = events.filter((name) => name !== SENT && name !== ERASED);
  const every = EVENT_NAMES.every((name) => named.includes(name)) || events.length === 0;
  return {
    url,
    every,
    events: every ? [] : named,
    sent,
    sources: include.includes('sources'),
    erased,
    headers,
    ratePerSecond: String(ratePerSecond ?? ''),
    standardWebhooks,
  };
};

export const endpointBodyOf = (fields: EndpointFields) => {
  const { url, every, events, sent, sources, erased, headers, ratePerSecond, standardWebhooks } = fields;
  const named = [...(sent ? [SENT] : []), ...(erased ? [ERASED] : [])];
  const chosen = every ? EVENT_NAMES : events;
  return {
    url: withScheme(url),
    events: every && named.length === 0 ? [] : [...chosen, ...named],
    include: sources ? ['sources'] : [],
    // A stored secret has no value here, and stays.
    headers: headers.map(({ name, value, secret }) => ({
      name: name.trim(),
      ...(value !== null && { value }),
      secret,
    })),
    ratePerSecond: ratePerSecond.trim() === '' ? null : Number(ratePerSecond),
    standardWebhooks,
  };
};

export const isComplete = ({ url, every, events, sent, erased }: EndpointFields): boolean =>
  url.trim() !== '' && (every || sent || erased || events.length > 0);

/** URL, event filter, headers and rate of a new or existing endpoint. */
export const EndpointForm = ({ form }: { form: ReturnType<typeof useFields<EndpointFields>> }) => {
  const { every, events, sent, sources, erased, headers } = form.values;
  return (
    <>
      <TextInput
        label="URL"
        description="Where events are posted, by https. It must be reachable from the internet."
        type="url"
        placeholder="https://example.com/webhooks/parley"
        data-autofocus
        {...form.text('url')}
      />
      <Radio.Group
        label="Events"
        value={every ? 'every' : 'some'}
        onChange={(value) => form.set('every', value === 'every')}
        {...form.errorOf('events')}
      >
        <Stack gap="xs" mt={6}>
          <Radio value="every" label={sent || erased ? 'Every event' : 'Every event, including future ones'} />
          <Radio value="some" label="Only these" />
        </Stack>
      </Radio.Group>
      {!every && (
        <Checkbox.Group aria-label="Which events" value={events} onChange={(value) => form.set('events', value)}>
          <Stack gap="xs" pl={28}>
            {EVENT_NAMES.map((name) => (
              <Checkbox
                key={name}
                value={name}
                label={<span className="mono">{name}</span>}
                description={EVENTS[name]}
              />
            ))}
          </Stack>
        </Checkbox.Group>
      )}
      <Switch
        label="Also send replies"
        description={
          <>
            Sends <span className="mono">message.sent</span> with the whole text of each reply, each message of an
            operator and each system message. A bridge to a messenger needs it.
          </>
        }
        checked={sent}
        onChange={(event) => form.set('sent', event.currentTarget.checked)}
      />
      {sent && (
        <Switch
          label="With the sources of replies"
          description="The pages and files that a reply is taken from, with the quoted text."
          checked={sources}
          onChange={(event) => form.set('sources', event.currentTarget.checked)}
        />
      )}
      <Switch
        label="Also tell of erasures"
        description={
          <>
            Sends <span className="mono">conversation.erased</span> when a conversation is erased of which your server
            got something.
          </>
        }
        checked={erased}
        onChange={(event) => form.set('erased', event.currentTarget.checked)}
      />
      <HeadersField headers={headers} onChange={(changed) => form.set('headers', changed)} errorOf={form.errorOf} />
      <Switch
        label="Standard Webhooks too"
        description={
          <>
            Adds <span className="mono">webhook-id</span>, <span className="mono">webhook-timestamp</span> and{' '}
            <span className="mono">webhook-signature</span>, which libraries of that standard verify with the signing
            secret.
          </>
        }
        checked={form.values.standardWebhooks}
        onChange={(event) => form.set('standardWebhooks', event.currentTarget.checked)}
      />
      <TextInput
        label="Events a second"
        description="At most so many, 1 to 100. Others wait, up to ten minutes. Empty: as many as there are."
        inputMode="numeric"
        {...form.text('ratePerSecond')}
      />
    </>
  );
};
