import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { apiDocumentText } from '../src/api/document.ts';
import { eventsDocumentText } from '../src/api/events-document.ts';
import { ROOT } from './services/installed.ts';

// Fetched when it is first used: with its packages it is as large as all the others together.
const LINTER = '@redocly/cli@2.77.0';

const folder = mkdtempSync(join(tmpdir(), 'parley-api-'));
try {
  const documents = { 'openapi.json': apiDocumentText(undefined), 'asyncapi.json': eventsDocumentText() };
  for (const [name, text] of Object.entries(documents)) writeFileSync(join(folder, name), text);
  const args = ['--yes', LINTER, 'lint', '--config', join(ROOT, 'redocly.yaml'), '--max-problems', '1000'];
  const { status, stdout, stderr } = spawnSync('npx', [...args, ...Object.keys(documents)], {
    cwd: folder,
    encoding: 'utf8',
    env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
  });
  process.stdout.write(`${stdout}${stderr}`);
  const warned = /\b[1-9]\d* warnings?\b/.test(`${stdout}${stderr}`);
  if (warned) console.error('A warning counts as an error.');
  process.exitCode = status === 0 && !warned ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true });
}
