import type { Command } from 'commander';
import { conversationOperations } from '../../src/inbox/http/conversations.ts';
import type { Answered } from './api.ts';
import { color, example, shortText, uuid, wholeNumber } from './arguments.ts';
import { ID } from './conversation.ts';
import { Failure, notFoundFailure, usage } from './failure.ts';
import type { Answer, Run } from './session.ts';
import { plain } from './text.ts';

type Conversation = Answered<typeof conversationOperations.resolve>;

const oneOf = (conversationId: string) => ({ id: conversationId, what: 'conversation' });

const stateAnswer = (conversation: Conversation): Answer => ({
  json: conversation,
  text: `Conversation ${conversation.conversationId} is ${conversation.status}.`,
});

/**
 * If no operator is named, the service records the change under the first owner. If there is no owner, the error asks
 * the person at the terminal to name an operator.
 */
const orNameOperator =
  (named: string | undefined) =>
  (cause: unknown): never => {
    if (!(cause instanceof Failure) || cause.field !== 'operatorId') throw cause;
    throw named === undefined
      ? usage('There is no owner yet who could have resolved it: give --operator ID.')
      : notFoundFailure('operator', named);
  };

/** Commands that change a conversation. */
export const addTransitionCommands = (conversation: Command, run: Run): void => {
  const command = (form: string, description: string, exampleArguments = '') =>
    conversation
      .command(form)
      .description(description)
      .addHelpText('after', example(`conversation ${form.split(' ')[0] ?? ''} ${ID}${exampleArguments}`));

  command('resolve <conversationId>', 'Resolve a conversation')
    .option('--operator <id>', 'who resolved it (the first owner if omitted)', uuid)
    .action((id: string, { operator }: { operator?: string }) =>
      run(async (api) => {
        const body = { ...(operator !== undefined && { operatorId: operator }) };
        const resolved = api.call(conversationOperations.resolve, { ...oneOf(id), body });
        return stateAnswer(await resolved.catch(orNameOperator(operator)));
      }),
    );

  command('reopen <conversationId>', 'Reopen a resolved conversation').action((id: string) =>
    run(async (api) => stateAnswer(await api.call(conversationOperations.reopen, oneOf(id)))),
  );

  command('hand-back <conversationId>', 'Hand an escalated conversation back to the assistant').action((id: string) =>
    run(async (api) => stateAnswer(await api.call(conversationOperations.handBack, oneOf(id)))),
  );

  command('tag <conversationId> <tag>', 'Tag a conversation', ' vip --color "#1e90ff"')
    .option('--color <hex>', 'colour of the tag, like #1e90ff', color)
    .action((id: string, tag: string, options: { color?: string }) => {
      const body = { tag: shortText(50)(tag), color: options.color ?? null };
      return run(async (api) => {
        const conversation = await api.call(conversationOperations.addTag, { ...oneOf(id), body });
        const tags = conversation.tags.map((one) => plain(one.tag)).join(', ');
        return { json: conversation, text: `Conversation ${id} is tagged ${tags}.` };
      });
    });

  command('reply <conversationId> <text>', 'Write to the visitor as an operator', ' "We are on it."').action(
    (id: string, text: string) =>
      run(async (api) => {
        const body = { content: text };
        const { messageId, seq } = await api.call(conversationOperations.reply, { ...oneOf(id), body });
        return {
          json: { conversationId: id, messageId, seq },
          text: `Message ${messageId} is number ${seq} of conversation ${id}.`,
        };
      }),
  );

  command(
    'escalate <conversationId>',
    'Escalate a conversation to a person',
    ' --reason "asked by phone" --lead-score 80',
  )
    .option('--reason <text>', 'why (1–500 characters)')
    .option('--lead-score <score>', 'replaces the stored one (0–100)', wholeNumber(0, 100))
    .action((id: string, { reason, leadScore }: { reason?: string; leadScore?: number }) =>
      run(async (api) => {
        const body = { ...(reason !== undefined && { reason }), ...(leadScore !== undefined && { leadScore }) };
        const escalated = await api.call(conversationOperations.escalate, { ...oneOf(id), body });
        const { conversationId, status, leadScore: score, language, escalatedAt } = escalated;
        const why = escalated.escalationReason ?? '';
        return {
          json: { conversationId, status, reason: why, leadScore: score, language, escalatedAt },
          text: `Conversation ${id} is escalated: ${plain(why)}.`,
        };
      }),
    );
};
