import type { RequestHandler } from 'express';
import type { AssistantStore } from '../assistants/store.ts';
import { operatorOf } from '../operators/access.ts';
import type { Inbox } from '../operators/inbox.ts';
import type { Operator } from '../operators/operator.ts';
import { hasAssistant } from '../operators/roles.ts';
import { notFound } from '../platform/errors.ts';
import type { BeforeWriting } from '../platform/mongo-silence.ts';
import type { About } from './operation.ts';
import { isPlaygroundOf } from './playground.ts';

type Dependencies = { assistants: AssistantStore; inbox: Inbox; beforeWriting: BeforeWriting };

/**
 * The door to one assistant and its conversations, behind the sign-in and before the body is read: what is somebody
 * else's is answered like what there is not, whatever was sent. A playground's conversation is in nobody's inbox.
 */
export const createAboutDoor = ({ assistants, inbox, beforeWriting }: Dependencies) => {
  /** Whose assistant that is; null = none's. */
  const assistantOf = async (about: About, id: string, { operatorId }: Operator): Promise<string | null> => {
    if (about === 'assistant') return (await assistants.getAssistant(id)).assistantId;
    const place = await inbox.findPlace(id);
    if (!place) return null;
    const isOwn = about === 'conversation or own playground' && isPlaygroundOf(operatorId, place);
    return place.channel !== 'playground' || isOwn ? place.assistantId : null;
  };

  return (about: About): RequestHandler =>
    async ({ params: { id } }, res, next) => {
      const operator = operatorOf(res);
      const assistantId = await beforeWriting(assistantOf(about, String(id), operator));
      if (assistantId === null || !hasAssistant(operator, assistantId)) throw notFound();
      next();
    };
};

export type AboutDoor = ReturnType<typeof createAboutDoor>;
