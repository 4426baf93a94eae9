/**
 * `npm run fuzz -- schema` draws requests from the API document with schemathesis: such as it allows, and such as it
 * does not, alone and in a row. Exits with 1 at a status, header or body that is not documented, and at any 5xx.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { findPython } from '../scripts/services/installed.ts';
import { join } from 'node:path';
import { signIn } from '../test/kit/operator.ts';
import { openParley } from '../test/kit/parley.ts';
import * as z from 'zod';
import { closeAll } from '../test/kit/services.ts';
import { record, seed } from '../test/kit/fuzz-part.ts';

const FOLDER = join(import.meta.dirname, '../.local/fuzz');
/** The most that are drawn for each operation, beside those for each rule of the document. */
const EXAMPLES = 120;
const Report = z.object({
  test_cases: z.object({ generated: z.int(), with_failures: z.int() }),
  errors: z.array(z.unknown()),
});
const CHECKS = [
  'not_a_server_error',
  'status_code_conformance',
  'content_type_conformance',
  'response_headers_conformance',
  'response_schema_conformance',
];
const WITHOUT = [
  'followInbox', // it stays open, so it has no end to look at
  'listKnowledgeConflicts', // schemathesis does not understand `prefixItems`
  // They would end the session that everything is sent in.
  'signOut',
  'signOutEverywhere',
  'changePassword',
];

type Door = {
  name: string;
  paths: string;
  headers: Record<string, string>;
  params: Record<string, string>;
};

type Drawn = { requests: number; wrong: number };

const draw = async (url: string, { name, paths, headers, params }: Door): Promise<Drawn> => {
  const { program, folder } = findPython('schemathesis');
  const config = join(FOLDER, `${name}.toml`);
  const report = join(FOLDER, `${name}.json`);
  const given = Object.entries({ 'query.wait': '0', ...params }).map(([key, value]) => `"${key}" = "${value}"\n`);
  writeFileSync(config, `[parameters]\n${given.join('')}`);
  const options = {
    url,
    'include-path-regex': paths,
    checks: CHECKS.join(','),
    'max-examples': String(EXAMPLES),
    seed: String(seed),
    'request-timeout': '40',
    'report-json-path': report,
    'generation-database': 'none',
  };
  const args = [
    ...Object.entries(options).flatMap(([key, value]) => [`--${key}`, value]),
    ...Object.entries(headers).flatMap(([key, value]) => ['--header', `${key}: ${value}`]),
    ...WITHOUT.flatMap((id) => ['--exclude-operation-id', id]),
    '--no-color',
    '--continue-on-failure',
  ];
  const env = { ...process.env, PYTHONPATH: folder, PYTHONUTF8: '1' };
  const command = [
    '-c',
    'from schemathesis.cli import schemathesis; schemathesis()',
    '--config-file',
    config,
    'run',
    `${url}/openapi.json`,
  ];
  const child = spawn(program, [...command, ...args], { cwd: FOLDER, env, stdio: 'inherit' });
  await once(child, 'exit');
  const { test_cases: cases, errors } = Report.parse(JSON.parse(readFileSync(report, 'utf8')));
  return { requests: cases.generated, wrong: cases.with_failures + errors.length };
};

const main = async (): Promise<void> => {
  mkdirSync(FOLDER, { recursive: true });
  const parley = await openParley('schema');
  const { assistantId, apiKey } = await parley.addAssistant();
  const { assistants } = parley.service;
  await assistants.setWeb(assistantId, { enabled: true, origins: ['https://shop.example'] });
  await assistants.setChannel(assistantId, { connected: true, token: null, limitPerMinute: 1_000_000 });
  const api = await parley.start('API');
  await parley.start('reply worker', { SEMANTIC: 'off' });
  const { headers: signedIn } = await signIn(parley, api);
  const url = `http://127.0.0.1:${api.port}`;
  const visitor = await fetch(`${url}/api/v1/web/${assistantId}/sessions`, {
    method: 'POST',
    body: '{}',
    headers: { 'Content-Type': 'application/json', Origin: 'https://shop.example' },
  });
  const { token } = (await visitor.json()) as { token: string };
  const bearer = (one: string) => ({ Authorization: `Bearer ${one}` });
  const doors: Door[] = [
    { name: 'callers', paths: '^/api/v1/(?!web|channels)', headers: bearer(apiKey), params: {} },
    { name: 'channel', paths: '^/api/v1/channels', headers: {}, params: { 'path.assistant_id': assistantId } },
    {
      name: 'visitors',
      paths: '^/api/v1/web',
      headers: { ...bearer(token), Origin: 'https://shop.example' },
      params: { 'path.assistant_id': assistantId },
    },
    { name: 'operators', paths: '^/operator/v1', headers: { ...signedIn, Origin: url }, params: {} },
  ];
  const all: Drawn[] = [];
  for (const door of doors) all.push(await draw(url, door));
  const requests = all.reduce((sum, one) => sum + one.requests, 0);
  const wrong = all.reduce((sum, one) => sum + one.wrong, 0);
  console.log(`${requests} requests, ${wrong} wrong`);
  if (wrong > 0) process.exitCode = 1;
  else record('schema', { requests, operators: all.at(-1)?.requests ?? 0, wrong });
};

try {
  await main();
} finally {
  await closeAll();
}
process.exit(process.exitCode);
