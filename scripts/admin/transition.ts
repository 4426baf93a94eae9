import type { Command } from 'commander';
import { validate } from '../../src/platform/validation.ts';
import type { StoredConversation } from '../../src/conversations/conversation.ts';
import { EscalateRequest } from '../../src/conversations/operations.ts';
import { toEscalationView, toView } from '../../src/conversations/view.ts';
import { createOperatorStore } from '../../src/operators/store.ts';
import { MessageText } from '../../src/turns/turn.ts';
import { color, example, orNothingUnder, shortText, uuid, wholeNumber } from './arguments.ts';
import { ID } from './conversation.ts';
import { usage } from './failure.ts';
import type { Answer, Opened, Run } from './session.ts';
import { plain } from './text.ts';

/** `resolved_by` is an operator: the one named, else the first owner. */
const operatorOr = async ({ mongo }: Opened, given: string | undefined): Promise<string> => {
  if (given !== undefined) return given;
  const owner = await createOperatorStore(mongo).findFirstOwner();
  if (!owner) throw usage('There is no owner yet; give --operator ID.');
  return owner.operatorId;
};

type Changed = { conversation: StoredConversation };

const change = <Result extends Changed>(
  id: string,
  transition: (where: { conversationId: string }) => Promise<Result>,
): Promise<Result> => orNothingUnder('conversation', id, transition({ conversationId: id }));

const stateAnswer = ({ conversation }: Changed): Answer => ({
  json: toView(conversation),
  text: `Conversation ${conversation.conversationId} is ${conversation.status}.`,
});

/** What operators do to conversations. */
export const addTransitionCommands = (conversation: Command, run: Run): void => {
  const command = (form: string, description: string, exampleArguments = '') =>
    conversation
      .command(form)
      .description(description)
      .addHelpText('after', example(`conversation ${form.split(' ')[0] ?? ''} ${ID}${exampleArguments}`));

  command('resolve <conversationId>', 'Resolve a conversation')
    .option('--operator <id>', 'who did (the first owner if left out)', uuid)
    .action((id: string, { operator }: { operator?: string }) =>
      run(async (opened) => {
        const operatorId = await operatorOr(opened, operator);
        return stateAnswer(await change(id, (where) => opened.conversations.transitions.resolve(where, operatorId)));
      }),
    );

  command('reopen <conversationId>', 'Reopen a resolved conversation').action((id: string) =>
    run(async (opened) => stateAnswer(await change(id, opened.conversations.transitions.reopen))),
  );

  command('hand-back <conversationId>', 'Hand an escalated conversation back to the assistant').action((id: string) =>
    run(async (opened) => stateAnswer(await change(id, opened.conversations.transitions.handBack))),
  );

  command('tag <conversationId> <tag>', 'Tag a conversation', ' vip --color "#1e90ff"')
    .option('--color <hex>', 'colour of the tag, like #1e90ff', color)
    .action((id: string, tag: string, options: { color?: string }) => {
      const wanted = { tag: shortText(50)(tag), color: options.color ?? null };
      return run(async (opened) => {
        const { conversation } = await change(id, (where) => opened.conversations.transitions.addTag(where, wanted));
        const tags = conversation.tags.map((one) => plain(one.tag)).join(', ');
        return { json: toView(conversation), text: `Conversation ${id} is tagged ${tags}.` };
      });
    });

  command('reply <conversationId> <text>', 'Write to the visitor as an operator', ' "We are on it."').action(
    (id: string, text: string) =>
      run(async (opened) => {
        const content = validate(MessageText, text);
        const { messageId, seq } = await change(id, (where) =>
          opened.conversations.transitions.replyAsOperator(where, content),
        );
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
      run(async (opened) => {
        validate(EscalateRequest, { reason });
        const input = { ...(reason !== undefined && { reason }), ...(leadScore !== undefined && { leadScore }) };
        const changed = await change(id, (where) => opened.conversations.transitions.escalate(where, input));
        const { conversation } = changed;
        return {
          json: toEscalationView(conversation),
          text: `Conversation ${id} is escalated: ${plain(conversation.escalationReason ?? '')}.`,
        };
      }),
    );
};
