import type { Command } from 'commander';
import type { Endpoint, Pause } from '../../src/webhooks/endpoint.ts';
import { isPaused, MAX_OVERLAP_HOURS } from '../../src/webhooks/endpoint.ts';
import { EVENT_KINDS } from '../../src/webhooks/event.ts';
import { ASSISTANT_OPTION, commaList, example, orNothingUnder, wholeNumber } from './arguments.ts';
import { getAssistant } from './assistant.ts';
import { usage } from './failure.ts';
import { awaitOutcome } from './delivery/outcome.ts';
import type { Run } from './session.ts';
import { table } from './text.ts';

const ID = 'c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10';
const KINDS: string[] = EVENT_KINDS.filter((kind) => kind !== 'webhook.test');

const describePause = (pause: Pause | null): string => {
  if (!pause || !isPaused({ pause }, Date.now())) return '';
  if (pause.reason === 'gone') return ', paused (answered 410): `endpoint resume` it';
  return `, paused (asked to wait) until ${pause.until?.toISOString() ?? '?'}`;
};

const describe = ({ enabled, pause }: Endpoint): string => `${enabled ? 'on' : 'off'}${describePause(pause)}`;
const shownOnce = ({ endpointId }: Endpoint, secret: string): string =>
  `Endpoint ${endpointId}\n${secret}\nThe secret is shown only once. Your server verifies signatures with it.`;

export const addEndpointCommands = (program: Command, run: Run): void => {
  const endpoint = program.command('endpoint').description("The customer's URLs that events are sent to");

  endpoint
    .command('add')
    .description('Add an endpoint; prints its secret, only once')
    .requiredOption(...ASSISTANT_OPTION)
    .requiredOption('--url <url>', 'where events go')
    .option('--events <kinds>', `only these, of ${KINDS.join(', ')}`, commaList)
    .addHelpText(
      'after',
      example(
        'endpoint add --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 --url https://example.com/hook --events message.received',
      ),
    )
    .action(async ({ assistant, url, events = [] }: { assistant: string; url: string; events?: string[] }) => {
      const unknown = events.filter((kind) => !KINDS.includes(kind));
      if (unknown.length > 0)
        throw usage(`--events: there is no ${unknown.join(', ')}; there are ${KINDS.join(', ')}.`);
      return run(async (opened) => {
        await getAssistant(opened, assistant);
        const { endpoint, secret } = await opened.endpoints.addEndpoint(assistant, { url, events });
        return { json: { endpointId: endpoint.endpointId, secret }, text: shownOnce(endpoint, secret) };
      });
    });

  endpoint
    .command('list')
    .description('Endpoints of an assistant, oldest first')
    .requiredOption(...ASSISTANT_OPTION)
    .action(({ assistant }: { assistant: string }) =>
      run(async (opened) => {
        await getAssistant(opened, assistant);
        const endpoints = await opened.endpoints.listEndpoints(assistant);
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
    apply: (opened: Parameters<Parameters<Run>[0]>[0], id: string) => Promise<Endpoint>,
  ) =>
    endpoint
      .command(`${name} <endpointId>`)
      .description(description)
      .addHelpText('after', example(`endpoint ${name} ${ID}`))
      .action((endpointId: string) =>
        run(async (opened) => {
          const changed = await orNothingUnder('endpoint', endpointId, apply(opened, endpointId));
          return { json: changed, text: `Endpoint ${endpointId} ${done}.` };
        }),
      );
  change('remove', 'Remove an endpoint; pending events are not sent', 'is removed', ({ endpoints }, id) =>
    endpoints.removeEndpoint(id),
  );
  change('enable', 'Turn it on; events that happened while it was off are not sent', 'is on', ({ endpoints }, id) =>
    endpoints.setEnabled(id, true),
  );
  change('disable', 'Turn it off; pending events are not sent', 'is off', ({ endpoints }, id) =>
    endpoints.setEnabled(id, false),
  );
  change('resume', 'End its pause; waiting events are sent, in order', 'is resumed', ({ endpoints }, id) =>
    endpoints.resumeEndpoint(id),
  );

  endpoint
    .command('rotate <endpointId>')
    .description('Rotate the secret; prints the new one, only once')
    .option(
      '--overlap <hours>',
      `the old one signs beside it for so long (0–${MAX_OVERLAP_HOURS})`,
      wholeNumber(0, MAX_OVERLAP_HOURS),
    )
    .addHelpText('after', example(`endpoint rotate ${ID} --overlap 24`))
    .action((endpointId: string, { overlap = 0 }: { overlap?: number }) =>
      run(async ({ endpoints }) => {
        const { endpoint, secret } = await orNothingUnder(
          'endpoint',
          endpointId,
          endpoints.rotateSecret(endpointId, overlap),
        );
        return { json: { endpointId, secret }, text: shownOnce(endpoint, secret) };
      }),
    );

  endpoint
    .command('test <endpointId>')
    .description('Send a test event the real way and print its outcome')
    .addHelpText('after', example(`endpoint test ${ID}`))
    .action((endpointId: string) =>
      run(async (opened) => {
        const tested = await orNothingUnder('endpoint', endpointId, opened.endpoints.getEndpoint(endpointId));
        return awaitOutcome(opened, await opened.deliveries.queueTest(tested));
      }),
    );
};
