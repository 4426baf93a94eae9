import { expect, onTestFinished, test } from 'vitest';
import { TIMING } from '../../src/platform/process/time-limits.ts';
import { openProvider, replyWith } from '../kit/provider.ts';
import { anAssistant, anEntry, aTurn } from '../support/builders.ts';
import type { Results } from '../support/evaluate.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { useOpened, useStack } from '../support/stack.ts';
import { collect } from '../support/heap.ts';

const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0, env: { SEMANTIC: 'off' } });
const worker = useOpened(() => stack.startReplyWorker());
const owner = useOpened(() => anOperator(stack));

const VOUCHERS = anEntry({ question: 'Do you sell vouchers?', answer: 'Vouchers cost 20 euros.' });
const EDITS = 4;

test.each([
  { what: 'knowledge', drafts: false },
  { what: 'published version', drafts: true },
])('what waits for a provider keeps no $what that was replaced meanwhile', async ({ drafts }) => {
  const provider = await openProvider();
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  onTestFinished(() => answer());
  provider.behave(async (wire, asked) => {
    await answered;
    return replyWith(VOUCHERS.answer)(wire, asked);
  });
  const { assistantId, chat } = await anAssistant(stack, { input: { drafts }, knowledge: [] });
  const engine = {
    kind: 'openai',
    baseUrl: provider.baseUrl,
    model: 'test-model',
    timeoutMs: TIMING.providerTimeoutMaxMs,
  } as const;
  await stack.service.assistants.setEngine(assistantId, engine);
  const own = `/assistants/${assistantId}`;
  const { setId } = (await owner.post<{ setId: string }>(`${own}/question-sets`, { name: 'Release' })).body;
  const expected = { kind: 'entry', entry: VOUCHERS.question };
  await owner.post(`${own}/question-sets/${setId}/cases`, { question: 'What are your opening hours?', expected });
  const edit = async (hours: string): Promise<void> => {
    const knowledge = [anEntry({ answer: hours }), VOUCHERS];
    await stack.service.assistants.addKnowledge(assistantId, knowledge, { replace: true });
    if (drafts) await owner.post(`${own}/draft/publish`, {});
    worker.assistants.findAssistant.forget(assistantId);
  };
  /** An entry that is in no prompt: the worker's knowledge holds it, and its index. */
  const vouchersOfWorker = async (): Promise<WeakRef<object>> => {
    const { entries } = await worker.assistants.findKnowledge(await worker.assistants.getAssistant(assistantId));
    return new WeakRef(entries.find(({ question }) => question === VOUCHERS.question)!);
  };
  const evaluate = async (): Promise<string> => {
    const begun = await owner.post<{ evaluationId: string }>(`${own}/evaluations`, { setId, tokens: 100_000 });
    return `${own}/evaluations/${begun.body.evaluationId}`;
  };

  const read: WeakRef<object>[] = [];
  let evaluation = '';
  for (let nth = 0; nth < EDITS; nth += 1) {
    const hours = `We are open from ${nth} to 5.`;
    await edit(hours);
    read.push(await vouchersOfWorker());
    if (nth === 0) evaluation = await evaluate();
    else await chat(aTurn(), { headers: { Prefer: 'respond-async' } });
    await eventually(() => expect(provider.asked).toHaveLength(nth + 1));
    expect(provider.asked[nth]?.body.messages[0]?.content).toContain(hours);
    expect(provider.asked[nth]?.body.messages[0]?.content).not.toContain(VOUCHERS.answer);
  }
  await new Promise(setImmediate); // a reference that was made in this tick keeps its object
  collect();

  // The newest is held, for the next turn.
  expect(read.map((one) => one.deref() !== undefined)).toEqual([false, false, false, true]);
  answer();
  await eventually(async () => {
    const { body } = await owner.get<Results>(`${evaluation}/results`);
    // The entries that it had are gone, and those of now may say something else. So a person judges.
    expect(body.results.map(({ reply, verdict }) => [reply, verdict])).toEqual([[VOUCHERS.answer, 'other']]);
  });
});
