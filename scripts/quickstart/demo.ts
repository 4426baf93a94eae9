import * as z from 'zod';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { readConfig } from '../../src/platform/process/config.ts';
import { secretsIn } from '../../src/platform/process/credentials.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { newPassword, openOperators, type OperatorStores } from '../../src/operators/store.ts';
import { openService, type Service } from '../../src/service.ts';
import { writeJsonPrivately } from './private-file.ts';
import { SHOP } from './shop.ts';

/**
 * The data that an earlier start saved. Keys and tokens are saved in this file, because the service stores only their
 * hashes.
 */
const SavedDemo = z.object({
  assistantId: z.string(),
  apiKey: z.string(),
  verifyToken: z.string(),
  endpointId: z.string(),
  operator: z.object({ email: z.string(), password: z.string() }).optional(),
  operatorToken: z.string().optional(),
});
type SavedDemo = z.infer<typeof SavedDemo>;

/** `operator` is null if the database has an owner whose password the quickstart does not know. */
export type Demo = Omit<SavedDemo, 'endpointId' | 'operator' | 'operatorToken'> & {
  webhookSecret: string;
  isNew: boolean;
  operator: SavedDemo['operator'] | null;
  /** The operator token of the admin command. */
  operatorToken: string;
};

const OWNER = 'owner@example.com';

const readSaved = (file: string): Partial<SavedDemo> => {
  if (!existsSync(file)) return {};
  return SavedDemo.safeParse(JSON.parse(readFileSync(file, 'utf8'))).data ?? {};
};

const makeAssistant = async ({ assistants }: Service): Promise<string> => {
  const { assistantId } = await assistants.createAssistant(SHOP.assistant);
  await assistants.addKnowledge(assistantId, SHOP.knowledge);
  await assistants.setWeb(assistantId, {
    enabled: true,
    starters: SHOP.knowledge.slice(0, 3).map(({ question }) => question),
  });
  return assistantId;
};

/** Changes the URL of the demo endpoint to the current URL of the receiver, whose port changes with each start. */
const pointEndpoint = async (
  { endpoints }: Service,
  demo: { assistantId: string; endpointId?: string; url: string },
) => {
  const known = (await endpoints.listEndpoints(demo.assistantId)).find((one) => one.endpointId === demo.endpointId);
  if (!known) {
    const { endpoint, secret } = await endpoints.addEndpoint(demo.assistantId, { url: demo.url });
    return { endpointId: endpoint.endpointId, webhookSecret: secret };
  }
  const { endpointId } = known;
  await endpoints.updateEndpoint(endpointId, { url: demo.url, events: [] });
  await endpoints.setEnabled(endpointId, true);
  const stored = await endpoints.readForSending(endpointId);
  try {
    const [secret] = stored ? endpoints.openSecrets(stored, Date.now()) : [];
    if (secret !== undefined) return { endpointId, webhookSecret: secret };
  } catch {
    // The stored secret was encrypted with another ENCRYPTION_KEY, so a new secret is needed.
  }
  return { endpointId, webhookSecret: (await endpoints.rotateSecret(endpointId)).secret };
};

/**
 * Finds the demo owner, or creates it if there is no owner. Returns null if the saved password was changed or if
 * another owner exists.
 */
const findOwner = async (
  { operators }: OperatorStores,
  { operator }: Partial<SavedDemo>,
): Promise<Demo['operator']> => {
  if (operator && (await operators.checkSignIn(operator.email, operator.password, 'quickstart'))) return operator;
  if (await operators.findFirstOwner()) return null;
  const made = { email: OWNER, password: newPassword() };
  await operators.createOperator({ ...made, role: 'owner' });
  return made;
};

/** Finds the operator token of the admin command, which has all rights. Creates a new one if that token was revoked. */
const findOperatorToken = async (
  { tokens }: OperatorStores,
  { operatorToken }: Partial<SavedDemo>,
): Promise<string> => {
  if (operatorToken !== undefined && (await tokens.findToken(operatorToken))) return operatorToken;
  const given = { name: 'quickstart', scope: 'manage', assistantIds: null, createdBy: null } as const;
  return (await tokens.createToken(given)).secret;
};

const seed = async (service: Service, { file, receiverUrl }: { file: string; receiverUrl: string }): Promise<Demo> => {
  const { assistants } = service;
  const saved = readSaved(file);
  // Each part is checked, because MONGODB_URL may name another database than before, or parts of the demo may have been
  // removed.
  const existing = saved.assistantId === undefined ? null : await assistants.findAssistant(saved.assistantId);
  const assistantId = existing?.assistantId ?? (await makeAssistant(service));
  const verifyToken = saved.verifyToken ?? `vt_${randomBytes(24).toString('base64url')}`;
  await assistants.setChannel(assistantId, { connected: true, token: verifyToken });
  const live = saved.apiKey === undefined ? null : await assistants.findApiKey(saved.apiKey);
  const apiKey =
    saved.apiKey !== undefined && live?.assistantId === assistantId
      ? saved.apiKey
      : (await assistants.createApiKey({ assistantId, name: 'quickstart' })).apiKey;
  const { endpointId, webhookSecret } = await pointEndpoint(service, {
    assistantId,
    url: `${receiverUrl}/events`,
    ...(saved.endpointId === undefined ? {} : { endpointId: saved.endpointId }),
  });
  const who = await openOperators(service.mongo);
  const operator = await findOwner(who, saved);
  const operatorToken = await findOperatorToken(who, saved);
  writeJsonPrivately(file, {
    assistantId,
    apiKey,
    verifyToken,
    endpointId,
    operatorToken,
    ...(operator && { operator }),
  } satisfies SavedDemo);
  return { assistantId, apiKey, verifyToken, webhookSecret, operator, operatorToken, isNew: !existing };
};

/**
 * Creates the demo assistant with knowledge, key, channel and endpoint. Reuses the parts that an earlier start created.
 */
export const seedDemo = async (
  env: NodeJS.ProcessEnv,
  options: { file: string; receiverUrl: string },
): Promise<Demo> => {
  const config = readConfig(env);
  const logger = createLogger({ name: 'parley-quickstart', level: 'error', secrets: secretsIn(env) }, process.stderr);
  const lifecycle = createLifecycle(logger, { deadlineMs: config.SHUTDOWN_DEADLINE_MS });
  try {
    return await seed(await openService({ config, logger, lifecycle, redisRole: 'api' }), options);
  } finally {
    await lifecycle.close();
  }
};
