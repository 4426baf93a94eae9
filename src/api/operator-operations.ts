import { alertOperations, overviewOperations } from '../insights/http/overview.ts';
import { exportOperations, importOperations } from '../assistants/http/transfer.ts';
import { assistantOperations } from '../assistants/http/assistants.ts';
import { auditOperations, operatorOperations, tokenOperations } from '../operators/http/operators.ts';
import { cannedReplyOperations, managedTagOperations } from '../inbox/http/settings.ts';
import { channelOperations, webChannelOperations } from '../assistants/http/channel.ts';
import { conversationDataOperations, conversationOperations } from '../inbox/http/conversations.ts';
import { deliveryOperations } from '../events/http/deliveries.ts';
import { draftOperations } from '../assistants/drafts/http.ts';
import { endpointOperations, recoveryOperations } from '../events/http/endpoints.ts';
import { evaluationOperations } from '../evaluation/http/evaluations.ts';
import { inboxOperations, liveOperations, noteOperations } from '../inbox/http/inbox.ts';
import { keyOperations } from '../assistants/http/keys.ts';
import { knowledgeOperations, missOperations } from '../assistants/knowledge/http.ts';
import type { Operation } from '../operators/operation.ts';
import { playgroundOperations, turnOperations } from '../turns/http/operator-turns.ts';
import { queueOperations } from '../alerts/http/queues.ts';
import { questionSetOperations } from '../evaluation/http/question-sets.ts';
import { sessionOperations } from '../operators/http/session.ts';
import { sourceOperations } from '../sources/http.ts';
import { usageOperations } from '../insights/http/usage.ts';

/** All operations, for the API documentation. */
export const OPERATIONS: Operation[] = [
  sessionOperations,
  overviewOperations,
  usageOperations,
  alertOperations,
  queueOperations,
  assistantOperations,
  exportOperations,
  importOperations,
  knowledgeOperations,
  draftOperations,
  sourceOperations,
  missOperations,
  questionSetOperations,
  evaluationOperations,
  keyOperations,
  channelOperations,
  webChannelOperations,
  endpointOperations,
  deliveryOperations,
  recoveryOperations,
  inboxOperations,
  conversationOperations,
  conversationDataOperations,
  noteOperations,
  managedTagOperations,
  cannedReplyOperations,
  liveOperations,
  turnOperations,
  playgroundOperations,
  operatorOperations,
  tokenOperations,
  auditOperations,
].flatMap((page) => Object.values<Operation>(page));
