import type { Connection } from 'mongoose';
import type * as z from 'zod';
import { MAX_OVERLAP_HOURS } from '../assistants/api-keys.ts';
import { DAY_MS, HOUR_MS, serverDate, serverNow } from '../platform/process/clock.ts';
import { invalid, orNotFound } from '../platform/process/errors.ts';
import { newId } from '../platform/process/ids.ts';
import { isDuplicateKey } from '../platform/mongo/failures.ts';
import { collectionOf, createReader, type Indexed } from '../platform/mongo/mongo.ts';
import { validate } from '../platform/process/validation.ts';
import { createResealing, type SecretsFound, type Vault, VaultError } from '../platform/process/vault.ts';
import { type GuardOptions, requirePublicUrl } from '../platform/http/address-guard.ts';
import { type EventKind, OPT_IN_KINDS } from '../conversations/event.ts';
import {
  CERTIFICATE_SHOWN_MS,
  type Endpoint,
  EndpointInput,
  endpointModel,
  EXPIRING,
  FAILING,
  type NotedRecovery,
  type Pause,
  PAUSED,
  type StoredEndpoint,
} from './endpoint.ts';
import { newWebhookSecret } from './signature.ts';
import type { OwnHeaders } from './wire.ts';
import { cachedSettings, createLru } from '../platform/process/lru.ts';

const MAX_ENDPOINTS = 10;

/** True if the endpoint is paused at `now`. A pause without an end lasts until an operator resumes the endpoint. */
export const isPaused = ({ pause }: { pause: Pause | null }, now: number): boolean =>
  pause !== null && (pause.until === null || pause.until.getTime() > now);

/** The filter for endpoints that `isPaused`, by MongoDB's time. */
const pausedNow = () => ({
  'pause.reason': { $exists: true },
  $or: [{ 'pause.until': null }, { 'pause.until': { $gt: serverDate() } }],
});

const wants = (endpoint: Pick<Endpoint, 'enabled' | 'events'>, event: EventKind): boolean =>
  endpoint.enabled &&
  (endpoint.events.includes(event) || (endpoint.events.length === 0 && !OPT_IN_KINDS.includes(event)));

const AFTER = { returnDocument: 'after' } as const;
const SECRETS_CACHED_FOR_MS = 60_000;

const originOf = (url: string): string | undefined => URL.parse(url)?.origin;

export type OpenHeader = { name: string; value: string; secret: boolean };

type Dependencies = {
  connection: Connection;
  vault: Vault;
  guard: GuardOptions;
  /** Called after an endpoint was removed, enabled, disabled or resumed, to wake its streams. Never throws. */
  onChanged?: (endpoint: Pick<Endpoint, 'endpointId' | 'assistantId'>) => Promise<void>;
};

/**
 * The customers' endpoints. Each endpoint has its own URL, secret and event filter, and can be disabled
 * (docs/contract.md, Endpoints).
 */
export type EndpointStore = {
  models: Indexed[];

  /** Returns which endpoints of the assistant want an event. Cached for at most a second. */
  receivers: (assistantId: string) => Promise<(event: EventKind) => string[]>;

  /** Reads an endpoint without a cache, for deliveries. Null if the endpoint was removed. Reads are batched. */
  readForSending: (id: string) => Promise<StoredEndpoint | null>;

  /** The secrets that sign an event, newest first. An old secret also signs until its overlap ends. */
  openSecrets: (endpoint: StoredEndpoint, now: number) => string[];

  /** The headers that its owner adds, as they are sent. */
  openHeaders: (endpoint: StoredEndpoint) => OpenHeader[];

  addEndpoint: (assistantId: string, input: unknown) => Promise<{ endpoint: Endpoint; secret: string }>;
  listEndpointIds: (assistantId: string) => Promise<string[]>;
  listEndpoints: (assistantId: string) => Promise<Endpoint[]>;
  getEndpoint: (endpointId: string) => Promise<Endpoint>;

  /**
   * Reserves a time for one send to an endpoint with a rate. Null if it has none, or was disabled or enabled since: what
   * waits for a disabled one ends at once.
   */
  reserveSend: (endpoint: Pick<StoredEndpoint, '_id' | 'enabled'>) => Promise<Date | null>;
  updateEndpoint: (endpointId: string, input: Partial<z.infer<typeof EndpointInput>>) => Promise<Endpoint>;

  /** Enables or disables an endpoint. Events that happen while an endpoint is disabled are not sent later. */
  setEnabled: (endpointId: string, enabled: boolean) => Promise<Endpoint>;

  removeEndpoint: (endpointId: string) => Promise<Endpoint>;

  /** Makes a new secret. The old secret also signs for `overlapHours` (0–168, default 0). */
  rotateSecret: (endpointId: string, overlapHours?: number) => Promise<{ endpoint: Endpoint; secret: string }>;

  /**
   * Pauses an endpoint. Never shortens a pause: the result of a send that began before a longer pause does not change
   * that pause.
   */
  pauseEndpoint: (endpointId: string, pause: Pause) => Promise<void>;

  /** The ids of paused endpoints: either the receiver answered 410, or the time in its `Retry-After` is not over. */
  listPausedIds: () => Promise<string[]>;

  resumeEndpoint: (endpointId: string) => Promise<Endpoint>;

  /** Notes a running recovery, unless something newer is noted. */
  noteRecovery: (endpointId: string, recovery: NotedRecovery) => Promise<void>;

  /** Removes the note of a recovery, unless something newer is noted. */
  forgetRecovery: (endpointId: string, recovery: Pick<NotedRecovery, 'version'>) => Promise<void>;

  /** Stores how a delivery went, if that is new. `delivered`: null if the failure was not the receiver's. */
  noteHealth: (
    endpoint: StoredEndpoint,
    seen: { delivered: boolean | null; certificateUntil: Date | null },
  ) => Promise<void>;

  /**
   * Lists enabled endpoints that are paused, that have been failing at least since `failingSince`, or whose certificate
   * ends by `expiring`: at most `limit` of each kind. `except`: endpoints that are already known.
   */
  listUnhealthy: (what: {
    failingSince: Date;
    expiring: Date;
    except: string[];
    limit: number;
  }) => Promise<StoredEndpoint[]>;

  /** Seals all secrets again that an older key has sealed, one endpoint after the other. A dry run counts them. */
  resealSecrets: (options: { dryRun: boolean }) => AsyncGenerator<SecretsFound, undefined>;
};

export const createEndpointStore = (dependencies: Dependencies): EndpointStore => {
  const { connection, vault, guard, onChanged = async () => undefined } = dependencies;
  const endpoints = endpointModel(connection);

  const openedSecrets = createLru<string>({ most: 10_000, ttl: SECRETS_CACHED_FOR_MS });

  const findWanting = cachedSettings<Pick<StoredEndpoint, '_id' | 'enabled' | 'events'>[]>((assistantId) =>
    endpoints.find({ assistantId }).select({ enabled: 1, events: 1 }).sort({ createdAt: 1 }).lean(),
  );

  /**
   * Opens a sealed secret. The result is cached, because opening costs a tenth of a delivery. A sealed value always
   * opens to the same secret.
   */
  const openSecret = (sealed: string, endpointId: string): string => {
    const cacheKey = `${endpointId} ${sealed}`;
    const known = openedSecrets.get(cacheKey);
    if (known !== undefined) return known;
    const secret = vault.open(sealed, endpointId);
    openedSecrets.set(cacheKey, secret);
    return secret;
  };

  const openHeaders = ({ _id, headers = [] }: StoredEndpoint): OpenHeader[] =>
    headers.map(({ name, sealed, secret }) => ({ name, value: openSecret(sealed, _id), secret }));

  const shownValue = (sealed: string, endpointId: string): string | null => {
    try {
      return openSecret(sealed, endpointId);
    } catch (cause) {
      if (cause instanceof VaultError) return null;
      throw cause;
    }
  };

  const toEndpoint = ({
    _id,
    secrets,
    place: _place,
    recovery: _recovery,
    failing,
    certificateUntil: _until,
    headers = [],
    nextSendAt: _next,
    ...stored
  }: StoredEndpoint): Endpoint => ({
    endpointId: _id,
    include: [],
    ratePerSecond: null,
    standardWebhooks: false,
    ...stored,
    headers: headers.map(({ name, sealed, secret }) => {
      return { name, value: secret ? null : shownValue(sealed, _id), secret };
    }),
    failingSince: failing ?? null,
    overlapUntil: secrets.find(({ until }) => until !== null && until.getTime() > serverNow())?.until ?? null,
  });

  /** Seals the headers of an endpoint. One without a value is the one of the same name in `before`. */
  const sealHeaders = (
    endpointId: string,
    wanted: z.infer<typeof OwnHeaders>,
    before: StoredEndpoint['headers'] = [],
  ): NonNullable<StoredEndpoint['headers']> =>
    wanted.map(({ name, value, secret }, nth) => {
      if (value !== undefined) return { name, sealed: vault.seal(value, endpointId), secret };
      const kept = before.find((one) => one.name.toLowerCase() === name.toLowerCase());
      if (!kept) throw invalid(`headers.${nth}.value`, 'required', 'is required');
      return kept;
    });

  /** A secret value is never sent to another address than the one that it was given for. */
  const withHeaders = (
    { _id, url, headers: before = [] }: StoredEndpoint,
    { headers: wanted, ...given }: Partial<z.infer<typeof EndpointInput>>,
  ) => {
    const headers = wanted === undefined ? before : sealHeaders(_id, wanted, before);
    const keepsSecret = headers.some((one) => one.secret && before.includes(one));
    if (keepsSecret && given.url !== undefined && originOf(given.url) !== originOf(url)) {
      const message = 'secret values must be given again, because the URL has another address';
      throw invalid('headers', 'required', message);
    }
    return { ...given, headers };
  };

  const getStored = async (endpointId: string): Promise<StoredEndpoint> =>
    orNotFound(await endpoints.findById(endpointId).lean());

  /** What callers see of an endpoint that was changed just now. */
  const changed = (found: StoredEndpoint | null): Endpoint => {
    const stored = orNotFound(found);
    findWanting.forget(stored.assistantId);
    return toEndpoint(stored);
  };

  /** The same, after its streams were woken. */
  const announced = async (stored: StoredEndpoint | null): Promise<Endpoint> => {
    const endpoint = changed(stored);
    await onChanged(endpoint);
    return endpoint;
  };

  /**
   * Inserts an endpoint into the first free slot of the assistant's ten slots. If two inserts use the same slot, the
   * unique index refuses one of them.
   */
  const insert = async (wanted: Omit<StoredEndpoint, 'place'>): Promise<StoredEndpoint> => {
    const { assistantId } = wanted;
    for (;;) {
      const taken = new Set(
        (await endpoints.find({ assistantId }).select({ place: 1 }).lean()).map(({ place }) => place),
      );
      const slot = Array.from({ length: MAX_ENDPOINTS }, (_, index) => index).find((index) => !taken.has(index));
      if (slot === undefined) {
        throw invalid('url', 'too_many', `an assistant has at most ${MAX_ENDPOINTS} endpoints`);
      }
      const stored: StoredEndpoint = { ...wanted, place: slot };
      try {
        await collectionOf(endpoints).insertOne(stored);
        return stored;
      } catch (cause) {
        if (!isDuplicateKey(cause)) throw cause;
      }
    }
  };

  async function* resealSecrets(options: { dryRun: boolean }): AsyncGenerator<SecretsFound, undefined> {
    const stored = collectionOf<StoredEndpoint>(endpoints);
    for await (const { _id } of stored.find({}, { projection: { _id: 1 } }).sort({ _id: 1 })) {
      for (;;) {
        const row = await stored.findOne({ _id }, { projection: { secrets: 1, headers: 1 } });
        const places = (['secrets', 'headers'] as const).flatMap((list) =>
          (row?.[list] ?? []).map(({ sealed }, nth) => ({ path: `${list}.${nth}.sealed`, sealed, context: _id })),
        );
        const { found, reseal } = createResealing(vault, options);
        const fields = reseal(places, `endpoint ${_id}`);
        // A secret that was changed meanwhile is kept.
        const asRead = Object.fromEntries(places.map(({ path, sealed }) => [path, sealed]));
        if (found.resealed > 0 && (await stored.updateOne({ _id, ...asRead }, { $set: fields })).matchedCount === 0)
          continue;
        yield found;
        break;
      }
    }
  }

  return {
    models: [endpoints],

    receivers: async (assistantId) => {
      const known = (await findWanting(assistantId)) ?? [];
      return (event) => known.filter((endpoint) => wants(endpoint, event)).map(({ _id }) => _id);
    },

    readForSending: createReader(collectionOf<StoredEndpoint>(endpoints), {}),

    openSecrets: (endpoint, now) =>
      endpoint.secrets
        .filter(({ until }) => until === null || until.getTime() > now)
        .map(({ sealed }) => openSecret(sealed, endpoint._id)),

    openHeaders,

    addEndpoint: async (assistantId, input) => {
      const parsed = validate(EndpointInput, input);
      await requirePublicUrl(parsed.url, guard, 'url');
      const secret = newWebhookSecret();
      const endpointId = newId();
      const now = serverDate();
      const stored = await insert({
        _id: endpointId,
        assistantId,
        url: parsed.url,
        events: parsed.events,
        include: parsed.include,
        headers: sealHeaders(endpointId, parsed.headers),
        ratePerSecond: parsed.ratePerSecond,
        standardWebhooks: parsed.standardWebhooks,
        enabled: true,
        enabledSince: now,
        pause: null,
        createdAt: now,
        secrets: [{ sealed: vault.seal(secret, endpointId), until: null }],
      });
      return { endpoint: changed(stored), secret };
    },

    listEndpointIds: async (assistantId) =>
      (await endpoints.find({ assistantId }).select({ _id: 1 }).lean()).map(({ _id }) => _id),

    listEndpoints: async (assistantId) =>
      (await endpoints.find({ assistantId }).sort({ createdAt: 1 }).lean()).map((row) => toEndpoint(row)),

    getEndpoint: async (endpointId) => toEndpoint(await getStored(endpointId)),

    reserveSend: async ({ _id, enabled }) => {
      const spacing = { $divide: [1_000, '$ratePerSecond'] };
      const row = await collectionOf<StoredEndpoint>(endpoints).findOneAndUpdate(
        { _id, enabled, ratePerSecond: { $gt: 0 } },
        [{ $set: { nextSendAt: { $add: [{ $max: ['$$NOW', '$nextSendAt'] }, spacing] } } }],
        // If a failover undoes it, some events come early. Waiting for other members would slow a fast endpoint.
        { returnDocument: 'after', projection: { nextSendAt: 1, ratePerSecond: 1 }, writeConcern: { w: 1 } },
      );
      if (!row?.nextSendAt || !row.ratePerSecond) return null;
      return new Date(row.nextSendAt.getTime() - 1_000 / row.ratePerSecond);
    },

    updateEndpoint: async (endpointId, input) => {
      const parsed = validate(EndpointInput.partial(), input);
      if (parsed.url !== undefined) await requirePublicUrl(parsed.url, guard, 'url');
      const given = Object.fromEntries(Object.entries(parsed).filter(([name]) => name in input));
      for (;;) {
        const stored = await getStored(endpointId);
        const { url, headers = null } = stored;
        // Concurrent changes run one after another, so that each keeps only values that it has seen.
        const updated = await endpoints
          .findOneAndUpdate(
            { _id: endpointId, url, headers },
            {
              $set: withHeaders(stored, given),
              // What was noted of one address is not true of another.
              ...(given['url'] !== undefined &&
                given['url'] !== url && { $unset: { failing: 1, certificateUntil: 1 } }),
            },
            AFTER,
          )
          .lean();
        if (updated) return changed(updated);
      }
    },

    setEnabled: async (endpointId, enabled) => {
      // This is a compare-and-set, so that `enabledSince` changes only once if two people enable the endpoint
      // concurrently.
      const update = {
        $set: { enabled, pause: null, ...(enabled && { enabledSince: serverDate() }) },
        $unset: { failing: 1, certificateUntil: 1 }, // `listUnhealthy` looks only for enabled ones
      };
      const stored = await endpoints.findOneAndUpdate({ _id: endpointId, enabled: !enabled }, update, AFTER).lean();
      return stored ? announced(stored) : toEndpoint(await getStored(endpointId));
    },

    removeEndpoint: async (endpointId) => announced(await endpoints.findByIdAndDelete(endpointId).lean()),

    rotateSecret: async (endpointId, overlapHours = 0) => {
      if (!(overlapHours >= 0 && overlapHours <= MAX_OVERLAP_HOURS)) {
        throw invalid('overlap_hours', 'out_of_range', `must be 0–${MAX_OVERLAP_HOURS}`);
      }
      for (;;) {
        const { secrets } = await getStored(endpointId);
        const secret = newWebhookSecret();
        const current = secrets.find(({ until }) => until === null);
        const kept =
          overlapHours > 0 && current ? [{ ...current, until: new Date(serverNow() + overlapHours * HOUR_MS) }] : [];
        const rotated = await endpoints
          .findOneAndUpdate(
            // Concurrent rotations run one after another, so that every secret shown to a person was really in use.
            { _id: endpointId, 'secrets.0.sealed': secrets[0]?.sealed },
            { $set: { secrets: [{ sealed: vault.seal(secret, endpointId), until: null }, ...kept] } },
            AFTER,
          )
          .lean();
        if (rotated) return { endpoint: toEndpoint(rotated), secret };
      }
    },

    pauseEndpoint: async (endpointId, pause) => {
      const shorter = pause.until === null ? {} : { $or: [{ pause: null }, { 'pause.until': { $lt: pause.until } }] };
      await endpoints.updateOne({ _id: endpointId, ...shorter }, { $set: { pause } });
    },

    listPausedIds: async () => {
      const rows = await endpoints
        .find({ enabled: true, ...pausedNow() }) // events of a disabled endpoint end and do not wait
        .select({ _id: 1 })
        .hint(PAUSED)
        .lean();
      return rows.map(({ _id }) => _id);
    },

    noteRecovery: async (endpointId, recovery) => {
      const older = [{ 'recovery.version': { $exists: false } }, { 'recovery.version': { $lt: recovery.version } }];
      await endpoints.updateOne({ _id: endpointId, $or: older }, { $set: { recovery } });
    },

    forgetRecovery: async (endpointId, { version }) => {
      await endpoints.updateOne(
        { _id: endpointId, 'recovery.version': { $lte: version } },
        { $unset: { recovery: 1 } },
      );
    },

    resumeEndpoint: async (endpointId) =>
      announced(await endpoints.findByIdAndUpdate(endpointId, { $set: { pause: null } }, AFTER).lean()),

    noteHealth: async ({ _id, url, failing, certificateUntil: known }, { delivered, certificateUntil }) => {
      const isSoon = certificateUntil !== null && certificateUntil.getTime() < serverNow() + CERTIFICATE_SHOWN_MS;
      const isOther = isSoon && Math.abs(certificateUntil.getTime() - (known?.getTime() ?? 0)) > DAY_MS;
      const set = {
        ...(delivered === false && !failing && { failing: serverDate() }),
        ...(isOther && { certificateUntil }),
      };
      const unset = {
        ...(delivered === true && failing && { failing: '' }),
        ...(certificateUntil !== null && !isSoon && known && { certificateUntil: '' }),
      };
      const changes = {
        ...(Object.keys(set).length > 0 && { $set: set }),
        ...(Object.keys(unset).length > 0 && { $unset: unset }),
      };
      if (Object.keys(changes).length === 0) return;
      // Only the first failure in a row sets the time.
      const first = 'failing' in set ? { failing: { $exists: false } } : {};
      // A send in flight says nothing of an endpoint that was disabled or moved meanwhile.
      await endpoints.updateOne({ _id, url, enabled: true, ...first }, changes);
    },

    listUnhealthy: async ({ failingSince, expiring, except, limit }) => {
      const find = (filter: Record<string, unknown>, hint: string) =>
        endpoints
          .find({ enabled: true, _id: { $nin: except }, ...filter })
          .hint(hint)
          .limit(limit)
          .lean();
      const found = await Promise.all([
        find(pausedNow(), PAUSED),
        find({ failing: { $lte: failingSince } }, FAILING),
        find({ certificateUntil: { $lte: expiring } }, EXPIRING),
      ]);
      return [...new Map(found.flat().map((row) => [row._id, row as StoredEndpoint])).values()];
    },

    resealSecrets,
  };
};
