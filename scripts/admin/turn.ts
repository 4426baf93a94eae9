import type { Command } from 'commander';
import { example } from './arguments.ts';
import type { Run } from './session.ts';
import { fields, msOf, plain, table } from './text.ts';
import { readTurn } from './turn/way.ts';

/** To the millisecond: the steps of a turn seldom take a second. */
const exact = (time: Date | null | undefined): string => time?.toISOString().replace('T', ' ') ?? '–';

const textOf = ({
  message,
  job,
  reply,
  events,
  ms,
  acceptedAt,
  ...facts
}: Awaited<ReturnType<typeof readTurn>>): string => {
  const steps = [
    ['accepted', exact(acceptedAt), message && `${message.language ?? ''}: ${message.content}`],
    [
      'job',
      exact(job?.addedAt),
      job ? `${job.jobId} ${job.state}, begun ${exact(job.startedAt)}` : 'not known (any more)',
    ],
    ['reply', exact(reply?.createdAt), reply ? `after ${msOf(ms)}: ${reply.content}` : 'none'],
    ...events.flatMap(({ event, deliveries }) =>
      deliveries.map((one) => [
        event,
        exact(one.endedAt ?? one.createdAt),
        `${one.outcome} ${one.errorKind ?? one.status ?? ''} to ${one.endpointId}`,
      ]),
    ),
  ];
  return plain(`${fields(facts)}\n\n${table(['STEP', 'TIME', 'WHAT'], steps)}`);
};

export const addTurnCommands = (program: Command, run: Run): void => {
  program
    .command('turn')
    .description("A message's way through the service")
    .command('show <turnId>')
    .description('Accepted, job, reply, events and deliveries, with their times')
    .addHelpText('after', example('turn show 3b1e6f1c-0a52-4c1d-8b2a-6d0f5e4a5311'))
    .action((turnId: string) =>
      run(async (opened) => {
        const turn = await readTurn(opened, turnId);
        return { json: turn, text: textOf(turn) };
      }),
    );
};
