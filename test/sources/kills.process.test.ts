import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { anEmbedderOfTokens } from '../support/embedder.ts';
import { type RealProcess, startRealProcess } from '../kit/processes.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { sized } from '../support/size.ts';
import { useStack } from '../support/stack.ts';
import { aPage, aSentence, openWebsite, type Website } from '../kit/website.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  timing: QUICK,
  embedder: () => anEmbedderOfTokens(),
});

const PAGES = sized({ everyday: 6, long: 12 });
const KILLS = Number(process.env['KILLS'] ?? sized({ everyday: 1, long: 4 }));

let site: Website;
const running = new Set<RealProcess>();
beforeAll(async () => {
  site = await openWebsite();
});
afterEach(async () => {
  await Promise.all([...running].map((one) => one.kill()));
  running.clear();
});
afterAll(async () => site.close());

/** A version of the site: each text says which version it is of. */
const show = (version: number): void => {
  const links = Array.from({ length: PAGES }, (_, nth) => `/page-${nth}`);
  site.pages.set('/', aPage('Start', aSentence(`the start, version ${version}`), links));
  for (const link of links) site.pages.set(link, aPage(link, aSentence(`${link}, version ${version}`)));
};

const versionsIn = (texts: string[]): string[] => [
  ...new Set(texts.flatMap((text) => /version (\d+)/.exec(text)?.[1] ?? [])),
];

test('a worker that is killed at any moment of a refresh leaves one version, whole, and the next one goes on', async () => {
  const reader = await aReader(stack);
  show(1);
  const first = await stack.startSourcesWorker();
  const { sourceId } = await reader.addSite(`${site.url}/`);
  await reader.ended(sourceId);
  await first.close();
  const outcomes: string[] = [];

  for (let kill = 0; kill < KILLS; kill += 1) {
    const { run, live: old } = await reader.findSource(sourceId);
    const [shown] = versionsIn(await reader.visibleTexts(sourceId));
    const next = Number(shown) + 1;
    show(next);
    const worker = await startRealProcess('quickSources', stack.env);
    running.add(worker);
    const asked = site.asked.length;
    await reader.refresh(sourceId);
    // From before the first request to after the last one, and some milliseconds more.
    const requests = (kill * 5) % (PAGES + 4);
    await eventually(() => expect(site.asked.length - asked).toBeGreaterThanOrEqual(requests));
    // The last one is killed when the new version is shown, however slow the machine is.
    const atLeast = kill === KILLS - 1 ? old + 1 : old;
    await eventually(async () => expect((await reader.findSource(sourceId)).live).toBeGreaterThanOrEqual(atLeast));
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 60));
    await worker.kill();

    const { state, live } = await reader.findSource(sourceId);
    outcomes.push(`${requests}: ${state}${live > old ? ', shown' : ''}`);
    const during = await reader.visibleTexts(sourceId);
    expect(versionsIn(during)).toEqual([String(live > old ? next : shown)]);
    expect(during.length).toBe(PAGES + 1);

    const other = await stack.startSourcesWorker();
    const source = await reader.ended(sourceId, run + 1);
    await eventually(async () => {
      const { counts } = await reader.findSource(sourceId);
      expect(counts.embedded).toBe(PAGES + 1);
    });
    await reader.storedIndex(sourceId);
    await other.close();
    expect(source).toMatchObject({ state: 'ready', error: null, run: run + 1, live: run + 1 });
    expect(versionsIn(await reader.visibleTexts(sourceId))).toEqual([String(next)]);
    expect(await reader.findOrphans(sourceId)).toEqual([]);
    expect(await reader.countTokens(sourceId)).toBe(PAGES + 1);
  }

  // Several kills are at different steps.
  const steps = new Set(outcomes.map((one) => one.split(': ')[1]));
  expect(steps.size, outcomes.join('\n')).toBeGreaterThanOrEqual(Math.min(KILLS, 2));
}, 900_000);

test('a worker that is killed while it removes a source leaves nothing after the next one', async () => {
  const reader = await aReader(stack);
  show(1);
  const first = await stack.startSourcesWorker();
  const { sourceId } = await reader.addSite(`${site.url}/`);
  await reader.ended(sourceId);
  await first.close();
  const worker = await startRealProcess('quickSources', stack.env);
  running.add(worker);

  await reader.remove(sourceId);
  await eventually(async () => expect((await reader.countLeft(sourceId))['passages']).toBeLessThan(PAGES + 1));
  await worker.kill();
  const other = await stack.startSourcesWorker();

  await eventually(async () => expect(new Set(Object.values(await reader.countLeft(sourceId)))).toEqual(new Set([0])));
  await other.close();
});
