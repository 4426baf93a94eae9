import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { writePrivately } from './private-file.ts';

export type Secrets = Record<'ENCRYPTION_KEY', string>;

const make: { [Name in keyof Secrets]: () => string } = {
  ENCRYPTION_KEY: () => randomBytes(32).toString('base64'),
};

/**
 * Reads the quickstart's secrets and adds missing ones. Existing secrets are never replaced, because stored data is
 * encrypted with them.
 */
export const keepSecrets = (path: string, env: NodeJS.ProcessEnv): Secrets => {
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const kept = parseEnv(text);
  const missing = Object.entries(make).filter(([name]) => !kept[name]);
  const added = missing.map(([name, secret]) => [name, secret()] as const);
  if (added.length > 0) {
    const lines = added.map(([name, secret]) => `${name}=${secret}\n`).join('');
    writePrivately(path, `${text === '' || text.endsWith('\n') ? text : `${text}\n`}${lines}`);
  }
  const all = { ...kept, ...Object.fromEntries(added) };
  return { ENCRYPTION_KEY: env['ENCRYPTION_KEY'] || (all['ENCRYPTION_KEY'] ?? '') };
};
