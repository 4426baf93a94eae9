import { alertOperations, overviewOperations } from './overview.ts';
import { exportOperations, importOperations } from './assistant-transfer.ts';
import { assistantOperations } from './assistants.ts';
import { auditOperations, operatorOperations, tokenOperations } from './operators.ts';
import { cannedReplyOperations, managedTagOperations } from './inbox-settings.ts';
import { channelOperations, webChannelOperations } from './channel.ts';
import { conversationDataOperations, conversationOperations } from './conversations.ts';
import { deliveryOperations } from './deliveries.ts';
import { draftOperations } from './drafts.ts';
import { endpointOperations, recoveryOperations } from './endpoints.ts';
import { evaluationOperations } from './evaluations.ts';
import { inboxOperations, liveOperations, noteOperations } from './inbox.ts';
import { keyOperations } from './keys.ts';
import { knowledgeOperations, missOperations } from './knowledge.ts';
import type { Operation } from './operation.ts';
import { playgroundOperations, turnOperations } from './turns.ts';
import { queueOperations } from './queues.ts';
import { questionSetOperations } from './question-sets.ts';
import { sessionOperations } from './session.ts';
import { sourceOperations } from './sources.ts';
import { usageOperations } from './usage.ts';

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
