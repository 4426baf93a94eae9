import type { Command } from 'commander';
import { turnOperations } from '../../src/turns/http/operator-turns.ts';
import type { Answered } from './api.ts';
import { example } from './arguments.ts';
import type { Run } from './session.ts';
import { fields, msOf, plain, table } from './text.ts';

/** A time with milliseconds, because most steps of a turn take less than a second. */
const exact = (time: string | null | undefined): string => time?.replace('T', ' ') ?? '–';

const textOf = ({
  message,
  job,
  reply,
  events,
  ms,
  acceptedAt,
  ...facts
}: Answered<typeof turnOperations.read>): string => {
  const steps = [
    ['accepted', exact(acceptedAt), message && `${message.language ?? ''}: ${message.content}`],
    [
      'job',
      exact(job?.addedAt),
      job ? `${job.jobId} ${job.state}, started ${exact(job.startedAt)}` : 'no longer known',
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
    .description('The trace of a turn')
    .command('show <turnId>')
    .description('Accepted, job, reply, events and deliveries, with their times')
    .addHelpText('after', example('turn show 3b1e6f1c-0a52-4c1d-8b2a-6d0f5e4a5311'))
    .action((turnId: string) =>
      run(async (api) => {
        const turn = await api.call(turnOperations.read, { id: turnId, what: 'turn' });
        return { json: turn, text: textOf(turn) };
      }),
    );
};
