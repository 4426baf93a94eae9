import { type RequestHandler, Router } from 'express';
import type { ChannelCalls } from '../assistants/channel-calls.ts';
import type { RateLimiter } from '../assistants/rate-limit.ts';
import type { AssistantStore } from '../assistants/store.ts';
import type { StoredConversation } from '../conversations/conversation.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { EndpointStore } from '../webhooks/endpoint-store.ts';
import type { DeliveryQueue } from '../deliveries/queue.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import type { LiveUpdates } from '../live/live.ts';
import { createOperatorAccess } from '../operators/access.ts';
import type { Audit } from '../operators/audit.ts';
import type { Devices } from '../operators/device.ts';
import type { CannedReplies } from '../inbox/canned-replies.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { Insights } from '../insights/store.ts';
import type { ManagedTags } from '../inbox/managed-tags.ts';
import type { Notes } from '../inbox/notes.ts';
import type { SignInLimits } from '../operators/sign-in-limits.ts';
import type { OperatorStore } from '../operators/store.ts';
import type { TokenStore } from '../operators/token-store.ts';
import type { Logger } from '../platform/logger.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import type { DeliveredReplies } from '../turns/delivered-replies.ts';
import type { TurnLeases } from '../turns/leases.ts';
import type { TurnQueue } from '../turns/queue.ts';
import type { StreamTurn } from '../turns/stream.ts';
import type { Submit } from '../turns/submit.ts';
import { createResourceAccess } from './resource-access.ts';
import { assistantRoutes } from './assistants.ts';
import { auditRoutes } from './audit.ts';
import { type BoardQueues, boardRoutes } from './board.ts';
import { cannedReplyRoutes } from './canned-replies.ts';
import { channelRoutes } from './channel.ts';
import { conversationRoutes } from './conversations.ts';
import { conversationDataRoutes } from './conversation-data.ts';
import { dashboardRoutes } from './dashboard.ts';
import { deliveryRoutes } from './deliveries.ts';
import { endpointRoutes } from './endpoints.ts';
import { inboxRoutes } from './inbox.ts';
import { liveRoutes } from './live.ts';
import { keyRoutes } from './keys.ts';
import { knowledgeRoutes } from './knowledge.ts';
import { managedTagRoutes } from './managed-tags.ts';
import { noteRoutes } from './notes.ts';
import { missRoutes } from './misses.ts';
import { operatorRoutes } from './operators.ts';
import { overviewRoutes } from './overview.ts';
import { playgroundRoutes } from './playground.ts';
import { createOperatorRouter, OPERATOR_PREFIX } from './router.ts';
import { sessionRoutes } from './session.ts';
import { tokenRoutes } from './tokens.ts';
import { turnRoutes } from './turns.ts';

export type OperatorApiDependencies = {
  sessions: RequestHandler[];
  queues: BoardQueues;
  operators: OperatorStore;
  tokens: TokenStore;
  beforeWriting: BeforeWriting;
  audit: Audit;
  assistants: AssistantStore;
  channelCalls: ChannelCalls;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  conversations: ConversationStore;
  inbox: Inbox;
  insights: Insights;
  notes: Notes;
  cannedReplies: CannedReplies;
  managedTags: ManagedTags;
  onErased: (conversation: StoredConversation) => void;
  live: LiveUpdates;
  leases: TurnLeases;
  deliveredReplies: DeliveredReplies;
  turnQueue: TurnQueue;
  deliveryQueue: DeliveryQueue;
  submit: Submit;
  streamTurn: StreamTurn;
  rateLimiter: RateLimiter;
  devices: Devices;
  limits: SignInLimits;
  publicUrl: string | undefined;
  /** True if a provider may have a private address. */
  allowPrivate: boolean;
  /** True if callers use TLS, either to this process or to a proxy before it. */
  tls: boolean;
  logger: Logger;
};

const PAGES = [
  sessionRoutes,
  overviewRoutes,
  assistantRoutes,
  knowledgeRoutes,
  missRoutes,
  keyRoutes,
  channelRoutes,
  endpointRoutes,
  deliveryRoutes,
  inboxRoutes,
  conversationRoutes,
  conversationDataRoutes,
  noteRoutes,
  managedTagRoutes,
  cannedReplyRoutes,
  liveRoutes,
  turnRoutes,
  playgroundRoutes,
  operatorRoutes,
  tokenRoutes,
  auditRoutes,
];

/** The operator API, the queue board and the dashboard (docs/contract.md, Operator API). */
export const operatorApiRoutes = (dependencies: OperatorApiDependencies): Router => {
  const access = createOperatorAccess(dependencies);
  const all = PAGES.flatMap((routes) => routes({ ...dependencies, access }));
  const router = Router({ caseSensitive: true });
  router.use(
    OPERATOR_PREFIX,
    ...dependencies.sessions,
    createOperatorRouter(all, { ...dependencies, access, resourceAccess: createResourceAccess(dependencies) }),
  );
  router.use(boardRoutes({ ...dependencies, access }));
  router.use(dashboardRoutes(dependencies));
  return router;
};
