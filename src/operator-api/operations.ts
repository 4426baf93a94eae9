import { alertOperations } from './alerts.ts';
import { assistantOperations } from './assistants.ts';
import { auditOperations } from './audit.ts';
import { cannedReplyOperations } from './canned-replies.ts';
import { channelOperations } from './channel.ts';
import { conversationOperations } from './conversations.ts';
import { conversationDataOperations } from './conversation-data.ts';
import { deliveryOperations } from './deliveries.ts';
import { endpointOperations } from './endpoints.ts';
import { inboxOperations, noteOperations } from './inbox.ts';
import { keyOperations } from './keys.ts';
import { knowledgeOperations } from './knowledge.ts';
import { managedTagOperations } from './managed-tags.ts';
import { liveOperations } from './live.ts';
import { missOperations } from './misses.ts';
import type { Operation } from './operation.ts';
import { operatorOperations } from './operators.ts';
import { overviewOperations } from './overview.ts';
import { playgroundOperations } from './playground.ts';
import { sessionOperations } from './session.ts';
import { sourceOperations } from './sources.ts';
import { tokenOperations } from './tokens.ts';
import { turnOperations } from './turns.ts';
import { usageOperations } from './usage.ts';

/** All operations, for the API documentation. */
export const OPERATIONS: Operation[] = [
  sessionOperations,
  overviewOperations,
  usageOperations,
  alertOperations,
  assistantOperations,
  knowledgeOperations,
  sourceOperations,
  missOperations,
  keyOperations,
  channelOperations,
  endpointOperations,
  deliveryOperations,
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
