import type { Command } from 'commander';
import type { Connection } from 'mongoose';
import { createAssistantStore } from '../../src/assistants/store.ts';
import { createAudit } from '../../src/operators/audit.ts';
import type { Config } from '../../src/platform/process/config.ts';
import { createVault, type SecretsFound } from '../../src/platform/process/vault.ts';
import { createEndpointStore } from '../../src/events/endpoints.ts';
import { example } from './arguments.ts';
import { recordLocal } from './audit.ts';
import { createVersionedSources } from '../../src/sources/versions.ts';
import type { Answer, RunBare } from './session.ts';
import { withMongo } from './stores.ts';

type Pass = (options: { dryRun: boolean }) => Promise<SecretsFound>;

/** One pass over everything that holds secrets: endpoints, and assistants with their drafts and versions. */
const createPass = (connection: Connection, config: Config): Pass => {
  const vault = createVault({ keys: config.ENCRYPTION_KEY });
  const endpoints = createEndpointStore({ connection, vault, guard: { allowPrivate: config.WEBHOOK_ALLOW_PRIVATE } });
  const assistants = createAssistantStore({ connection, vault, sources: createVersionedSources(connection) });
  return async (options) => {
    const sum: SecretsFound = { secrets: 0, older: 0, resealed: 0, unreadable: [] };
    for (const store of [endpoints, assistants]) {
      for await (const { secrets, older, resealed, unreadable } of store.resealSecrets(options)) {
        sum.secrets += secrets;
        sum.older += older;
        sum.resealed += resealed;
        sum.unreadable.push(...unreadable);
      }
    }
    return sum;
  };
};

const toAnswer = (resealed: number, { secrets, older, unreadable }: SecretsFound): Answer => {
  const lines = [
    `${secrets} secrets are stored. ${resealed} of them were sealed again.`,
    older > 0
      ? `${older} of them are under an older key. Keep it until this command says that none is.`
      : 'None is under an older key: the first key of ENCRYPTION_KEY is enough.',
    ...(unreadable.length > 0 ? ['No key opens the secrets of:', ...unreadable.map((whose) => `  ${whose}`)] : []),
  ];
  const json = { secrets, resealed, older, unreadable };
  return { json, text: lines.join('\n'), status: older > 0 || unreadable.length > 0 ? 1 : 0 };
};

export const addRotateEncryptionKeyCommand = (program: Command, runBare: RunBare): void => {
  program
    .command('rotate-encryption-key')
    .description('Seal all stored secrets with the first key of ENCRYPTION_KEY; goes on where it was stopped')
    .option('--dry-run', 'only count the secrets under older keys')
    .addHelpText('after', example('rotate-encryption-key --dry-run', 'rotate-encryption-key'))
    .action(({ dryRun = false }: { dryRun?: boolean }) =>
      runBare((context) =>
        withMongo(context, async (mongo) => {
          const pass = createPass(mongo, context.config);
          const before = await pass({ dryRun: true });
          if (dryRun || before.older === 0) return toAnswer(0, before);
          const details = { secrets: String(before.older) };
          await recordLocal(createAudit(mongo), { action: 'secrets.reseal', target: null, details });
          const { resealed } = await pass({ dryRun: false });
          return toAnswer(resealed, await pass({ dryRun: true }));
        }),
      ),
    );
};
