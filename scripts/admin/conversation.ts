import { type Command, Option } from 'commander';
import { type Status, STATUSES, type StoredConversation } from '../../src/conversations/conversation.ts';
import { HISTORY_MAX, historyCursor } from '../../src/conversations/history.ts';
import { toHistoryView, toView } from '../../src/conversations/view.ts';
import { ASSISTANT_OPTION, example, wholeNumber } from './arguments.ts';
import { getAssistant } from './assistant.ts';
import { nothingUnder } from './failure.ts';
import type { Answer, Opened, Run } from './session.ts';
import { fields, plain, table, timeOf } from './text.ts';

export const ID = '3b1e6f1c-0a52-4a57-9d0a-2f8f1f0c7b11';
const LIMIT = 100;

export const findConversation = async (
  { conversations }: Opened,
  conversationId: string,
): Promise<StoredConversation> => {
  const found = await conversations.findById(conversationId);
  if (!found) throw nothingUnder('conversation', conversationId);
  return found;
};

const showHistory = async (opened: Opened, conversationId: string): Promise<Answer> => {
  const conversation = await findConversation(opened, conversationId);
  const page = await opened.conversations.history.readPage(conversation, { limit: HISTORY_MAX });
  const view = toHistoryView(conversation, page, page.next && historyCursor.encode(page.next));
  const { messages, tags, hasMore, nextCursor: _cursor, ...facts } = view;
  const lines = messages.map(
    ({ seq, createdAt, role, content }) => `${seq ?? '…'}  ${timeOf(createdAt)}  ${role}: ${plain(content)}`,
  );
  const head = fields({ ...facts, tags: tags.map(({ tag }) => tag).join(', ') });
  const more = hasMore ? [`… only the first ${HISTORY_MAX} messages are shown`] : [];
  return { json: view, text: [head, '', ...lines, ...more].join('\n') };
};

/** Latest change first: what a person looks for is seldom the oldest. */
const listConversations = async (
  { mongo }: Opened,
  filter: Record<string, unknown>,
  limit: number,
): Promise<Answer> => {
  const rows = await mongo
    .collection<StoredConversation>('conversations')
    .find(filter, { projection: { texts: 0, recent: 0, waiting: 0, outbox: 0, opening: 0 } })
    .sort({ updatedAt: -1, _id: -1 })
    .limit(limit)
    .toArray();
  const views = rows.map((row) => toView(row as StoredConversation));
  const shown = views.map((one) => [
    one.conversationId,
    one.status,
    one.channel,
    one.leadScore,
    one.updatedAt,
    one.sessionId,
  ]);
  const text = table(
    ['CONVERSATION', 'STATUS', 'CHANNEL', 'LEAD', 'UPDATED', 'SESSION'],
    shown,
    'There are no conversations.',
  );
  return { json: views, text };
};

type ListOptions = { assistant: string; session?: string; status?: Status; limit?: number };

/** The commands that look; answers with `conversation`, for those that change. */
export const addConversationCommands = (program: Command, run: Run): Command => {
  const conversation = program.command('conversation').description('Read conversations and work on them');
  conversation
    .command('show <conversationId>')
    .description('Show a conversation with its messages')
    .addHelpText('after', example(`conversation show ${ID}`))
    .action((id: string) => run((opened) => showHistory(opened, id)));

  conversation
    .command('list')
    .description('List conversations of an assistant, latest change first')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--session <id>', 'of this session_id only')
    .addOption(new Option('--status <status>', 'in this state only').choices(STATUSES))
    .option('--limit <count>', `how many at most (${LIMIT} if omitted)`, wholeNumber(1, 10_000))
    .action(({ assistant, session, status, limit = LIMIT }: ListOptions) =>
      run(async (opened) => {
        await getAssistant(opened, assistant);
        const given = { ...(session !== undefined && { sessionId: session }), ...(status !== undefined && { status }) };
        return listConversations(opened, { assistantId: assistant, channel: { $ne: 'playground' }, ...given }, limit);
      }),
    );

  return conversation;
};
