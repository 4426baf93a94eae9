import type { Command } from 'commander';
import { ENDS, type Recoverable, RECOVERABLE } from '../../../src/events/delivery.ts';
import { recoveryOperations } from '../../../src/events/http/endpoints.ts';
import type { Answered } from '../api.ts';
import { commaList, example, pointInTime } from '../arguments.ts';
import { usage } from '../failure.ts';
import type { Run } from '../session.ts';
import { table } from '../text.ts';

const ENDPOINT = 'c2a7f0de-51d4-4c0e-9b7e-0b8f2f6a9d10';
const RECOVERY = '0d4f7a66-1b1e-4f0a-8f7e-5c3f5a0f9b21';

/** What it risks to name outcomes other than `not_sent`. */
const RISK = 'The server may get events twice that were rejected or unknown; it should check event ids.';

type Recovery = Answered<typeof recoveryOperations.read>;
type Options = { from: Date; to?: Date; outcomes?: string[]; dryRun?: boolean };

const isRecoverable = (outcome: string): outcome is Recoverable => RECOVERABLE.some((known) => known === outcome);

const sentOf = ({ sent }: Recovery): number => ENDS.reduce((sum, outcome) => sum + (sent[outcome] ?? 0), 0);

const listed = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(([outcome, count]) => `${count} ${outcome}`)
    .join(', ');

const describe = (one: Recovery): string => {
  const outcomes = listed(one.sent);
  return `${sentOf(one)} of ${one.events} sent again${outcomes === '' ? '' : ` (${outcomes})`}`;
};

const shown = (one: Recovery) => ({ json: one, text: `Recovery ${one.recoveryId} is ${one.state}: ${describe(one)}.` });

export const addRecoveryCommands = (program: Command, endpoint: Command, run: Run): void => {
  endpoint
    .command('recover <endpointId>')
    .description('Send what it missed again, in order; `recovery` shows the progress')
    .requiredOption('--from <time>', 'what ended at this time or later', pointInTime)
    .option('--to <time>', 'and before this time; now if omitted', pointInTime)
    .option('--outcomes <outcomes>', `of ${RECOVERABLE.join(', ')}; not_sent if omitted. ${RISK}`, commaList)
    .option('--dry-run', 'only count')
    .addHelpText('after', example(`endpoint recover ${ENDPOINT} --from 2026-01-31T12:00:00Z --dry-run`))
    .action((endpointId: string, { from, to, outcomes = ['not_sent'], dryRun = false }: Options) => {
      const unknown = outcomes.filter((one) => !isRecoverable(one));
      if (unknown.length > 0)
        throw usage(`--outcomes: there is no ${unknown.join(', ')}; there are ${RECOVERABLE.join(', ')}.`);
      return run(async (api) => {
        const range = { from: from.toISOString(), ...(to && { to: to.toISOString() }) };
        const body = { ...range, outcomes: outcomes.filter(isRecoverable), dryRun };
        const started = await api.call(recoveryOperations.start, { id: endpointId, what: 'endpoint', body });
        const { events, conversations, oldest, byOutcome, recovery } = started;
        const found = `${events} events of ${conversations} conversations`;
        const said = recovery ? `Recovery ${recovery.recoveryId} sends ${found} again` : `${found} would be sent again`;
        const which = oldest === null ? '' : `: ${listed(byOutcome)}; the oldest of ${oldest}`;
        const isRisky = byOutcome.rejected + byOutcome.unknown > 0;
        return { json: started, text: `${said}${which}.${isRisky ? ` ${RISK}` : ''}` };
      });
    });

  const recovery = program.command('recovery').description('What is sent again to an endpoint');

  recovery
    .command('list <endpointId>')
    .description('Recoveries of an endpoint, newest first')
    .addHelpText('after', example(`recovery list ${ENDPOINT}`))
    .action((endpointId: string) =>
      run(async (api) => {
        const { recoveries } = await api.call(recoveryOperations.list, { id: endpointId, what: 'endpoint' });
        const rows = recoveries.map((one) => [one.recoveryId, one.state, one.from, one.to, describe(one)]);
        return {
          json: recoveries,
          text: table(['RECOVERY', 'STATE', 'FROM', 'TO', 'PROGRESS'], rows, 'There is none.'),
        };
      }),
    );

  const verbs = { show: 'read', pause: 'pause', resume: 'resume', cancel: 'cancel' } as const;
  const words = {
    show: 'Show its progress',
    pause: 'Pause it; live events go on',
    resume: 'Resume it',
    cancel: 'Cancel it; what it has not sent stays as it is',
  };
  for (const verb of ['show', 'pause', 'resume', 'cancel'] as const) {
    recovery
      .command(`${verb} <recoveryId>`)
      .description(words[verb])
      .addHelpText('after', example(`recovery ${verb} ${RECOVERY}`))
      .action((id: string) =>
        run(async (api) => shown(await api.call(recoveryOperations[verbs[verb]], { id, what: 'recovery' }))),
      );
  }
};
