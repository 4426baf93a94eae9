import type { Connection } from 'mongoose';
import type { ChangedConversations } from '../conversations/changed-since.ts';
import type { Logger } from '../platform/process/logger.ts';
import { collectionOf, type Indexed } from '../platform/mongo/mongo.ts';
import { createProject } from './project.ts';
import {
  createConversationSearch,
  type FindByWords,
  type ProjectedConversation,
  searchModel,
} from './conversation-search.ts';
import { createDeliveryFigures, createFigures, type DeliveryFigures, type Figures, hourOf } from './figures.ts';
import { serverDate } from '../platform/process/clock.ts';
import { createGroupMisses, createPendingMisses, type Embedding, type PendingMisses } from './group-misses.ts';
import { createMissStore, type MissStore } from './misses.ts';
import { createUsage, type Usage } from './usage.ts';
import { createProjectionRound, createProjectionState } from './projection-round.ts';

/** What the service learns from its conversations: search words, figures, and questions without an answer. */
export type Insights = {
  deliveryFigures: DeliveryFigures;
  models: Indexed[];
  misses: MissStore;
  pendingMisses: PendingMisses;
  figures: Figures;
  usage: Usage;
  findByWords: FindByWords;

  /** Marks a group of misses as taught by a knowledge entry, and counts it in the figures. */
  teach: (assistantId: string, missId: string, entryId: string) => Promise<void>;

  /** Erases what was learned from conversations. The figures are kept, because they contain no text. */
  eraseConversations: (conversationIds: string[]) => Promise<void>;

  /** The projection of this process. `round` does nothing while another process is the leader. */
  openProjection: (options: {
    token: string;
    changed: ChangedConversations;
    embedding: Embedding;
    listAssistantIds: () => Promise<string[]>;
    draining: AbortSignal;
    logger: Logger;
  }) => { round: () => Promise<boolean>; groupMisses: () => Promise<void>; release: () => Promise<void> };
};

export const createInsights = (connection: Connection): Insights => {
  const search = searchModel(connection);
  const rows = collectionOf<ProjectedConversation>(search);
  const figures = createFigures(connection);
  const usage = createUsage(connection);
  const misses = createMissStore(connection);
  const pendingMisses = createPendingMisses(connection);
  const states = createProjectionState(connection);

  const eraseAll = async (conversationIds: string[]): Promise<void> => {
    await rows.deleteMany({ _id: { $in: conversationIds } });
    // Pending misses go first: a question that is being grouped meanwhile is then found in its group.
    await pendingMisses.eraseConversations(conversationIds);
    await misses.eraseConversations(conversationIds);
  };

  return {
    deliveryFigures: createDeliveryFigures(connection, figures),
    models: [search, figures.model, usage.model, states.model, misses.model, pendingMisses.model],
    misses,
    pendingMisses,
    figures,
    usage,
    findByWords: createConversationSearch(connection).findByWords,

    teach: async (assistantId, missId, entryId) => {
      if (!(await misses.markTaught(assistantId, missId, entryId))) return;
      await figures.increment({ assistantId, hour: hourOf(serverDate()), counts: { taught: 1 } });
    },

    eraseConversations: eraseAll,

    openProjection: ({ token, changed, logger, embedding, ...rest }) => {
      const project = createProject({
        connection,
        changed,
        figures,
        usage,
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
