import type { Command } from 'commander';
import { alertOperations } from '../../src/insights/http/overview.ts';
import { example } from './arguments.ts';
import type { Run } from './session.ts';
import { table } from './text.ts';

export const addAlertCommands = (program: Command, run: Run): void => {
  const alert = program.command('alert').description('What needs attention');

  alert
    .command('list')
    .description('List alerts, newest first')
    .option('--open', 'only those that are open')
    .addHelpText('after', example('alert list --open'))
    .action(({ open = false }: { open?: boolean }) =>
      run(async (api) => {
        const { alerts } = await api.call(alertOperations.list, { query: open ? { state: 'open' } : {} });
        const rows = alerts.map((one) => [
          one.alertId,
          one.title,
          one.target,
          one.beganAt,
          one.endedAt ?? 'open',
          one.acknowledged?.by ?? null,
        ]);
        const text = table(['ALERT', 'WHAT', 'TARGET', 'SINCE', 'UNTIL', 'SEEN BY'], rows, 'Nothing needs attention.');
        return { json: alerts, text };
      }),
    );

  alert
    .command('acknowledge <alertId>')
    .description('Tell others that you look after it')
    .addHelpText('after', example('alert acknowledge 6f1c0a52-3b1e-4a57-9d0a-2f8f1f0c7b11'))
    .action((id: string) =>
      run(async (api) => {
        const acknowledged = await api.call(alertOperations.acknowledge, { id, what: 'alert' });
        return { json: acknowledged, text: `${acknowledged.title}: acknowledged.` };
      }),
    );
};
