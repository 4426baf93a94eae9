import type { Command } from 'commander';
import { example } from './arguments.ts';
import type { Run } from './session.ts';
import { fields, msOf, plain, table, timeOf } from './text.ts';
import { readTurn } from './turn/way.ts';

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
    ['accepted', acceptedAt, message && `${message.language ?? ''}: ${message.content}`],
    ['job', job?.addedAt, job ? `${job.jobId} ${job.state}, begun ${timeOf(job.startedAt)}` : 'not known (any more)'],
    ['reply', reply?.createdAt, reply ? `after ${msOf(ms)}: ${reply.content}` : 'none'],
    ...events.flatMap(({ event, deliveries }) =>
      deliveries.map((one) => [
        event,
        one.endedAt ?? one.createdAt,
        `${one.outcome} ${one.errorKind ?? one.status ?? ''} to ${one.endpointId}`,
      ]),
    ),
  ];
  return plain(`${fields(facts)}\n\n${table(['STEP', 'TIME', 'WHAT'], steps)}`);
};

export const addTurnCommands = (program: Command, run: Run): void => {
  program
    .command('turn')
    .description("One message's way through the service")
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
