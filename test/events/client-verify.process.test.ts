import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifyWebhook, type WebhookVerdict } from '../../packages/client/src/verify-webhook.ts';
import { newWebhookSecret, signEvent, standardHeaders } from '../../src/events/signature.ts';
import { sized } from '../support/size.ts';

interface Vector {
  name: string;
  secrets: string[];
  header: string;
  headers?: Record<string, string>;
  body_base64: string;
  now: number;
  tolerance_seconds: number;
  expect: WebhookVerdict;
}
const docs = join(import.meta.dirname, '../../docs');
const vectorFile = join(docs, 'vectors.json');
const { vectors } = JSON.parse(readFileSync(vectorFile, 'utf8')) as { vectors: Vector[] };

describe('verifyWebhook', () => {
  it.each(vectors)('$name', (vector) => {
    const body = Buffer.from(vector.body_base64, 'base64');
    const options = { toleranceSeconds: vector.tolerance_seconds, now: vector.now };
    expect(verifyWebhook(body, vector.header, vector.secrets, options)).toEqual(vector.expect);
  });

  it.each(vectors.flatMap(({ headers, ...vector }) => (headers ? [{ headers, ...vector }] : [])))(
    '$name: the service signs it so',
    ({ headers, header, secrets, body_base64, now: timestamp }) => {
      const body = Buffer.from(body_base64, 'base64');
      const { event, event_id: id } = JSON.parse(body.toString()) as { event: string; event_id: string };
      expect(signEvent({ body, secrets, timestamp })).toBe(header);
      expect(headers).toMatchObject({
        'X-Factory-Event': event,
        'X-Factory-Event-Id': id,
        'X-Factory-Signature': header,
        ...standardHeaders({ body, secrets, timestamp, id }),
      });
    },
  );

  it('names every reason', () => {
    const reasons = vectors.map((vector) => (vector.expect.ok ? 'ok' : vector.expect.reason));
    expect(new Set(reasons)).toEqual(new Set(['ok', 'missing_t', 'missing_v1', 'stale', 'mismatch']));
  });

  it('accepts what the service signs now, as text or bytes, by one secret or several', () => {
    const secrets = [newWebhookSecret(), newWebhookSecret()];
    const timestamp = Math.floor(Date.now() / 1000);
    const header = signEvent({ body: 'ü', secrets, timestamp });
    for (const secret of secrets) expect(verifyWebhook('ü', header, secret)).toEqual({ ok: true, timestamp });
    expect(verifyWebhook(new TextEncoder().encode('ü'), [header], secrets)).toEqual({ ok: true, timestamp });
  });

  it.each([null, undefined, '', [], ',', '='])('refuses a header of %j', (header) => {
    expect(verifyWebhook('', header, newWebhookSecret())).toEqual({ ok: false, reason: 'missing_t' });
  });

  it('throws without a secret', () => {
    for (const secrets of ['', [], ['']])
      expect(() => verifyWebhook('', 't=1,v1=a', secrets)).toThrow('needs the secret');
  });

  it('refuses every request if the clock is not a number', () => {
    const header = signEvent({ body: '', secrets: ['s'], timestamp: 1 });
    expect(verifyWebhook('', header, 's', { now: Number.NaN })).toEqual({ ok: false, reason: 'stale' });
  });
});

/**
 * The examples by language: the file of the example, the lines appended to it, and the command that runs it. The output
 * is a JSON list.
 */
const EXAMPLES = {
  js: {
    file: 'verify.mjs',
    after: `import { readFileSync } from 'node:fs';
console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2])).vectors.map((v) =>
  verify(Buffer.from(v.body_base64, 'base64'), v.header, v.secrets, v.tolerance_seconds, v.now))));`,
    command: [process.execPath, 'verify.mjs'],
  },
  python: {
    file: 'verify.py',
    after: `import base64, json, sys
print(json.dumps([verify(base64.b64decode(v["body_base64"]), v["header"], v["secrets"], v["tolerance_seconds"], v["now"])
    for v in json.load(open(sys.argv[1], encoding="utf-8"))["vectors"]]))`,
    command: ['python3', 'verify.py'],
  },
  go: {
    file: 'verify.go',
    extra: {
      'main.go': `package main
import ("encoding/json"; "fmt"; "os")
func main() {
	var all struct{ Vectors []struct {
		Secrets []string; Header string; Body []byte \`json:"body_base64"\`; Now float64; Tolerance float64 \`json:"tolerance_seconds"\` } }
	data, _ := os.ReadFile(os.Args[1])
	if err := json.Unmarshal(data, &all); err != nil { panic(err) }
	out := []bool{}
	for _, v := range all.Vectors { out = append(out, Verify(v.Body, v.Header, v.Secrets, v.Tolerance, v.Now)) }
	text, _ := json.Marshal(out)
	fmt.Println(string(text))
}`,
    },
    after: '',
    command: ['go', 'run', 'verify.go', 'main.go'],
  },
  php: {
    file: 'verify.php',
    after: `$all = json_decode(file_get_contents($argv[1]), true);
echo json_encode(array_map(fn($v) => verify(base64_decode($v['body_base64']), $v['header'], $v['secrets'], $v['tolerance_seconds'], $v['now']), $all['vectors']));`,
    command: ['php', 'verify.php'],
  },
} satisfies Record<
  string,
  { file: string; after: string; extra?: Record<string, string>; command: [string, ...string[]] }
>;

const present = (command: string): boolean =>
  spawnSync(command, [command === 'go' ? 'version' : '--version'], { stdio: 'ignore' }).status === 0;

/** The compiler of Go takes half a minute the first time. */
const SLOW: string[] = sized({ everyday: ['go'], long: [] });

describe('the examples to copy', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'parley-examples-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  for (const [language, example] of Object.entries(EXAMPLES)) {
    const [command, ...args] = example.command;
    const { extra = {} } = example as { extra?: Record<string, string> };
    if (SLOW.includes(language) || !present(command)) continue;
    it(`the ${language} example gives the right result for every vector`, () => {
      const code = readFileSync(join(docs, '../examples/verify-signature', example.file), 'utf8');
      writeFileSync(join(folder, example.file), `${code}\n${example.after}\n`);
      for (const [name, text] of Object.entries(extra)) writeFileSync(join(folder, name), text);

      const run = spawnSync(command, [...args, vectorFile], { cwd: folder, encoding: 'utf8', timeout: 120_000 });

      expect(run.stderr).toBe('');
      const verdicts = JSON.parse(run.stdout) as boolean[];
      const wrong = vectors.filter((vector, at) => vector.expect.ok !== verdicts[at]).map(({ name }) => name);
      expect(verdicts).toHaveLength(vectors.length);
      expect(wrong).toEqual([]);
    }, 130_000);
  }
});
