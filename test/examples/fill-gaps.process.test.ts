import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { launch } from '../kit/processes.ts';
import { findPython, ROOT } from '../../scripts/services/installed.ts';
import { freePort } from '../../scripts/services.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ timing: { endWrittenWithinMs: 1_000 } });

/** A folder with this receiver and the TypeScript client, as if it were installed there. */
const aProject = async (file: string): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), 'parley-receiver-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const client = join(folder, 'node_modules/@parley/client');
  await mkdir(client, { recursive: true });
  await writeFile(join(client, 'package.json'), '{ "type": "module", "exports": "./index.js" }');
  const source = pathToFileURL(join(ROOT, 'packages/client/src/parley.ts')).href;
  await writeFile(join(client, 'index.js'), `export * from ${JSON.stringify(source)};`);
  await copyFile(join(ROOT, 'examples/receivers', file), join(folder, file));
  return folder;
};

const PROGRAMS = [
  ['Node', () => process.execPath, 'fill-gaps.mjs'],
  ['Python', () => findPython().program, 'fill_gaps.py'],
] as const;

test.each(PROGRAMS)(
  'the receiver in %s takes what it missed from the feed, in order, and each event once',
  async (_language, program, file) => {
    const { assistantId, apiKey, chat } = await anAssistant(stack);
    const port = await freePort();
    const added = await stack.service.endpoints.addEndpoint(assistantId, {
      url: `http://127.0.0.1:${port}/`,
      events: ['message.received'],
    });
    const { endpointId } = added.endpoint;
    const first = aTurn({ message: 'One' });
    const say = (message: string) => chat({ ...first, message });
    const ended = (count: number) =>
      eventually(async () => {
        const { deliveries } = await stack.service.deliveries.listRecords({ assistantId, limit: 200 });
        const done = deliveries.filter(({ endedAt }) => endedAt !== null);
        expect(done).toHaveLength(count);
        return done.toSorted((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0));
      });
    const { conversationId } = (await say('One')).body;
    await ended(1); // nobody listens yet

    const folder = await aProject(file);
    const { output, kill } = launch(program(), [join(folder, file)], {
      env: {
        ...process.env,
        PYTHONPATH: [join(ROOT, 'packages/python/src'), findPython().folder].join(delimiter),
        PYTHONDONTWRITEBYTECODE: '1',
        PARLEY_URL: stack.url,
        PARLEY_KEY: apiKey,
        ENDPOINT_ID: endpointId,
        WEBHOOK_SECRET: added.secret,
        PORT: String(port),
      },
    });
    onTestFinished(() => kill());
    await eventually(async () =>
      expect((await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: '{}' })).status).toBe(401),
    );
    await say('Two');
    await say('Three');
    const all = await ended(3);
    const lines = () => output.said.split('\n').filter((line) => line.startsWith(conversationId));
    await eventually(() => expect(lines().length).toBeGreaterThanOrEqual(3));

    const code = (await readFile(join(folder, file), 'utf8'))
      .split('\n')
      .filter((line) => !/^\s*(?:$|#|\/\/)/.test(line));
    expect(code.length).toBeLessThanOrEqual(30);
    expect(all.map(({ outcome }) => outcome)).toEqual(['not_sent', 'delivered', 'delivered']);
    expect(lines()).toEqual(all.map(({ eventId, sequence }) => `${conversationId} ${sequence} ${eventId}`));
  },
);
