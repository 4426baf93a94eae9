import { type RequestHandler, Router } from 'express';
import { type Access, callerOf } from '../assistants/access.ts';
import { invalid } from '../platform/errors.ts';
import { methodNotAllowed, validate } from '../platform/http.ts';
import { jsonBody } from '../platform/json-body.ts';
import type { Submit } from './submit.ts';
import { ChatRequest, IdempotencyKey } from './turn.ts';

const idempotencyKeyOf = (header: string | undefined): string | null => {
  if (header === undefined) return null;
  const parsed = IdempotencyKey.safeParse(header);
  if (!parsed.success) throw invalid('Idempotency-Key', 'invalid', 'must be 1–255 visible ASCII characters');
  return parsed.data;
};

/** Both ways in (contract §1). They differ by the door alone: authentication, limit and channel name. */
export const turnRoutes = ({ access, submit }: { access: Access; submit: Submit }): Router => {
  const answer: RequestHandler = async (req, res) => {
    const { assistant, channel } = callerOf(res);
    const { session_id, message, language } = validate(ChatRequest, req.body);
    const idempotencyKey = idempotencyKeyOf(req.get('Idempotency-Key'));
    const submitted = await submit({
      assistant,
      channel,
      sessionId: session_id,
      message,
      language: language ?? null,
      idempotencyKey,
    });
    if (submitted.replayed) res.set('Idempotent-Replayed', 'true');
    // Recorded only once the response has been written: until then a retry gets the stored reply.
    res.on('finish', submitted.delivered);
    res.json(submitted.response);
  };

  const router = Router({ caseSensitive: true });
  router.route('/api/v1/chat').post(access.byApiKey, jsonBody(), answer).all(methodNotAllowed('POST'));
  router
    .route('/api/v1/channels/webhook/:assistantId')
    .post(access.byChannel, jsonBody(), answer)
    .all(methodNotAllowed('POST'));
  return router;
};
