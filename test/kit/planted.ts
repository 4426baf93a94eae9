/**
 * Faults planted into the running code, one at a time, to show that the tests notice them. `PLANT=name vitest run …`
 * rewrites the source as it is loaded. The product itself has no switch for this.
 */
export type Fault = { file: string; from: string; to: string; noticedBy: string };

export const FAULTS: Record<string, Fault[]> = {
  'de-duplication off': [
    {
      file: 'src/conversations/accept.ts',
      from: '.update(message)',
      to: '.update(message + Math.random())',
      noticedBy: 'test/chat/retries.test.ts',
    },
  ],
  'order off': [
    {
      file: 'src/conversations/accept.ts',
      from: "waiting: append('$waiting', [pending]),",
      to: "waiting: { $concatArrays: [literal([pending]), { $cond: [IS_NEW, [], { $ifNull: ['$waiting', []] }] }] },",
      noticedBy: 'test/turns/order.process.test.ts',
    },
  ],
  'turn id not in the filter': [
    {
      file: 'src/conversations/accept.ts',
      from: "'waiting.turnId': { $ne: turnId },",
      to: '',
      noticedBy: 'test/conversations/unknown-outcome.process.test.ts',
    },
    {
      file: 'src/conversations/accept.ts',
      from: "'recent.turnId': { $ne: turn.turnId },",
      to: '',
      noticedBy: 'test/conversations/unknown-outcome.process.test.ts',
    },
  ],
  'told before stored': [
    {
      file: 'src/replies/answer-turn.ts',
      from: 'const committed = await conversations.commit(read, ended, steps);',
      to: 'for (const one of ended) announceEnd(read, one); const committed = await conversations.commit(read, ended, steps);',
      noticedBy: 'test/conversations/states.test.ts',
    },
  ],
  'claim off': [
    {
      file: 'src/events/claims.ts',
      from: 'const inserted = reply !== null && error === undefined;',
      to: 'const inserted = reply !== null;',
      noticedBy: 'test/turns/queue-rules.test.ts',
    },
  ],
  'batch not tried apart': [
    {
      file: 'src/platform/process/batch.ts',
      from: 'if (batch.length === 1 || isShared(cause)) {',
      to: 'if (batch.length > 0 || isShared(cause)) {',
      noticedBy: 'test/process/batch.unit.test.ts',
    },
  ],
  'commit split in two': [
    {
      file: 'src/conversations/commit.ts',
      from: 'items.map(({ statement }) => statement);',
      to: 'items.map(({ statement: { q, u: { $pop: _one, $pull: _some, ...u } } }) => ({ q, u }));',
      noticedBy: 'test/turns/queue-rules.test.ts',
    },
    {
      file: 'src/conversations/commit.ts',
      from: 'if (n === items.length) return items.map(() => true);',
      to: "await new Promise((done) => setTimeout(done, 5)); await updateMany(connection, 'conversations', items.map(({ key }) => ({ q: { _id: key }, u: { $pop: { waiting: -1 } } }))); if (n === items.length) return items.map(() => true);",
      noticedBy: 'test/turns/queue-rules.test.ts',
    },
  ],
  'a revoked key works': [
    {
      file: 'src/assistants/api-keys.ts',
      from: "{ 'previous.hash': hash }], revokedAt: null }",
      to: "{ 'previous.hash': hash }] }",
      noticedBy: 'test/chat/chat.test.ts',
    },
  ],
  'a rotated key works after its overlap': [
    {
      file: 'src/assistants/api-keys.ts',
      from: 'return until.getTime() > serverNow() ? key : null',
      to: 'return key',
      noticedBy: 'test/operators/api.test.ts',
    },
  ],
  'any secret address of a channel works': [
    {
      file: 'src/assistants/channel.ts',
      from: 'secretAddress ? isSecretOf(secretAddress.hash, secret) : false',
      to: 'Boolean(secretAddress) && secret.length > 0',
      noticedBy: 'test/chat/channel-calls.test.ts',
    },
  ],
  'a limit counts and never refuses': [
    {
      file: 'src/assistants/rate-limit.ts',
      from: 'if (counted.consumed <= limit) return state;',
      to: 'if (counted.consumed <= limit * 1000) return state;',
      noticedBy: 'test/chat/limits.test.ts',
    },
  ],
  'a body has no limit': [
    {
      file: 'src/platform/http/json-body.ts',
      from: 'if (size > limitBytes) throw tooLarge(limitBytes);',
      to: '',
      noticedBy: 'test/chat/bodies.test.ts',
    },
  ],
  'a page of history has no bytes': [
    {
      file: 'src/conversations/history.ts',
      from: 'if (messages.length === limit || (messages.length > 0 && bytes > HISTORY_MAX_BYTES)) return false;',
      to: 'if (messages.length === limit) return false;',
      noticedBy: 'test/http/bytes.test.ts',
    },
  ],
  'a read token writes': [
    {
      file: 'src/operators/access.ts',
      from: "if (scope === 'read' && method !== 'get') refuse('This operator token may only read.');",
      to: '',
      noticedBy: 'test/operators/tokens.test.ts',
    },
  ],
  'a limited token reaches other assistants': [
    {
      file: 'src/api/operator-routes.ts',
      from: 'if (assistantId === null || !hasAssistant(operator, assistantId)) throw notFound();',
      to: 'if (assistantId === null) throw notFound();',
      noticedBy: 'test/operators/token-reach.test.ts',
    },
  ],
  'private addresses are public': [
    {
      file: 'src/platform/http/address-guard.ts',
      from: 'if (allowPrivate) return { ok: true, url };',
      to: 'return { ok: true, url };',
      noticedBy: 'test/events/address-guard.test.ts',
    },
  ],
  'the time is not signed': [
    {
      file: 'src/events/signature.ts',
      from: '.update(`${timestamp}.`)',
      to: '',
      noticedBy: 'test/events/signature.unit.test.ts',
    },
  ],
  'a pause is ignored': [
    {
      file: 'src/events/sending/deliver.ts',
      from: 'isPaused(endpoint, serverNow()) || breaker.isSuspended(endpoint._id)',
      to: 'breaker.isSuspended(endpoint._id)',
      noticedBy: 'test/events/streams.test.ts',
    },
  ],
  '410 does not pause': [
    {
      file: 'src/events/sending/dispatch.ts',
      from: 'if (status === 410) return',
      to: 'if (status === 599) return',
      noticedBy: 'test/events/streams.test.ts',
    },
  ],
  'an unsure answer is given': [
    {
      file: 'packages/understanding/src/understanding.ts',
      from: 'if (best && confidence >= threshold) {',
      to: 'if (best) {',
      noticedBy: 'test/assistant/retrieval.unit.test.ts',
    },
  ],
  'a session floods': [
    {
      file: 'src/platform/http/request-slots.ts',
      from: 'own < OF_ONE_SESSION',
      to: 'own < 200',
      noticedBy: 'test/http/session-floods.test.ts',
    },
  ],
  'the list of events shows every end at once': [
    {
      file: 'src/events/store.ts',
      from: '(ts.getHighBits() >>> 0) - Math.ceil(writtenWithinMs / 1000)',
      to: '(ts.getHighBits() >>> 0) + 1',
      noticedBy: 'test/events/late-ends.process.test.ts',
    },
  ],
  'a budget refuses nothing': [
    {
      file: 'src/turns/allowances.ts',
      from: '{ $cond: [{ $lte: [amount, left] }, amount, 0] }',
      to: '{ $literal: amount }',
      noticedBy: 'test/turns/allowance-kills.process.test.ts',
    },
  ],
  'pages outlive an erasure': [
    {
      file: 'src/conversations/erasure.ts',
      from: '    await pages.erase(erased.conversationId, until);\n',
      to: '',
      noticedBy: 'test/conversations/states.test.ts',
    },
  ],
};

/** A Vite plugin that plants the fault. It throws if the text to replace is missing, to reveal an outdated fault. */
export const plantFault = (name: string) => {
  const faults = FAULTS[name];
  if (!faults) throw new Error(`there is no fault "${name}"; there are: ${Object.keys(FAULTS).join(', ')}`);
  return {
    name: 'plant a fault',
    enforce: 'pre' as const,
    transform: (code: string, id: string): string | undefined => {
      const here = faults.filter(({ file }) => id.endsWith(`/${file}`));
      if (here.length === 0) return undefined;
      return here.reduce((text, { file, from, to }) => {
        if (!text.includes(from)) throw new Error(`"${name}": ${file} has changed, the fault no longer fits`);
        return text.replace(from, () => to);
      }, code);
    },
  };
};
