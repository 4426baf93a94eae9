import { randomUUID } from 'node:crypto';
import { conversationModels } from '../../src/conversations/conversation.ts';
import { acceptStatement } from '../../src/conversations/accept.ts';
import { type AnswerableConversation, commitStatement } from '../../src/conversations/commit.ts';
import { act } from '../../src/conversations/state.ts';
import { momentNow } from '../../src/conversations/transitions.ts';
import { dedupeKeyOf } from '../../src/conversations/accept.ts';
import { conversationKeyOf, newPrefixedId } from '../../src/platform/process/ids.ts';
import { updateMany, type UpdateStatement } from '../../src/platform/mongo/mongo.ts';
import { figureOf, type Part } from '../support/figures.ts';
import { openParley, QUESTIONS } from '../../test/kit/parley.ts';
import { cpuMsOf } from '../../test/kit/services.ts';

const SESSIONS = 1_500;
const BATCH = 150;
const NOBODY = () => [];
const ANSWER = 'Open the settings, choose the feature and save it; it works from the next message on.';

type Variant = { name: string; narrow: (statement: UpdateStatement) => UpdateStatement };

/**
 * Measures the CPU of mongod for one accept and one commit, in batches, without other load. The same updates are also
 * measured with a filter by `_id` only. The difference is the cost of the conditions.
 */
const VARIANTS: Variant[] = [
  { name: 'as it is', narrow: (statement) => statement },
  { name: 'found by _id alone', narrow: (statement) => ({ ...statement, q: { _id: statement.q._id } }) },
];

export const statements: Part = async ({ rounds, scale }, say) => {
  say(`statements: ${SESSIONS} accepts and commits, in batches of ${BATCH}`);
  const parley = await openParley('statements');
  const { services } = parley;
  const connection = parley.service.mongo;
  const conversations = conversationModels(connection).conversations.collection;
  const sessions = Array.from({ length: Math.ceil(SESSIONS * scale) }, () => {
    const sessionId = randomUUID();
    const key = conversationKeyOf({ sessionKey: 'bench', sessionId, playground: false });
    return { key, sessionId, conversationId: newPrefixedId(key) };
  });

  const write = async (all: UpdateStatement[]): Promise<number> => {
    const before = cpuMsOf(services.pids.mongod);
    for (let start = 0; start < all.length; start += BATCH) {
      const batch = all.slice(start, start + BATCH);
      const { n } = await updateMany(connection, 'conversations', batch);
      if (n !== batch.length) throw new Error(`${batch.length - n} of ${batch.length} statements matched nothing`);
    }
    return ((cpuMsOf(services.pids.mongod) - before) * 1000) / all.length;
  };

  const turnOf = ({ key, sessionId, conversationId }: (typeof sessions)[number], round: number) => {
    const message = `${QUESTIONS[round % QUESTIONS.length]} (${round})`;
    const ids = { key, conversationId, assistantId: 'bench', sessionId, turnId: newPrefixedId(key) };
    const said = { message, messageId: randomUUID(), language: 'en', dedupeKey: dedupeKeyOf(message) };
    const how = { channel: 'api', reservation: null, async: false, replyTo: 'bench', acceptedAt: new Date() } as const;
    return { ...ids, ...said, ...how };
  };

  const commitOf = (stored: AnswerableConversation): UpdateStatement => {
    const { leadScore, leadBecause } = stored;
    const streaks = { lowConfidenceStreak: 0, engineErrorStreak: 0 };
    const answer = { text: ANSWER, language: 'en', suggestedActions: [], why: { engine: 'retrieval' }, ...streaks };
    const ended = act.endTurn(stored, { kind: 'answered', answer, leadScore, leadBecause }, momentNow());
    return commitStatement(stored, [ended], { receiversOf: NOBODY, compaction: null }).statement;
  };

  const spent = new Map(VARIANTS.map(({ name }) => [name, { accept: [] as number[], commit: [] as number[] }]));
  // The first round creates the conversations and is not counted.
  for (let round = 0; round <= rounds * VARIANTS.length; round += 1) {
    const variant = VARIANTS[round % VARIANTS.length] as Variant;
    const accepts = sessions.map((session) => variant.narrow(acceptStatement(turnOf(session, round), NOBODY)));
    const accept = await write(accepts);
    const reads = await Promise.all(sessions.map(({ key }) => parley.service.conversations.findForAnswer(key)));
    const commit = await write(reads.map((read) => variant.narrow(commitOf(read as NonNullable<typeof read>))));
    if (round === 0) continue;
    spent.get(variant.name)?.accept.push(accept);
    spent.get(variant.name)?.commit.push(commit);
  }
  await conversations.drop();
  const figures = [...spent].flatMap(([name, { accept, commit }]) => [
    figureOf(`statements.accept.${name}`, `mongod: the accept of a turn, ${name}`, 'µs', accept),
    figureOf(`statements.commit.${name}`, `mongod: the commit of a turn, ${name}`, 'µs', commit),
  ]);
  return { figures, detail: {} };
};
