import type { Job, JobType, Queue } from 'bullmq';
import type { WorkerSigns } from '../worker-signs.ts';
import type { AssistantStore } from '../../assistants/store.ts';
import type { PendingTurn, StoredConversation } from '../../conversations/conversation.ts';
import type { Outbox } from '../../conversations/outbox.ts';
import type { ConversationStore, FoundTurn, TurnConversation } from '../../conversations/store.ts';
import type { DeliveryStore } from '../../events/store.ts';
import { pendingRowsOf } from '../../events/list.ts';
import { type DeliveryListRow, type ListedDelivery, toDeliveryRow } from '../../events/view.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { conversationKeyOf, isUuid } from '../../platform/process/ids.ts';
import { mapAtMost } from '../../platform/process/slots.ts';
import type { SourceStore } from '../../sources/store.ts';
import type { TurnLeases } from '../../turns/leases.ts';
import { type EndpointStore, isPaused } from '../../events/endpoints.ts';
import { serverNow } from '../../platform/process/clock.ts';
import type { Service } from '../../service.ts';
import { isOthersPlayground } from '../../turns/http/operator-turns.ts';

/** How many jobs of a state are looked through. A job is only a wake-up, so nothing is missing without it. */
const JOBS_LOOKED_AT = 100;
const JOB_STATES: JobType[] = ['active', 'waiting', 'failed', 'completed'];
/** Redis may be unavailable, and the truth is in MongoDB. */
const ASKED_WITHIN_MS = 1_000;
/** At most so many events of a conversation, and sessions of this name, are told. */
const TOLD_MAX = 20;
/** A session is looked for in so many assistants, in some at once: the keys of all take a process tens of milliseconds. */
const ASSISTANTS_MAX = 10_000;
const SESSIONS_AT_ONCE = 100;
const EXPIRY = 'Ten minutes after it happened it ends as not sent.';

type Holder = { worker: string; host: string | null; pid: number | null; heardAt: Date | null; until: Date | null };
type FoundJob = { queue: string; jobId: string; state: string; addedAt: Date; page: string };

/** A piece of work: where it is, since when, why, who has it, and what happens next. */
export type Work = {
  kind: 'conversation' | 'turn' | 'delivery' | 'source';
  id: string;
  assistantId: string;
  conversationId: string | null;
  state: string;
  since: Date | null;
  why: string;
  next: string;
  holder: Holder | null;
  job: FoundJob | null;
};

export type FindingWork = {
  assistants: Pick<AssistantStore, 'listAssistantIds' | 'listSessionKeys'>;
  conversations: Pick<ConversationStore, 'findById' | 'findOfSession' | 'findTurn' | 'inbox' | 'outbox'>;
  deliveries: Pick<DeliveryStore, 'findDelivery' | 'findOfEvent' | 'readByIds'>;
  endpoints: Pick<EndpointStore, 'readForSending'>;
  sources: Pick<SourceStore, 'findAny'>;
  workerSigns: Pick<WorkerSigns, 'listHeard'>;
  leases: Pick<TurnLeases, 'findHolder'>;
  queues: Service['queues'];
};

/** What the board shows of a conversation: the beginning of its id. */
const SHORT_ID = /^([0-9a-f]{8}-[0-9a-f]{4})(?:-…?)?$/;
const DELIVERY_ID = /^[0-9a-f-]{36}:[0-9a-f-]{36}(?::\d{1,3})?$/;

const OUTCOMES: Record<string, string> = {
  delivered: 'The receiver has it.',
  rejected: 'The receiver refused it.',
  not_sent: 'It was not sent.',
  unknown: 'Nobody knows whether the receiver got it.',
};

/**
 * Finds the work that has this id, for an operator: nobody sees the playground of others. What is said comes from
 * MongoDB, by `_id` or another index. Redis only adds leases and jobs.
 */
export const findWork = async (dependencies: FindingWork, text: string, operatorId: string): Promise<Work[]> => {
  const { assistants, conversations, deliveries, endpoints, sources, workerSigns, leases, queues } = dependencies;

  /** The signs of life, and the jobs of a queue, are read at most once for each search. */
  let heard: ReturnType<typeof workerSigns.listHeard> | undefined;
  const holderOf = async (worker: string, until: Date | null): Promise<Holder> => {
    const sign = (await (heard ??= workerSigns.listHeard())).find((one) => one.worker === worker);
    return { worker, host: sign?.host ?? null, pid: sign?.pid ?? null, heardAt: sign?.at ?? null, until };
  };

  const known = new Map<Queue, Promise<Job[]>>();
  const jobsOf = (queue: Queue): Promise<Job[]> => {
    const reading = known.get(queue) ?? queue.getJobs(JOB_STATES, 0, JOBS_LOOKED_AT - 1);
    known.set(queue, reading);
    return withDeadline(reading, ASKED_WITHIN_MS);
  };

  const jobIn = async <Data>(queue: Queue<Data>, isIt: (data: Partial<Data>) => boolean): Promise<FoundJob | null> => {
    // A job is undefined if it was removed after the ids were listed.
    const isOurs = (job: Job<Data> | undefined): boolean => job !== undefined && isIt(job.data);
    const job = (await jobsOf(queue as Queue).catch(() => [])).find(isOurs);
    if (!job?.id) return null;
    const all = Object.values<{ queues: unknown[] }>(queues).find((one) => one.queues.includes(queue))?.queues ?? [];
    const shown = all.length > 1 ? `${all.indexOf(queue)}:${queue.name}` : queue.name;
    const page = `/operator/queues/queue/${encodeURIComponent(shown)}/${encodeURIComponent(job.id)}`;
    const state = await withDeadline(job.getState(), ASKED_WITHIN_MS).catch(() => 'unknown');
    return { queue: queue.name, jobId: job.id, state, addedAt: new Date(job.timestamp), page };
  };

  const jobOfTurn = (key: string, turnId: string): Promise<FoundJob | null> =>
    jobIn(queues.turns.of(key), ({ turns = [] }) => turns.some((one) => one.turnId === turnId));

  /** A turn that waits: the head is answered, and the others wait for it. */
  const pendingWork = async (
    { _id: key, ...of }: TurnConversation,
    turn: PendingTurn,
    before: number,
  ): Promise<Work> => {
    const { turnId, acceptedAt: since } = turn;
    const { assistantId, conversationId } = of;
    const it = { kind: 'turn' as const, id: turnId, assistantId, conversationId, since };
    if (before > 0) {
      const why = `The turns of a session are answered one at a time, and ${before} are before it.`;
      return { ...it, state: 'waits', why, next: 'It is answered after them.', holder: null, job: null };
    }
    const leasing = leases.findHolder({ key, turnId });
    const lease = await withDeadline(leasing, ASKED_WITHIN_MS).catch(() => null);
    const job = await jobOfTurn(key, turnId);
    if (lease) {
      const why = 'A reply worker has its lease, and renews it every few seconds.';
      const next = 'The reply is stored. If the worker dies, the lease ends and another one answers.';
      return { ...it, state: 'is being answered', why, next, holder: await holderOf(lease.worker, lease.until), job };
    }
    const isQueued = job !== null && ['waiting', 'active'].includes(job.state);
    if (!isQueued && turn.quick && turn.quick.atLatest.getTime() > serverNow()) {
      const why = 'Messages that come quickly are answered together, so it waits for another one.';
      const next = `All are answered by ${turn.quick.atLatest.toISOString()}, or sooner if nothing comes.`;
      return { ...it, state: 'waits', why, next, holder: null, job };
    }
    const why = isQueued
      ? 'No worker has taken it yet: its job waits in the queue.'
      : 'No worker has it, and it has no job.';
    const next = isQueued ? 'A reply worker takes the job.' : 'A sweep of a worker makes a job within seconds.';
    return { ...it, state: 'waits', why, next, holder: null, job };
  };

  const workOfTurn = async (found: FoundTurn): Promise<Work> => {
    const { conversation } = found;
    if (found.state === 'pending') {
      const whole = found.head ? null : await conversations.findById(conversation.conversationId);
      const at = whole?.waiting.findIndex(({ turnId }) => turnId === found.turn.turnId) ?? 0;
      return pendingWork(conversation, found.turn, Math.max(at, found.head ? 0 : 1));
    }
    const { assistantId, conversationId } = conversation;
    const { turnId: id, outcome, finishedAt, mergedInto } = found.turn;
    const failed = outcome === 'failed';
    return {
      kind: 'turn',
      id,
      assistantId,
      conversationId,
      state: outcome,
      since: finishedAt ?? null,
      why: failed
        ? 'It failed three times through a fault of the service.'
        : mergedInto === undefined
          ? 'Its reply is stored.'
          : 'The reply to a later message answers it too.',
      next: failed ? 'A retry of its caller resumes it.' : 'Nothing.',
      holder: null,
      job: await jobOfTurn(conversation._id, id),
    };
  };

  /** What a delivery that has not ended waits for. */
  const waitOf = async (
    { endpointId, event }: ListedDelivery,
    isFirst: boolean,
  ): Promise<[why: string, next: string]> => {
    const endpoint = await endpoints.readForSending(endpointId);
    if (!endpoint?.enabled) return ['Its endpoint is off or was removed.', 'It ends as not sent.'];
    if (isPaused(endpoint, serverNow())) {
      const until = endpoint.pause?.until?.toISOString();
      return [
        endpoint.pause?.reason === 'gone'
          ? 'Its endpoint is paused: it answered 410.'
          : 'Its endpoint asked for a pause.',
        until === undefined ? 'It is sent when somebody resumes the endpoint.' : `It is sent after ${until}.`,
      ];
    }
    if (!isFirst)
      return ['Events of a conversation are sent in order, and others are before it.', 'It is sent after them.'];
    if (endpoint.failing)
      return [
        `None of its endpoint’s events was delivered since ${endpoint.failing.toISOString()}.`,
        `A delivery worker sends it: after five failures to connect it tries again every 30 s. ${EXPIRY}`,
      ];
    if (endpoint.ratePerSecond)
      return [
        `Its endpoint gets at most ${endpoint.ratePerSecond} events a second, and others may be before it.`,
        `A delivery worker sends it when its turn comes. ${EXPIRY}`,
      ];
    const what = event === 'webhook.test' ? 'test' : 'event';
    return [
      `No delivery worker has taken this ${what} yet.`,
      'A delivery worker takes it: by its job, or by a sweep within seconds.',
    ];
  };

  const workOfDelivery = async (
    row: ListedDelivery,
    {
      record,
      key,
      isFirst = true,
    }: { record?: DeliveryListRow | undefined; key?: string | undefined; isFirst?: boolean },
  ): Promise<Work> => {
    const { deliveryId: id, assistantId, conversationId, outcome, endedAt, errorKind, errorDetail, status } = row;
    const it = { kind: 'delivery' as const, id, assistantId, conversationId };
    const job = await jobIn(
      queues.deliveries.of(key ?? id),
      (data) =>
        data.deliveries?.includes(id) === true || (key !== undefined && data.conversations?.includes(key) === true),
    );
    if (outcome === 'sending' && record) {
      const why = 'A delivery worker has claimed it, and sends it.';
      const next = 'Its outcome is stored. If the worker dies, it ends as unknown within 12 s.';
      const holder = record.worker === null ? null : await holderOf(record.worker, null);
      return { ...it, state: 'is being sent', since: record.createdAt, why, next, holder, job };
    }
    if (outcome === 'queued' || outcome === 'sending') {
      const [why, next] = await waitOf(row, isFirst);
      return { ...it, state: 'waits', since: row.happenedAt, why, next, holder: null, job };
    }
    const because = [errorKind?.replaceAll('_', ' '), status, errorDetail].filter((one) => one != null).join(', ');
    const why = `${OUTCOMES[outcome] ?? ''}${because === '' ? '' : ` (${because})`}`;
    const next =
      outcome === 'delivered' ? 'Nothing.' : 'Nothing by itself: resend it, or recover what the endpoint missed.';
    return { ...it, state: outcome.replaceAll('_', ' '), since: endedAt, why, next, holder: null, job };
  };

  const workOfRecord = (record: DeliveryListRow): Promise<Work> => workOfDelivery(toDeliveryRow(record), { record });

  /** The pending events of an outbox that `wanted` chooses, the first ones of each endpoint marked. */
  const workOfOutbox = async (outbox: Outbox, wanted: (row: ListedDelivery) => boolean): Promise<Work[]> => {
    const rows = pendingRowsOf(outbox);
    const some = rows.filter(wanted).slice(0, TOLD_MAX);
    const records = await deliveries.readByIds(some.map(({ deliveryId }) => deliveryId));
    return Promise.all(
      some.map((row) => {
        const isFirst = rows.find(({ endpointId }) => endpointId === row.endpointId) === row;
        const record = records.get(row.deliveryId);
        const latest = record ? toDeliveryRow(record) : row;
        return workOfDelivery(latest, { record, key: outbox._id, isFirst });
      }),
    );
  };

  const stateOf = (
    { status, waiting }: Pick<StoredConversation, 'status' | 'waiting'>,
    events: number,
  ): [why: string, next: string] => {
    const turns = `Turns that wait: ${waiting.length}. Events to be sent: ${events}.`;
    if (status === 'escalated')
      return [`A person has it, or is asked for. ${turns}`, 'A person answers and hands it back.'];
    return [
      turns,
      waiting.length + events > 0 ? 'They are answered and sent, in order.' : 'Nothing, until somebody writes.',
    ];
  };

  const workOfConversation = async (conversationId: string): Promise<Work[]> => {
    const found = await conversations.findById(conversationId);
    if (!found || isOthersPlayground(operatorId, found)) return [];
    const outbox = await conversations.outbox.read(found._id);
    const rows = outbox ? pendingRowsOf(outbox) : [];
    const [why, next] = stateOf(found, rows.length);
    const own: Work = {
      kind: 'conversation',
      id: conversationId,
      assistantId: found.assistantId,
      conversationId,
      state: found.status,
      since: found.escalatedAt ?? found.resolvedAt ?? found.updatedAt,
      why,
      next,
      holder: null,
      job: null,
    };
    const turns = await Promise.all(found.waiting.map((turn, before) => pendingWork(found, turn, before)));
    return [own, ...turns, ...(outbox ? await workOfOutbox(outbox, () => true) : [])];
  };

  const workOfSession = async (sessionId: string): Promise<Work[]> => {
    const sessionKeys = await assistants.listSessionKeys(ASSISTANTS_MAX);
    const found = await mapAtMost(SESSIONS_AT_ONCE, sessionKeys, async (sessionKey) =>
      conversations.findOfSession(conversationKeyOf({ sessionKey, sessionId, playground: false }), sessionKey),
    );
    const heads = found.filter((head) => head !== null);
    return (await Promise.all(heads.slice(0, TOLD_MAX).map((head) => workOfConversation(head.conversationId)))).flat();
  };

  const workOfSource = async (sourceId: string): Promise<Work[]> => {
    const found = await sources.findAny(sourceId);
    if (!found) return [];
    const { source, leasedUntil } = found;
    const isLeased = leasedUntil !== null && leasedUntil.getTime() > serverNow();
    const { assistantId, state, nextAt, startedAt, endedAt, error } = source;
    return [
      {
        kind: 'source',
        id: sourceId,
        assistantId,
        conversationId: null,
        state: isLeased ? 'is being read' : state,
        since: isLeased ? startedAt : endedAt,
        why: isLeased
          ? `A sources worker has its lease until ${leasedUntil.toISOString()}, and renews it.`
          : (error?.message ?? (nextAt ? 'It waits for its time, or for a place at a worker.' : 'Nothing is due.')),
        next: nextAt ? `It is read after ${nextAt.toISOString()}.` : 'It is read when somebody asks for it.',
        holder: null,
        job: await jobIn(queues.sources.of(sourceId), (data) => data.sourceId === sourceId),
      },
    ];
  };

  const workOfEvent = async (eventId: string): Promise<Work[]> => {
    const [records, outbox] = [await deliveries.findOfEvent(eventId), await conversations.outbox.findPending(eventId)];
    const pending = outbox ? await workOfOutbox(outbox, (row) => row.eventId === eventId) : [];
    const told = new Set(pending.map((one) => one.id));
    const rest = records.filter(({ _id }) => !told.has(_id)).slice(0, TOLD_MAX);
    return [...pending, ...(await Promise.all(rest.map(workOfRecord)))];
  };

  const workOfDeliveryId = async (id: string): Promise<Work[]> => {
    const outbox = await conversations.outbox.findPending(id.slice(0, 36));
    const pending = outbox ? await workOfOutbox(outbox, (row) => row.deliveryId === id) : [];
    if (pending.length > 0) return pending;
    const record = await deliveries.findDelivery(id);
    return record ? [await workOfRecord(record)] : [];
  };

  const id = text.trim();
  if (DELIVERY_ID.test(id)) return workOfDeliveryId(id);
  const lower = id.toLowerCase();
  const [, short = ''] = SHORT_ID.exec(lower) ?? [];
  const prefixedId = `${short}-4000-8000-000000000000`;
  if (isUuid(prefixedId)) {
    const groups = [{ assistantIds: await assistants.listAssistantIds() }];
    const found = (await conversations.inbox.list(groups, { limit: TOLD_MAX }, { prefixedId })).conversations;
    const told = await Promise.all(found.map(({ conversationId }) => workOfConversation(conversationId)));
    return [...told.flat(), ...(await workOfSession(id))];
  }
  const [turn, conversation, event, source, session] = await Promise.all([
    conversations.findTurn(lower),
    workOfConversation(lower),
    workOfEvent(lower),
    isUuid(lower) ? workOfSource(lower) : [],
    workOfSession(id),
  ]);
  const ofTurn = turn && !isOthersPlayground(operatorId, turn.conversation) ? [await workOfTurn(turn)] : [];
  return [...ofTurn, ...conversation, ...event, ...source, ...session];
};
