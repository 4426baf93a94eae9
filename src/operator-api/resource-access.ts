import type { RequestHandler } from 'express';
import type { AssistantStore } from '../assistants/store.ts';
import type { ConversationStore } from '../conversations/store.ts';
import type { DeliveryStore } from '../deliveries/store.ts';
import { operatorOf } from '../operators/access.ts';
import type { CannedReplies } from '../inbox/canned-replies.ts';
import type { Inbox } from '../inbox/inbox.ts';
import { hasAssistant } from '../operators/roles.ts';
import { notFound } from '../platform/errors.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import type { EndpointStore } from '../webhooks/endpoint-store.ts';
import type { Operation, Resource } from './operation.ts';
import { isPlaygroundOf } from './playground.ts';

type Dependencies = {
  assistants: AssistantStore;
  conversations: ConversationStore;
  inbox: Inbox;
  cannedReplies: CannedReplies;
  endpoints: EndpointStore;
  deliveries: DeliveryStore;
  beforeWriting: BeforeWriting;
};

/**
 * Checks whether the caller may use the resource, after authentication and before the body is read. A resource of an
 * assistant that the caller may not use gives 404, like a resource that does not exist. Only the operator of a
 * playground conversation can see it.
 */
export const createResourceAccess = (dependencies: Dependencies) => {
  const { assistants, conversations, inbox, cannedReplies, endpoints, deliveries, beforeWriting } = dependencies;

  const ofConversation = async (id: string, operatorId: string | null): Promise<string | null> => {
    const owner = await inbox.findOwner(id);
    if (!owner) return null;
    const isOwn = operatorId !== null && isPlaygroundOf(operatorId, owner);
    return owner.channel !== 'playground' || isOwn ? owner.assistantId : null;
  };

  /** Finds the id of the resource's assistant, for each kind of resource. Null if the resource does not exist. */
  const find: Record<Resource, (id: string, operatorId: string) => Promise<string | null>> = {
    assistant: async (id) => (await assistants.getAssistant(id)).assistantId,
    conversation: (id) => ofConversation(id, null),
    'conversation or own playground': ofConversation,
    turn: async (id) => (await conversations.findTurn(id))?.conversation.assistantId ?? null,
    'canned reply': async (id) => (await cannedReplies.get(id)).assistantId,
    key: async (id) => (await assistants.getApiKey(id)).assistantId,
    endpoint: async (id) => (await endpoints.getEndpoint(id)).assistantId,
    delivery: async (id) => {
      const found = (await deliveries.findDelivery(id)) ?? (await deliveries.findPending(id));
      return found?.assistantId ?? null;
    },
  };

  return ({ audience, resource }: Operation): RequestHandler =>
    async ({ params: { id } }, res, next) => {
      const operator = operatorOf(res);
      // Owners and unlimited tokens may use every assistant.
      const hasAll = audience === 'owners' && operator.role === 'owner';
      if (resource == null || resource === 'filtered' || hasAll) return next();
      const assistantId = await beforeWriting(find[resource](String(id), operator.operatorId));
      if (assistantId === null || !hasAssistant(operator, assistantId)) throw notFound();
      next();
    };
};

export type ResourceAccess = ReturnType<typeof createResourceAccess>;
