import { type Command, Option } from 'commander';
import type { DeliveryPage } from '../../src/deliveries/list.ts';
import { OUTCOMES } from '../../src/deliveries/delivery.ts';
import { type DeliveryRow, toDeliveryView } from '../../src/deliveries/view.ts';
import { EVENT_KINDS } from '../../src/webhooks/event.ts';
import { type DeliveryFilter, LIST_MAX } from '../../src/deliveries/record-list.ts';
import { ASSISTANT_OPTION, example, orNothingUnder, pointInTime, wholeNumber } from './arguments.ts';
import { getAssistant } from './assistant.ts';
import { awaitOutcome } from './delivery/outcome.ts';
import type { Opened, Run } from './session.ts';
import { fields, msOf, table } from './text.ts';

const LIMIT = 1_000;
const ID = '7d8e8f0a-0f5e-4a53-8a43-5c1f6a0b2d11:c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10';

type Filter = Omit<DeliveryFilter, 'limit' | 'cursor'>;
type ListOptions = Omit<Filter, 'assistantId'> & {
  assistant: string;
  limit?: number;
  endpoint?: string;
  conversation?: string;
};

/** Page after page, until there are as many as were asked for. */
const listDeliveries = async ({ deliveries }: Opened, filter: Filter, limit: number) => {
  const rows: DeliveryRow[] = [];
  let cursor: string | null = null;
  do {
    const size = Math.min(LIST_MAX, limit - rows.length);
    const page: DeliveryPage = await deliveries.list({
      ...filter,
      limit: size,
      ...(cursor && { cursor }),
    });
    rows.push(...page.deliveries);
    cursor = page.nextCursor;
  } while (cursor !== null && rows.length < limit);
  return rows;
};

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
      run(async (opened) => {
        await getAssistant(opened, assistant);
        const filter = { ...rest, assistantId: assistant, endpointId: endpoint, conversationId: conversation };
        const listed = await listDeliveries(opened, filter, limit);
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
      run(async (opened) => {
        const delivery = await orNothingUnder('delivery', deliveryId, opened.deliveries.getDelivery(deliveryId));
        const whole = toDeliveryView(delivery);
        return { json: whole, text: fields(whole) };
      }),
    );

  deliveries
    .command('resend <deliveryId>')
    .description('Resend an ended one, marked as a redelivery, and print its outcome')
    .addHelpText('after', example(`deliveries resend ${ID}`))
    .action((deliveryId: string) =>
      run(async (opened) => {
        const original = await orNothingUnder('delivery', deliveryId, opened.deliveries.getDelivery(deliveryId));
        const { endpointId } = original;
        const endpoint = await orNothingUnder('endpoint', endpointId, opened.endpoints.getEndpoint(endpointId));
        const plan = await opened.deliveries.planResend(original);
        const resend = { original, plan, number: plan.number, url: endpoint.url };
        return awaitOutcome(opened, await opened.deliveries.queueResend(resend));
      }),
    );
};
