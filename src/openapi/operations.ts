import type { PublicOperation } from '../assistants/operation.ts';
import { conversationOperations } from '../chat-api/conversation-operations.ts';
import { turnOperations } from '../chat-api/turn-operations.ts';
import { monitoringOperations } from '../monitoring/operations.ts';

/** Every operation of the public API, for the document and for clients. */
export const PUBLIC_OPERATIONS: PublicOperation[] = [
  turnOperations,
  conversationOperations,
  monitoringOperations,
].flatMap((some) => Object.values<PublicOperation>(some));
