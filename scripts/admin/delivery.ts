import { type Command, Option } from 'commander';
import { OUTCOMES } from '../../src/events/delivery.ts';
import { EVENT_KINDS } from '../../src/conversations/event.ts';
import { LIST_MAX } from '../../src/events/list.ts';
import { deliveryOperations } from '../../src/events/http/deliveries.ts';
import type { Answered } from './api.ts';
import { ASSISTANT_OPTION, example, pointInTime, wholeNumber } from './arguments.ts';
import { awaitOutcome, toWhole } from './delivery/outcome.ts';
import { readPages } from './pages.ts';
import type { Run } from './session.ts';
import { fields, msOf, table } from './text.ts';

const LIMIT = 1_000;
const ID = '7d8e8f0a-0f5e-4a53-8a43-5c1f6a0b2d11:c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10';

type ListOptions = {
  assistant: string;
  limit?: number;
  endpoint?: string;
  conversation?: string;
  eventId?: string;
  event?: string;
  outcome?: string;
  from?: Date;
  to?: Date;
};
type Page = Answered<typeof deliveryOperations.list>;

export const addDeliveryCommands = (program: Command, run: Run): void => {
  const deliveries = program.command('deliveries').description('What was sent to endpoints, and what came back');

  deliveries
    .command('list')
    .description('List deliveries of an assistant, newest first, including waiting ones')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--event-id <id>', 'of this event only')
    .option('--endpoint <id>', 'to this endpoint only')
    .option('--conversation <id>', 'of this conversation only')
    .addOption(new Option('--event <kind>', 'of this kind only').choices(EVENT_KINDS))
    .addOption(new Option('--outcome <outcome>', 'that ended so, or have not ended').choices(OUTCOMES))
    .option('--from <time>', 'started at this time or later', pointInTime)
    .option('--to <time>', 'started before this time', pointInTime)
    .option('--limit <count>', `how many at most (${LIMIT} if omitted)`, wholeNumber(1, 100_000))
    .addHelpText(
      'after',
      example('deliveries list --assistant 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11 --outcome rejected'),
    )
    .action(({ assistant, endpoint, conversation, limit = LIMIT, ...rest }: ListOptions) =>
      run(async (api) => {
        const { from, to, ...exact } = rest;
        const filter = { ...exact, endpointId: endpoint, conversationId: conversation };
        const query = { ...filter, from: from?.toISOString(), to: to?.toISOString() };
        const one = { id: assistant, what: 'assistant' };
        const listed = await readPages(limit, LIST_MAX, async (page) => {
          const answer: Page = await api.call(deliveryOperations.list, { ...one, query: { ...query, ...page } });
          return { rows: answer.deliveries, nextCursor: answer.nextCursor };
        });
        const rows = listed.map((one) => [
          one.createdAt,
          one.event,
          one.errorKind ? `${one.outcome} (${one.errorKind})` : one.outcome,
          one.status,
          msOf(one.ms),
          one.deliveryId,
        ]);
        const text = table(['TIME', 'EVENT', 'OUTCOME', 'STATUS', 'TOOK', 'DELIVERY'], rows, 'Nothing sent yet.');
        return { json: listed, text };
      }),
    );

  deliveries
    .command('show <deliveryId>')
    .description('Read a delivery with request and response')
    .addHelpText('after', example(`deliveries show ${ID}`))
    .action((deliveryId: string) =>
      run(async (api) => {
        const whole = toWhole(await api.call(deliveryOperations.read, { id: deliveryId, what: 'delivery' }));
        return { json: whole, text: fields(whole) };
      }),
    );

  deliveries
    .command('resend <deliveryId>')
    .description('Resend an ended one, marked as a redelivery, and print its outcome')
    .addHelpText('after', example(`deliveries resend ${ID}`))
    .action((deliveryId: string) =>
      run(async (api) => {
        const one = { id: deliveryId, what: 'delivery' };
        const { resend } = await api.call(deliveryOperations.read, one);
        // If the delivery cannot be resent, the API's error gives the reason.
        const body = { number: resend?.number ?? 1, mayDouble: true };
        const queued = await api.call(deliveryOperations.resend, { ...one, body });
        return awaitOutcome(api, queued.deliveryId);
      }),
    );
};
