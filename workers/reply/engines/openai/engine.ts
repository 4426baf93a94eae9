import { createHash } from 'node:crypto';
import type { Dispatcher } from 'undici';
import type { ProviderSettings } from '../../../../src/assistants/engine-settings.ts';
import type { Breaker } from '../../../../src/process/breaker.ts';
import { inSlices } from '../../../../src/process/slices.ts';
import { checkEndpointUrl } from '../../../../src/webhooks/address-guard.ts';
import type { AssistantEngine, EngineReply, TurnContext } from '../engine.ts';
import { type Completion, completeInTime, ProviderError } from './completion.ts';
import { linkActions, sourceOf } from '../retrieval.ts';
import { type Checked, checkReply, type Given } from './citations.ts';
import { buildMessages, choosePassages, countTokensOf, PROMPT_HISTORY, promptEntriesOf } from './prompt.ts';
import { allowedLinksOf, createReplyFilter } from './reply-filter.ts';
import { TIMING } from '../../../../src/process/time-limits.ts';

/** Statuses that are caused by the request itself, so the breaker does not count them as failures of the provider. */
const REQUEST_ERRORS = new Set([400, 413, 422]);

type Dependencies = {
  retrieval: AssistantEngine;
  dispatcher: Dispatcher;
  breaker: Breaker;
  openKey: (sealed: string, assistantId: string) => string;
  allowPrivate: boolean;
};

const rounded = (ms: number): number => Math.round(ms * 10) / 10;
const since = (startedAt: number): number => rounded(performance.now() - startedAt);

/** The most buttons to cited pages. */
const LINKS_MAX = 3;
const UNCHECKED: Checked = { cited: [], flags: [] };

const abortAfterDraining = (draining: AbortSignal): { signal: AbortSignal; clear: () => void } => {
  const stop = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const onDraining = () => {
    timer = setTimeout(() => stop.abort(new ProviderError('stopping')), TIMING.providerStopAfterMs);
  };
  if (draining.aborted) onDraining();
  else draining.addEventListener('abort', onDraining, { once: true });
  const clear = () => {
    clearTimeout(timer);
    draining.removeEventListener('abort', onDraining);
  };
  return { signal: stop.signal, clear };
};

/**
 * The key of the breaker: a hash of everything that an assistant chooses and that may make a call fail. So one
 * assistant's wrong key, model or time limit suspends no other. Without a key, an address may belong to anyone, so the
 * assistant itself is part of it.
 */
const breakerKeyOf = ({ baseUrl, model, timeoutMs }: ProviderSettings, assistantId: string, apiKey: string | null) => {
  const owner = apiKey === null ? { assistantId } : { apiKey };
  return createHash('sha256')
    .update(JSON.stringify([baseUrl, model, timeoutMs, owner]))
    .digest('base64url');
};

/**
 * Answers with an OpenAI-compatible provider. The retrieval engine runs first. The entries it finds go into the prompt.
 * If it hands over to a person, the provider is not called. If the provider fails, the retrieval engine's reply is
 * used.
 */
export const createOpenAiEngine = ({ retrieval, dispatcher, breaker, openKey, allowPrivate }: Dependencies) => {
  const ask = async (turn: TurnContext, settings: ProviderSettings, { passages: found, ...retrieved }: EngineReply) => {
    const { baseUrl, model, apiKeySealed, timeoutMs, temperature, maxTokens, historyTokens } = settings;
    if (!checkEndpointUrl(baseUrl, { allowPrivate }).ok) throw new ProviderError('address_refused');
    const { assistantId } = turn.assistant;
    const apiKey = apiKeySealed === null ? null : openKey(apiKeySealed, assistantId);
    const breakerKey = breakerKeyOf(settings, assistantId, apiKey);
    if (!breaker.tryAcquire(breakerKey)) throw new ProviderError('paused');
    const history = await turn.history(PROMPT_HISTORY);
    const countTokens = await countTokensOf();
    const hits = promptEntriesOf(retrieved, turn);
    const passages = await inSlices(choosePassages(found ?? [], countTokens));
    const counting = { historyTokens, countTokens };
    const messages = await inSlices(buildMessages(turn, { hits, passages, history }, counting));
    const filter = createReplyFilter({
      isAllowed: allowedLinksOf(turn.assistant, hits, passages),
      // A strict assistant says nothing before it is checked.
      emit: (!turn.assistant.strict && turn.onDelta) || (() => undefined),
      cites: passages.length > 0,
    });
    const stop = abortAfterDraining(turn.signal);
    try {
      const completion = await completeInTime(
        {
          assistantId,
          url: `${baseUrl}/chat/completions`,
          headers: {
            'Content-Type': 'application/json',
            Accept: 'text/event-stream',
            ...(apiKey !== null && { Authorization: `Bearer ${apiKey}` }),
          },
          body: JSON.stringify({
            model,
            messages,
            stream: true,
            stream_options: { include_usage: true },
            max_tokens: maxTokens,
            ...(temperature !== null && { temperature }),
          }),
          dispatcher,
          onText: filter.push,
        },
        { timeoutMs, stop: stop.signal },
      );
      const filtered = filter.end();
      if (filtered.text === '') throw new ProviderError('empty');
      breaker.succeeded(breakerKey);
      const { name, instructions } = turn.assistant;
      const said = [turn.message, name, instructions, ...history.map(({ content }) => content)];
      return { completion, filtered, given: { passages, entries: hits, said } };
    } catch (cause) {
      const failure = cause instanceof ProviderError ? cause : new ProviderError('connection', { cause });
      if (failure.kind !== 'stopping' && !REQUEST_ERRORS.has(failure.status ?? 0)) breaker.failed(breakerKey);
      throw failure;
    } finally {
      stop.clear();
    }
  };

  const whyOf = (settings: ProviderSettings, ms: number) => ({
    engine: 'openai',
    model: settings.model,
    providerMs: ms,
  });
  /** The pages that a reply cites, each once, as sources and buttons. */
  const citedIn = ({ passages }: Given, cited: number[]) => {
    const used = cited.flatMap((number) => passages[number - 1] ?? []);
    const sources = used.map(sourceOf);
    return {
      sources,
      actions: linkActions(sources).slice(0, LINKS_MAX),
      why: used.map(({ passage: { passageId, sourceId } }) => ({ passageId, sourceId })),
    };
  };
  const usageOf = ({ usage, finish, firstMs }: Completion) => ({ usage, finish, firstMs: rounded(firstMs) });

  return async (turn: TurnContext, settings: ProviderSettings): Promise<EngineReply> => {
    const retrieved = await retrieval.reply(turn);
    if (retrieved.escalate) return retrieved;
    const startedAt = performance.now();
    const { kind: _kind, ...retrievalWhy } = retrieved.why;
    try {
      const { completion, filtered, given } = await ask(turn, settings, retrieved);
      const { text, withCitations, unsure, removedLinks } = filtered;
      const isChecked = given.passages.length > 0 || turn.assistant.strict === true;
      const { cited, flags } =
        isChecked && !unsure ? await inSlices(checkReply(withCitations, given, turn.language)) : UNCHECKED;
      const flagged = flags.length > 0 && { flagged: flags };
      if (flagged && turn.assistant.strict) {
        // The provider did not fail, so this is no fall-back.
        return { ...retrieved, why: { ...retrieved.why, ...flagged, strict: true, providerMs: since(startedAt) } };
      }
      const { sources, actions, why: citedWhy } = citedIn(given, cited);
      return {
        text,
        suggestedActions: unsure ? retrieved.suggestedActions.filter(({ type }) => type === 'escalate') : actions,
        sources,
        confidence: unsure ? 0 : 1,
        low: unsure,
        language: turn.language,
        why: {
          ...retrievalWhy,
          ...whyOf(settings, since(startedAt)),
          ...usageOf(completion),
          ...(unsure && { unsure }),
          ...(removedLinks > 0 && { removedLinks }),
          ...(citedWhy.length > 0 && { cited: citedWhy }),
          ...flagged,
        },
      };
    } catch (cause) {
      if (cause instanceof ProviderError && cause.kind === 'stopping') throw cause;
      const { kind, status } = cause instanceof ProviderError ? cause : new ProviderError('connection', { cause });
      const fallBack = { from: 'openai', because: kind, ...(status !== null && { status }) };
      return { ...retrieved, why: { ...retrieved.why, fallBack, providerMs: since(startedAt) } };
    }
  };
};
