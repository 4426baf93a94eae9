import { type Command, Option } from 'commander';
import { type Status, STATUSES } from '../../src/conversations/conversation.ts';
import { HISTORY_MAX } from '../../src/conversations/history.ts';
import { HistoryView } from '../../src/conversations/view.ts';
import { conversationOperations, ReadView } from '../../src/inbox/http/conversations.ts';
import type { Answered, Api } from './api.ts';
import { ASSISTANT_OPTION, example, wholeNumber } from './arguments.ts';
import { readPages } from './pages.ts';
import type { Answer, Run } from './session.ts';
import { fields, plain, table, timeOf } from './text.ts';

export const ID = '3b1e6f1c-0a52-4a57-9d0a-2f8f1f0c7b11';
const LIMIT = 100;
const PAGE_MAX = 100;

type Read = Answered<typeof conversationOperations.read>;

/** The conversation as API callers see it, without the fields that only operators see. */
const toHistory = (read: Read) => {
  const forOperators = new Set(Object.keys(ReadView.shape).filter((name) => !(name in HistoryView.shape)));
  const history = Object.fromEntries(Object.entries(read).filter(([name]) => !forOperators.has(name)));
  return {
    ...(history as Pick<Read, keyof Read & keyof typeof HistoryView.shape>), // the other fields are left out
    messages: read.messages.map(({ why: _why, ...message }) => message),
  };
};

const showHistory = async (api: Api, id: string): Promise<Answer> => {
  const query = { limit: HISTORY_MAX };
  const view = toHistory(await api.call(conversationOperations.read, { id, what: 'conversation', query }));
  const { messages, tags, hasMore, nextCursor: _cursor, ...facts } = view;
  const lines = messages.map(
    ({ seq, createdAt, role, content }) => `${seq ?? '…'}  ${timeOf(createdAt)}  ${role}: ${plain(content)}`,
  );
  const head = fields({ ...facts, tags: tags.map(({ tag }) => tag).join(', ') });
  const more = hasMore ? [`… only the first ${HISTORY_MAX} messages are shown`] : [];
  return { json: view, text: [head, '', ...lines, ...more].join('\n') };
};

type ListOptions = { assistant: string; session?: string; status?: Status; limit?: number };

/** Lists conversations, the latest change first, because people rarely look for the oldest. */
const listConversations = async (api: Api, { assistant, session, status, limit = LIMIT }: ListOptions) => {
  const one = { id: assistant, what: 'assistant' };
  const views = await readPages(limit, PAGE_MAX, async (page) => {
    const query = { sessionId: session, status, ...page };
    const answer = await api.call(conversationOperations.list, { ...one, query });
    return { rows: answer.conversations, nextCursor: answer.nextCursor };
  });
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

/**
 * Adds the commands that read conversations. Returns the `conversation` command, so that the caller can add the
 * commands that change one.
 */
export const addConversationCommands = (program: Command, run: Run): Command => {
  const conversation = program.command('conversation').description('Read conversations and work on them');
  conversation
    .command('show <conversationId>')
    .description('Show a conversation with its messages')
    .addHelpText('after', example(`conversation show ${ID}`))
    .action((id: string) => run((api) => showHistory(api, id)));

  conversation
    .command('list')
    .description('List conversations of an assistant, latest change first')
    .requiredOption(...ASSISTANT_OPTION)
    .option('--session <id>', 'of this session_id only')
    .addOption(new Option('--status <status>', 'in this state only').choices(STATUSES))
    .option('--limit <count>', `how many at most (${LIMIT} if omitted)`, wholeNumber(1, 10_000))
    .action((options: ListOptions) => run((api) => listConversations(api, options)));

  return conversation;
};
