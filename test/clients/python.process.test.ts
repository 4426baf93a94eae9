import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { launch } from '../kit/processes.ts';
import { findPython, ROOT } from '../../scripts/services/installed.ts';
import { freePort } from '../../scripts/services.ts';
import { newWebhookSecret, signEvent } from '../../src/events/signature.ts';
import { answer, hangUp, openBrokenService, refuse, type Script, stream } from '../support/broken-service.ts';
import { anAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { longTest, sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';

const run = promisify(execFile);
const PACKAGE = join(ROOT, 'packages/python');
const stack = useStack();
const body =
  '{"event":"conversation.created","event_id":"1","timestamp":1,"payload":' +
  '{"conversation_id":"c","session_id":"ü","channel":"api","language":"en","new":1}}';
const secret = newWebhookSecret();
const header = signEvent({ body, secrets: [secret], timestamp: Math.floor(Date.now() / 1000) });
const refused = header.replace('v1=', 'v1=0');

let folder = '';
let python = '';
let env: NodeJS.ProcessEnv = {};

/** Building a wheel and installing it takes longer than all tests, so every day the package is used from its source. */
const installs = sized({ everyday: false, long: true });

/** Runs a program with the package. */
const runPython = async (args: string[], more: Record<string, string> = {}): Promise<string> => {
  const { stdout } = await run(python, args, { cwd: folder, env: { ...env, ...more } });
  return stdout;
};

beforeAll(async () => {
  const found = findPython();
  python = found.program;
  folder = await mkdtemp(join(tmpdir(), 'parley-python-'));
  const project = installs ? join(folder, 'project') : join(PACKAGE, 'src');
  env = {
    ...process.env,
    PYTHONPATH: [project, found.folder].join(delimiter),
    PYTHONDONTWRITEBYTECODE: '1',
    PYTHONUTF8: '1',
    PYTHONUNBUFFERED: '1',
  };
  if (!installs) return;
  await mkdir(project);
  const offline = { ...process.env, PYTHONPATH: found.folder, PYTHONDONTWRITEBYTECODE: '1', PIP_NO_INDEX: '1' };
  const pip = (...args: string[]) =>
    run(python, ['-m', 'pip', '--disable-pip-version-check', '--no-cache-dir', ...args, '--no-deps'], {
      cwd: folder,
      env: offline,
    });
  await pip('wheel', '--no-build-isolation', '-w', folder, PACKAGE);
  const wheel = (await readdir(folder)).find((name) => name.endsWith('.whl')) ?? 'no wheel';
  await pip('install', '--root-user-action=ignore', '--target', project, join(folder, wheel));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

const event = (name: string, data: unknown): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const delta = (text: string, attempt = 1): string => event('delta', { text, attempt });
const ACCEPTED = event('accepted', { turnId: 't', conversationId: 'c' });
const REPLY = { reply: 'Hello', conversationId: 'c', messageId: 'm' };

const SCRIPTS: Script[] = [
  refuse(500, 'reply_timeout'),
  refuse(503, 'unavailable', { 'Retry-After': '1' }),
  answer(200, REPLY),
  refuse(422, 'validation_failed'),
  ...Array.from({ length: 2 }, () => hangUp),
  (response) => response.writeHead(401).end('<html>'),
  refuse(429, 'rate_limited', { 'Retry-After': '60' }),
  stream(`${ACCEPTED}: wait\n\n${delta('He')}${delta('llo,\u2028')}`, { whole: false }),
  stream(`${ACCEPTED}${delta('Hi')}${delta('Hel', 2)}${event('message', REPLY)}`, { whole: true }),
  hangUp,
  refuse(404, 'not_found'),
];

const NOTHING_MORE = { suggested_actions: null, sources: null, merged_into: null };
const READ_REPLY = { reply: 'Hello', conversation_id: 'c', message_id: 'm', ...NOTHING_MORE };

describe('parley for Python', () => {
  test('both clients make the same calls, and try again what may help', async () => {
    const { apiKey } = await anAssistant(stack);
    const broken = await openBrokenService([...SCRIPTS, ...SCRIPTS]);
    const silent = await openBrokenService([() => undefined, () => undefined]);
    onTestFinished(() => Promise.all([broken.close(), silent.close()]).then(() => undefined));

    const scenario = join(ROOT, 'test/clients/scenario.py');
    const says = await runPython([scenario, stack.url, apiKey, broken.url, silent.url]);

    const reply = 'We are open from 9 to 5.';
    const roles = ['user', 'assistant', 'user', 'assistant', 'user', 'assistant', 'user', 'assistant', 'system'];
    const expected = {
      reply: [reply, [], 'answered', reply],
      'new key': true,
      parts: [
        ['Accepted', null],
        ['Delta', reply],
        ['ChatResponse', reply],
      ],
      conversation: [{ plan: 'pro' }, 'angry', 80, [[5, 'system']], roles, true],
      wrong: ['validation_failed', 422, 'message', true, null],
      gone: ['not_found', 404],
      repeated: READ_REPLY,
      'not repeated': ['validation_failed', 422, null, true, null],
      proxy: ['internal_error', 401],
      late: ['rate_limited', 429, null, true, 60],
      stream: [
        { turn_id: 't', conversation_id: 'c' },
        { text: 'He', reply: 'He', attempt: 1 },
        { text: 'llo,\u2028', reply: 'Hello,\u2028', attempt: 1 },
        { text: 'Hi', reply: 'Hi', attempt: 2 },
        { text: 'Hel', reply: 'Hel', attempt: 3 },
        READ_REPLY,
      ],
      erased: null,
      silent: ['timeout', null, null, false, null],
    };
    const [blocking, waiting] = JSON.parse(says) as unknown[];
    expect(blocking).toEqual(expected);
    expect(waiting).toEqual(expected);
    expect(new Set(broken.sent.slice(0, 3).map(({ key }) => key)).size).toBe(1);
    expect(broken.sent).toHaveLength(2 * SCRIPTS.length);
  });

  test('a queue keeps the order of each session, stays under the limit, and sends again what was refused', async () => {
    const { apiKey, history } = await anAssistant(stack);
    const broken = await openBrokenService([refuse(429, 'rate_limited', { 'Retry-After': '1' }), answer(200, REPLY)]);
    onTestFinished(broken.close);
    const program = `
import asyncio, json, sys
from parley import AsyncParley, SendQueue, send_queue
async def main():
    async with AsyncParley(sys.argv[1], sys.argv[2]) as parley:
        queue = SendQueue(parley, sessions=2)
        sends = [queue.send(session, text) for text in ("one", "two", "three") for session in ("py-1", "py-2", "py-3")]
        answers = [one.conversation_id for one in await asyncio.gather(*sends)]
    async with AsyncParley(sys.argv[3], "sk_broken", retries=0) as parley:
        answers.append((await SendQueue(parley).send("py-4", "again")).reply)
    send_queue.WINDOW_S = 1
    begun, loop = [], asyncio.get_running_loop()
    class Fast:
        async def chat(self, *_, **__):
            begun.append(loop.time())
    queue = SendQueue(Fast(), per_minute=2)
    await asyncio.gather(*[queue.send(f"py-{nth}", "fast") for nth in range(5)])
    print(json.dumps([answers, [begun[nth + 2] - begun[nth] >= 0.99 for nth in range(3)]]))
asyncio.run(main())`;

    const [answers, paced] = JSON.parse(await runPython(['-c', program, stack.url, apiKey, broken.url])) as [
      string[],
      boolean[],
    ];

    for (const conversationId of answers.slice(0, 3)) {
      const { body: read } = await history(conversationId);
      const said = read.messages.filter(({ role }) => role === 'user').map(({ content }) => content);
      expect(said).toEqual(['one', 'two', 'three']);
    }
    expect(answers.at(-1)).toBe('Hello');
    expect(new Set(broken.sent.map(({ key }) => key)).size).toBe(1);
    expect([broken.sent.length, paced]).toEqual([2, [true, true, true]]);
  });

  test('a queue has room for so many messages, and sends none during a pause that began while it waited', async () => {
    const program = `
import asyncio, json
from parley import ParleyError, QueueFullError, SendQueue, send_queue
send_queue.WINDOW_S = 0.1
async def main():
    begun, loop = [], asyncio.get_running_loop()
    class Busy:
        async def chat(self, _session, message, *_, **__):
            begun.append((message, loop.time()))
            if len(begun) == 1:
                for _ in range(20):
                    await asyncio.sleep(0)  # the others get their turns: the last one waits for the window
                begun.append(("refused", loop.time()))
                raise ParleyError("", code="rate_limited", status=429, retry_after=1)
            return message
    queue = SendQueue(Busy(), per_minute=2, most=3)
    sends = [queue.send(f"py-{nth}", str(nth)) for nth in range(5)]
    ends = await asyncio.gather(*sends, return_exceptions=True)
    full = [isinstance(one, QueueFullError) for one in ends]
    later = await queue.send("py-5", "room again")
    times = dict(reversed(begun))
    paused = [times[one] - times["refused"] >= 0.99 for one in ("2", "room again")]
    print(json.dumps([[one for one, _ in begun[:3]], full, later, paused]))
asyncio.run(main())`;

    const [first, full, later, paused] = JSON.parse(await runPython(['-c', program])) as unknown[];

    expect(first).toEqual(['0', '1', 'refused']);
    expect(full, '“1” has its reply already').toEqual([false, false, false, false, true]);
    expect([later, paused]).toEqual(['room again', [true, true]]);
  });

  test('signatures are judged as the vectors say, and what is given is typed', async () => {
    const program = `
import base64, importlib.resources, json, sys
import parley
told = []
for v in json.load(open(sys.argv[1], encoding="utf-8"))["vectors"]:
    verdict = parley.verify_webhook(base64.b64decode(v["body_base64"]), v["header"], v["secrets"],
        tolerance_seconds=v["tolerance_seconds"], now=v["now"])
    told.append({"ok": True, "timestamp": verdict.timestamp} if verdict.ok else {"ok": False, "reason": verdict.reason})
newer = parley.parse_event('{"event":"newer","event_id":"1","timestamp":2,"payload":{"a":1}}')
listed = parley.parse_event({"event": "webhook.test", "event_id": "1", "timestamp": 2, "payload": {"ping": "pong"}})
print(json.dumps([told, newer.payload, listed.payload.ping, (importlib.resources.files(parley) / "py.typed").is_file()]))`;

    const says = await runPython(['-c', program, join(ROOT, 'docs/vectors.json')]);

    const { vectors } = JSON.parse(await readFile(join(ROOT, 'docs/vectors.json'), 'utf8')) as {
      vectors: { expect: object }[];
    };
    expect(JSON.parse(says)).toEqual([vectors.map((vector) => vector.expect), { a: 1 }, 'pong', true]);
  });

  test('every example of the README runs', async () => {
    const { apiKey } = await anAssistant(stack);
    const readme = await readFile(join(PACKAGE, 'README.md'), 'utf8');
    const examples = [...readme.matchAll(/```python\n(.*?)```/gs)].map(([, code = '']) => code);
    const port = await freePort();
    const more = { PARLEY_URL: stack.url, PARLEY_KEY: apiKey, WEBHOOK_SECRET: secret, PORT: String(port) };
    const server = examples.findIndex((code) => code.includes('HTTPServer'));
    await Promise.all(examples.map((code, at) => writeFile(join(folder, `example-${at}.py`), code)));
    // One process for all, because each would load the package for half a second.
    const runAll = `
import runpy, sys
for at, example in enumerate(sys.argv[1:]):
    print("\\x1e" if at else "", end="")
    runpy.run_path(example, run_name="__main__")`;
    const receiver = launch(python, [`example-${server}.py`], { cwd: folder, env: { ...env, ...more } });
    onTestFinished(() => receiver.kill());
    const post = (signature: string) =>
      fetch(`http://127.0.0.1:${port}`, { method: 'POST', body, headers: { 'X-Factory-Signature': signature } });

    const others = examples.map((_, at) => `example-${at}.py`).filter((_, at) => at !== server);
    const says = (await runPython(['-c', runAll, ...others], more)).split('\x1e');
    const reply = 'We are open from 9 to 5.';
    expect(says.map((text) => text.includes(reply))).toEqual([true, true, true, true, true, true, false]);
    expect(says[4]).toMatch(
      /^user When.*\nassistant.*\nsystem .*\n1 user\n1 assistant\n2 system\n.*visitor-46 escalated/s,
    );
    expect(says.at(-1)).toMatch(/^validation_failed 422 message /);
    expect((await eventually(() => post(header))).status).toBe(204);
    expect((await post(refused)).status).toBe(401);
    await eventually(() => expect(receiver.output.stdout).toContain('ü'));
  });

  longTest('the receiver for FastAPI accepts our events and refuses others', async () => {
    const program = `
import asyncio, sys
import httpx
from fastapi_app import app
async def main():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        for signature in sys.argv[2:]:
            headers = {"X-Factory-Signature": signature}
            print((await client.post("/parley", content=sys.argv[1].encode(), headers=headers)).status_code)
asyncio.run(main())`;

    const says = await runPython(['-c', program, body, header, refused], {
      PYTHONPATH: `${env['PYTHONPATH']}${delimiter}${join(ROOT, 'examples/receivers')}`,
      WEBHOOK_SECRET: secret,
    });

    expect(says).toBe('ü is c\n204\n401\n');
  });
});
