import type { Command } from 'commander';
import { conversationDataOperations } from '../../src/inbox/http/conversations.ts';
import { inboxOperations, noteOperations } from '../../src/inbox/http/inbox.ts';
import { example, pointInTime, uuid } from './arguments.ts';
import { ID } from './conversation.ts';
import { usage } from './failure.ts';
import type { Run } from './session.ts';

const oneOf = (conversationId: string) => ({ id: conversationId, what: 'conversation' });

/** Commands for what operators do with a conversation and callers never see. */
export const addHandlingCommands = (conversation: Command, run: Run): void => {
  const command = (form: string, description: string, exampleArguments = '') =>
    conversation
      .command(form)
      .description(description)
      .addHelpText('after', example(`conversation ${form.split(' ')[0] ?? ''} ${ID}${exampleArguments}`));

  command('assign <conversationId>', 'Assign a conversation to an operator', ` --operator ${ID}`)
    .option('--operator <id>', 'who handles it', uuid)
    .option('--nobody', 'it is assigned to nobody')
    .action((id: string, { operator, nobody }: { operator?: string; nobody?: true }) =>
      run(async (api) => {
        if ((operator === undefined) === (nobody === undefined)) throw usage('Give --operator ID or --nobody.');
        const body = { operatorId: operator ?? null };
        const json = await api.call(inboxOperations.assign, { ...oneOf(id), body });
        return { json, text: `Conversation ${id} is assigned to ${json.assigneeId ?? 'nobody'}.` };
      }),
    );

  command('snooze <conversationId>', 'Snooze a conversation until a time', ' --until 2026-12-24T09:00:00Z')
    .option('--until <time>', 'when it comes back', pointInTime)
    .option('--end', 'end the snooze now')
    .action((id: string, { until, end }: { until?: Date; end?: true }) =>
      run(async (api) => {
        if ((until === undefined) === (end === undefined)) throw usage('Give --until TIME or --end.');
        const body = { until: until?.toISOString() ?? null };
        const json = await api.call(inboxOperations.snooze, { ...oneOf(id), body });
        const state = json.snoozedUntil === null ? 'not snoozed' : `snoozed until ${json.snoozedUntil}`;
        return { json, text: `Conversation ${id} is ${state}.` };
      }),
    );

  command('note <conversationId> <text>', 'Add a note that only operators see', ' "Called back at noon."').action(
    (id: string, text: string) =>
      run(async (api) => {
        const json = await api.call(noteOperations.add, { ...oneOf(id), body: { content: text } });
        return { json, text: `Note ${json.noteId} is added to conversation ${id}.` };
      }),
  );

  command('export <conversationId>', 'Print everything that is stored about a conversation, as JSON').action(
    (id: string) =>
      run(async (api) => {
        const json = await api.call(conversationDataOperations.export, oneOf(id));
        return { json, text: JSON.stringify(json, null, 2) };
      }),
  );
};
