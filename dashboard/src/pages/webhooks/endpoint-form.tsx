import { Checkbox, Radio, Stack, TextInput } from '@mantine/core';
import type { useFields } from '../../parts/form.tsx';
import { EVENT_NAMES, EVENTS } from './event-names.ts';

export type EndpointFields = { url: string; every: boolean; events: string[] };
export const NEW_ENDPOINT: EndpointFields = { url: '', every: true, events: [] };

export const toBody = ({ url, every, events }: EndpointFields) => ({ url: url.trim(), events: every ? [] : events });
export const isComplete = ({ url, every, events }: EndpointFields): boolean =>
  url.trim() !== '' && (every || events.length > 0);

/** URL and event filter of a new or existing endpoint. */
export const EndpointForm = ({ form }: { form: ReturnType<typeof useFields<EndpointFields>> }) => {
  const { every, events } = form.values;
  return (
    <>
      <TextInput
        label="URL"
        description="Where events are posted. It must be https and reachable from the internet."
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
          <Radio value="every" label="Every event, including future ones" />
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
    </>
  );
};
