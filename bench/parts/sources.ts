import { globSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { p99Of } from '../../test/kit/quantiles.ts';
import { type Figure, figureOf, type Part } from '../support/figures.ts';
import { drive, openCaller } from '../support/mixed-load.ts';
import type { MixedTurn } from '../support/mixed-turns.ts';
import { openParley, QUESTIONS } from '../../test/kit/parley.ts';
import { memoryMbOf } from '../../test/kit/services.ts';
import { type Answer, openReceiver, type Received } from '../../test/kit/receiver.ts';
import { openSink } from '../../test/kit/sink.ts';

const WHOLE = { pages: 300, turnsPerSecond: 50 };
const RUN_SECONDS = 5;
const ALONE_SECONDS = 20;
const WITHIN_MS = 900_000;
const FACT = { sentence: 'The winter market opens on 28 November at 15:00.', evidence: '28 November' };
const FIRST_QUESTION = 'When does the winter market open?';

/** The pages of the evaluation's handbook, manual and town, each several times with other sentences. */
const openSite = async (pages: number) => {
  const folder = new URL('../../packages/understanding/eval/documents/', import.meta.url).pathname;
  const texts = globSync('{handbook,manual,town}/pages/*.html', { cwd: folder }).toSorted();
  const pageOf = (nth: number): string =>
    readFileSync(`${folder}${texts[nth % texts.length]}`, 'utf8').replaceAll(
      '<p>',
      `<p>Branch ${Math.floor(nth / texts.length)}. `,
    );
  const links = Array.from({ length: pages - 1 }, (_, nth) => `<li><a href="/pages/${nth}">Page ${nth}</a></li>`);
  const first = `<html lang="en"><title>Town</title><h1>News</h1><p>${FACT.sentence} Everybody is welcome.</p><ul>${links.join('')}</ul></html>`;
  const respond = ({ path }: Received): Answer => {
    const [, nth] = /^\/pages\/(\d+)$/.exec(path) ?? [];
    if (path !== '/' && nth === undefined) return { status: 404 };
    const body = nth === undefined ? first : pageOf(Number(nth));
    return { headers: { 'content-type': 'text/html; charset=utf-8' }, body };
  };
  const { url } = await openReceiver({ respond });
  return `${url}/`;
};

/** How soon a site answers, how long reading it takes, and what other assistants notice of it. */
export const sources: Part = async ({ scale }, say) => {
  const pages = Math.ceil(WHOLE.pages * scale);
  const turnsPerSecond = Math.ceil(WHOLE.turnsPerSecond * scale);
  const parley = await openParley('sources');
  const sink = await openSink();
  const url = await openSite(pages);
  const neighbour = await parley.addAssistant([sink.url]);
  const { assistantId } = await parley.service.assistants.createAssistant({ name: 'Town', languages: ['en'] });
  const { apiKey } = await parley.service.assistants.createApiKey({
    assistantId,
    name: 'bench',
    limitPerMinute: 100_000,
  });
  const assistants = new Map<string, { assistantId: string; apiKey: string }>([
    ['neighbour', neighbour],
    ['town', { assistantId, apiKey }],
  ]);
  const worker = await parley.start('reply worker');
  const sourcesWorker = await parley.start('sources worker');
  const children = [await parley.start('API'), await parley.start('delivery worker'), worker, sourcesWorker];
  const caller = openCaller(children[0]?.port ?? 0, assistants);

  let asked = 0;
  const turnOf = (base: string, message: string): MixedTurn => {
    asked += 1;
    return { base, session: `sources-${asked}`, language: 'en', kind: 'sure', message };
  };
  const timesOf = async (seconds: number): Promise<number[]> => {
    const turns = Array.from({ length: turnsPerSecond * seconds + 20 }, (_, nth) =>
      turnOf('neighbour', QUESTIONS[nth % QUESTIONS.length] ?? ''),
    );
    return (await drive(caller, turns, { perSecond: turnsPerSecond }, seconds)).map(({ ms }) => ms);
  };

  await timesOf(RUN_SECONDS);
  const alone = p99Of(await timesOf(ALONE_SECONDS));

  const startedAt = performance.now();
  const { sourceId } = await parley.service.sources.add(assistantId, { kind: 'site', url });
  let firstMs: number | null = null;
  let wholeMs: number | null = null;
  let mostMb = 0;
  let isWatching = true;
  const watching = (async (): Promise<void> => {
    for (;;) {
      const { state, counts, error } = await parley.service.sources.get(assistantId, sourceId);
      mostMb = Math.max(mostMb, memoryMbOf(worker.pid));
      if (firstMs === null) {
        const { reply } = await caller.ask(turnOf('town', FIRST_QUESTION), 'town');
        if (reply.includes(FACT.evidence)) firstMs = performance.now() - startedAt;
      }
      if (state === 'failed') throw new Error(`the site was not read: ${error?.message}`);
      if (state === 'ready' && counts.embedded === counts.passages && firstMs !== null) break;
      if (performance.now() - startedAt > WITHIN_MS) throw new Error(`not read in time: ${JSON.stringify(counts)}`);
      await sleep(250);
    }
    wholeMs = performance.now() - startedAt;
  })().finally(() => {
    isWatching = false;
  });
  watching.catch(() => undefined);
  const times: number[] = [];
  while (isWatching) times.push(...(await timesOf(RUN_SECONDS)));
  await watching;
  const { counts } = await parley.service.sources.get(assistantId, sourceId);
  say(
    `sources: ${counts.read} pages, ${counts.passages} passages, the reply worker has at most ${mostMb.toFixed(0)} MB`,
  );

  caller.close();
  const figures: Figure[] = [
    figureOf('sources.first', `a site of ${pages} pages: its first page answers after`, 's', [
      (firstMs ?? Number.NaN) / 1000,
    ]),
    figureOf('sources.whole', `a site of ${pages} pages: read and found by meaning after`, 's', [
      (wholeMs ?? Number.NaN) / 1000,
    ]),
    figureOf('sources.alone', `${turnsPerSecond} turns a second of a neighbour before: p99`, 'ms', [alone]),
    figureOf('sources.p99', `${turnsPerSecond} turns a second of a neighbour meanwhile: p99`, 'ms', [p99Of(times)]),
    figureOf('sources.ratio', 'p99 of a neighbour meanwhile ÷ before', '', [p99Of(times) / alone]),
  ];
  return { figures, detail: { counts } };
};
