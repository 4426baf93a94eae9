import { type Command, Option } from 'commander';
import { MAX_RATE_PER_SECOND } from '../../src/events/endpoint.ts';
import { isPaused } from '../../src/events/endpoints.ts';
import { type EventKind, EVENT_KINDS } from '../../src/conversations/event.ts';
import { endpointOperations } from '../../src/events/http/endpoints.ts';
import type { Answered, Api } from './api.ts';
import { ASSISTANT_OPTION, commaList, example, fromVariable, overlapOption, wholeNumberOrNone } from './arguments.ts';
import { usage } from './failure.ts';
import { addRecoveryCommands } from './endpoint/recovery.ts';
import { awaitOutcome } from './delivery/outcome.ts';
import type { Run } from './session.ts';
import { table } from './text.ts';

const ID = 'c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10';
type Kind = Exclude<EventKind, 'webhook.test'>;
const KINDS = EVENT_KINDS.filter((kind): kind is Kind => kind !== 'webhook.test');
const isKind = (kind: string): kind is Kind => KINDS.some((known) => known === kind);

type Endpoint = Answered<typeof endpointOperations.read>;

const describePause = (pause: Endpoint['pause']): string => {
  const until = pause?.until == null ? null : new Date(pause.until);
  if (!pause || !isPaused({ pause: { ...pause, until } }, Date.now())) return '';
  if (pause.reason === 'gone') return ', paused (answered 410): `endpoint resume` it';
  return `, paused (asked to wait) until ${pause.until ?? '?'}`;
};

const describe = ({ enabled, pause, failingSince }: Endpoint): string =>
  `${enabled ? 'on' : 'off'}${describePause(pause)}${enabled && failingSince ? `, failing since ${failingSince}` : ''}`;
const shownOnce = ({ endpointId }: Endpoint, secret: string): string =>
  `Endpoint ${endpointId}\n${secret}\nThe secret is shown only once. Your server verifies signatures with it.`;

type AddOptions = {
  assistant: string;
  url: string;
  events?: string[];
  sources?: boolean;
  standardWebhooks?: boolean;
};

type SetOptions = { header?: string[]; removeHeader?: string[]; rate?: number | null; standardWebhooks?: boolean };

/** Parses `Name=VARIABLE`. The value of a header is not an argument, because others can read those. */
const headerFrom = (given: string): { name: string; value: string } => {
  const [name = '', variable = ''] = given.split('=');
  return { name, value: fromVariable(variable) };
};

const headersAfter = (now: Endpoint['headers'], { header = [], removeHeader = [] }: SetOptions) => {
  const given = header.map(headerFrom);
  const gone = new Set([...removeHeader, ...given.map(({ name }) => name)].map((name) => name.toLowerCase()));
  return [...now.filter(({ name }) => !gone.has(name.toLowerCase())).map(({ name }) => ({ name })), ...given];
};

const oneOf = (endpointId: string) => ({ id: endpointId, what: 'endpoint' });

export const addEndpointCommands = (program: Command, run: Run): void => {
  const endpoint = program.command('endpoint').description("The customer's URLs that events are sent to");

  endpoint
    .command('add')
    .description('Add an endpoint; prints its secret, only once')
    .requiredOption(...ASSISTANT_OPTION)
    .requiredOption('--url <url>', 'where events go')
    .option(
      '--events <kinds>',
      `only these, of ${KINDS.join(', ')}; without it every event except message.sent and conversation.erased`,
      commaList,
    )
    .option('--sources', 'replies in message.sent come with what they are taken from')
    .option('--standard-webhooks', 'send the headers of Standard Webhooks too')
    .addHelpText(
      'after',
      example(
        'endpoint add --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 --url https://example.com/hook --events message.received',
      ),
    )
    .action(async ({ assistant, url, events = [], sources, standardWebhooks = false }: AddOptions) => {
      const unknown = events.filter((kind) => !isKind(kind));
      if (unknown.length > 0)
        throw usage(`--events: there is no ${unknown.join(', ')}; there are ${KINDS.join(', ')}.`);
      return run(async (api) => {
        const include = sources ? ['sources' as const] : [];
        const body = { url, events: events.filter(isKind), include, standardWebhooks };
        const added = await api.call(endpointOperations.add, { id: assistant, what: 'assistant', body });
        const { endpoint, secret } = added;
        return { json: { endpointId: endpoint.endpointId, secret }, text: shownOnce(endpoint, secret) };
      });
    });

  endpoint
    .command('list')
    .description('Endpoints of an assistant, oldest first')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (api) => {
        const { endpoints } = await api.call(endpointOperations.list, { id: assistant, what: 'assistant' });
        const rows = endpoints.map((one) => [one.endpointId, one.url, one.events.join(', ') || 'all', describe(one)]);
        return {
          json: endpoints,
          text: table(['ENDPOINT', 'URL', 'EVENTS', 'STATE'], rows, 'There are no endpoints yet.'),
        };
      }),
    );

  const change = (
    name: string,
    description: string,
    done: string,
    apply: (api: Api, one: { id: string; what: string }) => Promise<Endpoint>,
  ) =>
    endpoint
      .command(`${name} <endpointId>`)
      .description(description)
      .addHelpText('after', example(`endpoint ${name} ${ID}`))
      .action((endpointId: string) =>
        run(async (api) => {
          const changed = await apply(api, oneOf(endpointId));
          return { json: changed, text: `Endpoint ${endpointId} ${done}.` };
        }),
      );
  change('remove', 'Remove an endpoint; pending events are not sent', 'is removed', async (api, one) => {
    const removed = await api.call(endpointOperations.read, one);
    await api.call(endpointOperations.remove, one);
    return removed;
  });
  change('enable', 'Turn it on; events that happened while it was off are not sent', 'is on', (api, one) =>
    api.call(endpointOperations.update, { ...one, body: { enabled: true } }),
  );
  change('disable', 'Turn it off; pending events are not sent', 'is off', (api, one) =>
    api.call(endpointOperations.update, { ...one, body: { enabled: false } }),
  );
  change('resume', 'End its pause; waiting events are sent, in order', 'is resumed', (api, one) =>
    api.call(endpointOperations.resume, one),
  );

  const several = (value: string, before: string[] = []): string[] => [...before, value];
  endpoint
    .command('set <endpointId>')
    .description('Change its headers and its rate')
    .option('--header <name=variable>', 'a secret header whose value is in this variable of the environment', several)
    .option('--remove-header <name>', 'a header that is no longer sent', several)
    .option('--rate <number>', 'at most so many events a second, or `none`', wholeNumberOrNone(1, MAX_RATE_PER_SECOND))
    .option('--standard-webhooks', 'send the headers of Standard Webhooks too')
    .option('--no-standard-webhooks', 'send them no longer')
    .addHelpText('after', example(`endpoint set ${ID} --header Authorization=HOOK_AUTHORIZATION`))
    .action((endpointId: string, options: SetOptions) =>
      run(async (api) => {
        const one = oneOf(endpointId);
        const { rate, header, removeHeader, standardWebhooks } = options;
        const { headers } = await api.call(endpointOperations.read, one);
        const body = {
          ...((header || removeHeader) && { headers: headersAfter(headers, options) }),
          ...(rate !== undefined && { ratePerSecond: rate }),
          ...(standardWebhooks !== undefined && { standardWebhooks }),
        };
        const json = await api.call(endpointOperations.update, { ...one, body });
        const names = json.headers.map(({ name }) => name).join(', ') || 'none';
        const most = json.ratePerSecond === null ? 'no rate' : `at most ${json.ratePerSecond} events a second`;
        return {
          json,
          text: `Endpoint ${endpointId} has ${most}, and the headers: ${names}${json.standardWebhooks ? ', and those of Standard Webhooks' : ''}.`,
        };
      }),
    );

  endpoint
    .command('rotate <endpointId>')
    .description('Rotate the secret; prints the new one, only once')
    .option(...overlapOption('also signs'))
    .addHelpText('after', example(`endpoint rotate ${ID} --overlap 24`))
    .action((endpointId: string, { overlap = 0 }: { overlap?: number }) =>
      run(async (api) => {
        const body = { overlapHours: overlap };
        const { endpoint, secret } = await api.call(endpointOperations.rotate, { ...oneOf(endpointId), body });
        return { json: { endpointId, secret }, text: shownOnce(endpoint, secret) };
      }),
    );

  addRecoveryCommands(program, endpoint, run);

  endpoint
    .command('test <endpointId>')
    .description('Send a test event the real way and print its outcome')
    .addOption(
      new Option('--event <kind>', 'with a sample of this kind’s payload').choices(EVENT_KINDS).default('webhook.test'),
    )
    .addHelpText('after', example(`endpoint test ${ID} --event message.received`))
    .action((endpointId: string, { event }: { event: EventKind }) =>
      run(async (api) => {
        const { deliveryId } = await api.call(endpointOperations.test, { ...oneOf(endpointId), body: { event } });
        return awaitOutcome(api, deliveryId);
      }),
    );
};
