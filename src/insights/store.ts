import type { Connection } from 'mongoose';
import type { ChangedConversations } from '../conversations/changed-since.ts';
import type { Logger } from '../process/logger.ts';
import { collectionOf } from '../mongo/mongo.ts';
import { createProject } from './project.ts';
import { createConversationSearch, type ProjectedConversation, searchModel } from './conversation-search.ts';
import { createDeliveryFigures } from './delivery-figures.ts';
import { serverDate } from '../process/clock.ts';
import { createFigures, hourOf } from './figures.ts';
import { createGroupMisses, type Embedding } from './group-misses.ts';
import { createMissStore } from './misses.ts';
import { createPendingMisses } from './pending-misses.ts';
import { createProjectionRound, createProjectionState } from './projection-round.ts';

/** What the service learns from its conversations: search words, figures, and questions without an answer. */
export const createInsights = (connection: Connection) => {
  const search = searchModel(connection);
  const rows = collectionOf<ProjectedConversation>(search);
  const figures = createFigures(connection);
  const misses = createMissStore(connection);
  const pendingMisses = createPendingMisses(connection);
  const states = createProjectionState(connection);

  const eraseAll = async (conversationIds: string[]): Promise<void> => {
    await rows.deleteMany({ _id: { $in: conversationIds } });
    // Before the groups: a question that is being grouped is then either removed here, or found in its group.
    await pendingMisses.eraseConversations(conversationIds);
    await misses.eraseConversations(conversationIds);
  };

  return {
    deliveryFigures: createDeliveryFigures(connection, figures),
    models: [search, figures.model, states.model, misses.model, pendingMisses.model],
    misses,
    pendingMisses,
    figures,
    findByWords: createConversationSearch(connection).findByWords,

    /** Ends a group of misses with a knowledge entry, and counts it as taught. */
    teach: async (assistantId: string, missId: string, entryId: string): Promise<void> => {
      if (!(await misses.markTaught(assistantId, missId, entryId))) return;
      await figures.increment({ assistantId, hour: hourOf(serverDate()), counts: { taught: 1 } });
    },

    /** Erases what was learned from conversations. The figures stay, because they contain no text. */
    eraseConversations: eraseAll,

    /** The projection of this process. `round` does nothing while another process is the leader. */
    openProjection: ({
      token,
      changed,
      logger,
      embedding,
      ...rest
    }: {
      token: string;
      changed: ChangedConversations;
      embedding: Embedding;
      listAssistantIds: () => Promise<string[]>;
      draining: AbortSignal;
      logger: Logger;
    }) => {
      const project = createProject({
        connection,
        changed,
        figures,
        pendingMisses,
        erase: eraseAll,
        logger,
      });
      const round = createProjectionRound({ states, changed, project, ...rest });
      const groupMisses = createGroupMisses(connection, embedding);
      return {
        round: () => round(token),
        groupMisses: () => pendingMisses.group(groupMisses, { draining: rest.draining, logger }),
        release: () => states.release(token),
      };
    },
  };
};

export type Insights = ReturnType<typeof createInsights>;
