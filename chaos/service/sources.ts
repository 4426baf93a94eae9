import { setTimeout as sleep } from 'node:timers/promises';
import { openReceiver } from '../../test/kit/receiver.ts';
import type { Service } from '../../src/service.ts';
import type { StoredIndexPiece, StoredPassage, StoredSource } from '../../src/sources/source.ts';

export const SOURCE_RULE = 'a source has one version, whole, and no orphans';

const PAGES = 8;
const LOOK_EVERY_MS = 300;
const SETTLED_WITHIN_MS = 90_000;

const pageOf = (path: string, version: number): string => {
  const links = path === '/' ? Array.from({ length: PAGES - 1 }, (_, nth) => `<a href="/${nth}">${nth}</a>`) : [];
  const text = `The page ${path} is of version ${version}, and says at length what else there is to know about ${path}: who comes early finds the desk open, and who comes late waits until the next morning.`;
  return `<html><head><title>${path}</title></head><body><main><h1>${path}</h1><p>${text}</p></main>${links.join('')}</body></html>`;
};

/** A website whose version rises between two runs. */
const openSite = async () => {
  let version = 1;
  const { url, close } = await openReceiver({
    respond: ({ path }) =>
      /^\/\d?$/.test(path)
        ? { headers: { 'Content-Type': 'text/html' }, body: pageOf(path, version) }
        : { status: 404 },
  });
  return { url: `${url}/`, close, version: (): number => version, next: (): void => void (version += 1) };
};

const versionIn = (text: string): string => /version (\d+)/.exec(text)?.[1] ?? 'none';

/**
 * Reads a website again and again while faults happen, and looks meanwhile at what answers see. Returns what was wrong,
 * after the last run has ended.
 */
export const refreshSources = async (
  { sources, mongo }: Service,
  { assistantId, isOver }: { assistantId: string; isOver: () => boolean },
): Promise<{ wrong: string[]; runs: number }> => {
  const site = await openSite();
  const wrong: string[] = [];
  // A store may be down at any moment. The checker asks again.
  const insist = async <Value>(ask: () => Promise<Value>): Promise<Value> => {
    for (;;) {
      const asked = await ask().catch(() => undefined);
      if (asked !== undefined) return asked;
      await sleep(LOOK_EVERY_MS);
    }
  };
  const { sourceId } = await insist(() => sources.add(assistantId, { kind: 'site', url: site.url }));
  const find = () => insist(async () => mongo.collection<StoredSource>('sources').findOne({ _id: sourceId }));
  const listPassages = () =>
    insist(() => mongo.collection<StoredPassage>('passages').find({ sourceId }).toArray() as Promise<StoredPassage[]>);

  /** What answers see, if the version did not change while it was read. */
  const look = async (): Promise<void> => {
    const before = await find();
    const all = await listPassages();
    const after = await find();
    if (!before || before.live !== after?.live || before.endedAt === null) return;
    const seen = all.filter(({ since, until }) => since <= before.live && (until === null || until > before.live));
    const versions = new Set(seen.map(({ text }) => versionIn(text)));
    if (seen.length !== PAGES || versions.size !== 1)
      wrong.push(
        `run ${before.run}, live ${before.live}: ${seen.length} passages of versions ${[...versions].join(', ')}`,
      );
  };
  const isSettled = (source: StoredSource | null): boolean =>
    source !== null && source.lease === undefined && ['ready', 'failed'].includes(source.state);
  const isIndexed = (source: StoredSource | null): boolean =>
    source?.indexed != null && source.indexed.by !== null && source.indexed.lease === undefined;

  let isShown = false;
  while (!isOver()) {
    const source = await find();
    if (isSettled(source) && source?.nextAt === null) {
      isShown ||= source.state === 'ready';
      site.next();
      await sources.refresh(assistantId, sourceId).catch(() => undefined);
    }
    if (isShown) await look();
    await sleep(LOOK_EVERY_MS);
  }

  const until = performance.now() + SETTLED_WITHIN_MS;
  await sources.refresh(assistantId, sourceId).catch(() => undefined);
  for (let last = await find(); ; last = await find()) {
    if (isSettled(last) && last?.nextAt === null && isIndexed(last)) break;
    if (performance.now() > until) {
      wrong.push(
        `the last run has not ended: ${JSON.stringify({ state: last?.state, run: last?.run, lease: last?.lease, indexed: last?.indexed })}`,
      );
      break;
    }
    await sleep(LOOK_EVERY_MS);
  }
  const last = await find();
  const left = await listPassages();
  const orphans = left.filter(({ since, until: end }) => since > (last?.live ?? 0) || end !== null);
  if (orphans.length > 0) wrong.push(`${orphans.length} passages that nobody can see`);
  const pieces = await insist(() =>
    mongo
      .collection<StoredIndexPiece>('passageIndexes')
      .find({ sourceId }, { projection: { of: 1 } })
      .toArray(),
  );
  const indexes = new Set(pieces.map(({ of }) => of));
  if (indexes.size !== 1) wrong.push(`${indexes.size} stored indexes`);
  if (last?.state === 'ready' && left.some(({ text }) => versionIn(text) !== String(site.version())))
    wrong.push(
      `passages of versions ${left.map(({ text }) => versionIn(text)).join(', ')} instead of ${site.version()}`,
    );
  await site.close();
  return { wrong, runs: last?.run ?? 0 };
};
