import { expect, onTestFinished, test } from 'vitest';
import { aPage, aSentence, openWebsite } from '../kit/website.ts';
import { aReader, QUICK } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({
  replyWorkers: 0,
  deliveryWorkers: 0,
  sourcesWorkers: 1,
  timing: { ...QUICK, sourceFetchMs: 60_000 },
});
const SECTIONS = 1_500;

test('a large page is stored at the first try while its owner changes the source all the time', async () => {
  const sections = Array.from(
    { length: SECTIONS },
    (_, nth) => `<h2>Shop ${nth}</h2><p>${aSentence(`shop ${nth}`)}</p>`,
  );
  const page = aPage('Shops', aSentence('all shops')).replace('</main>', `${sections.join('')}</main>`);
  const site = await openWebsite({ '/': page });
  onTestFinished(() => site.close());
  const { addSite, assistantId, ended, pagesOf } = await aReader(stack);
  const { sourceId } = await addSite(`${site.url}/`);
  let isOver = false;
  const changing = (async () => {
    for (let nth = 0; !isOver; nth += 1)
      await stack.service.sources.change(assistantId, sourceId, { name: `Shops ${nth}` });
  })();

  const { counts } = await ended(sourceId);

  isOver = true;
  await changing;
  expect(counts.passages).toBeGreaterThanOrEqual(SECTIONS);
  expect(await stack.service.mongo.collection('sourcePages').findOne({ sourceId })).toMatchObject({ tries: 1 });
  expect(await pagesOf(sourceId)).toEqual({ '/': 'read' });
});
