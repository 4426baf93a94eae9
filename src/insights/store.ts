import type { Connection } from 'mongoose';
import type { Logger } from '../platform/logger.ts';
import { collectionOf } from '../platform/mongo.ts';
import { createChangedConversations } from './changed-conversations.ts';
import { createConversationSearch, type ProjectedConversation, searchModel } from './conversation-search.ts';
import { createFigures } from './figures.ts';
import { createProject } from './project.ts';
import { createProjectionRound } from './projection-round.ts';
import { createProjectionState } from './projection-state.ts';

/** What the service learns from its conversations: search words and figures. */
export const createInsights = (connection: Connection) => {
  const search = searchModel(connection);
  const rows = collectionOf<ProjectedConversation>(search);
  const figures = createFigures(connection);
  const states = createProjectionState(connection);

  const eraseAll = async (conversationIds: string[]): Promise<void> => {
    await rows.deleteMany({ _id: { $in: conversationIds } });
  };

  return {
    models: [search, figures.model, states.model],
    figures,
    findByWords: createConversationSearch(connection).findByWords,

    /** Erases what was learned from conversations. The figures stay, because they contain no text. */
    eraseConversations: eraseAll,

    /** The projection of this process. `round` does nothing while another process is the leader. */
    openProjection: ({
      token,
      logger,
      ...rest
    }: {
      token: string;
      listAssistantIds: () => Promise<string[]>;
      draining: AbortSignal;
      logger: Logger;
    }) => {
      const changed = createChangedConversations(connection);
      const project = createProject({ connection, changed, figures, erase: eraseAll, logger });
      const round = createProjectionRound({ states, changed, project, ...rest });
      return { round: () => round(token), release: () => states.release(token) };
    },
  };
};

export type Insights = ReturnType<typeof createInsights>;
