/**
 * `node scripts/run.js screenshots` starts the service and takes PNG pictures of every dashboard page: wide and narrow, light and
 * dark, or of the pages that are named (`-- overview settings`). The pictures go into `.local/screenshots`; `-- --readme`
 * takes the one of the README instead. The command fails for the same reasons as the browser tests: errors,
 * refused content, calls to other hosts.
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { openApi } from '../../src/api.ts';
import { readConfig } from '../../src/platform/process/config.ts';
import { createLifecycle } from '../../src/platform/process/lifecycle.ts';
import { createLogger } from '../../src/platform/process/logger.ts';
import { openDeliveryWorker } from '../../workers/delivery/worker.ts';
import { openReplyWorker } from '../../workers/reply/worker.ts';
import { PAGES } from '../support/dashboard-pages.ts';
import { go } from '../support/dashboard.ts';
import { launchBrowser, openPage } from '../support/page.ts';
import { setScene } from '../support/scene.ts';
import { ROOT } from '../../scripts/services/installed.ts';
import { startServices } from '../../scripts/services.ts';

const FOLDER = join(ROOT, '.local/screenshots');
const isReadme = process.argv.includes('--readme');
const README = { path: join(ROOT, 'docs/images/overview-light.png'), clip: { x: 0, y: 0, width: 1440, height: 1085 } };
const named = isReadme ? ['overview'] : process.argv.slice(2);
const SHOWN = PAGES.filter(({ name }) => named.length === 0 || named.includes(name));
const SIZES = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };
const COLOURS = ['light', 'dark'] as const;

const logger = createLogger({ name: 'screenshots', level: 'error' }, process.stderr);
const lifecycle = createLifecycle(logger, { deadlineMs: 10_000 });
const complaints: string[] = [];

const openService = async (): Promise<Parameters<typeof setScene>[0]> => {
  const { mongodbUrl, redisUrl, stop } = await startServices();
  lifecycle.add('Redis and MongoDB', stop, (end) => end());
  const name = `screenshots-${randomUUID().slice(0, 8)}`;
  const database = new URL(mongodbUrl);
  database.pathname = `/${name}`;
  const config = readConfig({
    MONGODB_URL: database.href,
    REDIS_URL: redisUrl,
    REDIS_PREFIX: name,
    WEBHOOK_ALLOW_PRIVATE: 'true',
    PORT: '0',
  });
  const service = await openApi({ config, logger, lifecycle });
  lifecycle.add('the sample data', service.mongo, (mongo) => mongo.dropDatabase());
  await openReplyWorker({ config, logger, lifecycle });
  await openDeliveryWorker({ config, logger, lifecycle });
  return { url: `http://127.0.0.1:${service.port}`, service };
};

/**
 * The height of the whole page. Each page is one picture, because fixed elements would be repeated or cut off while
 * scrolling.
 */
const heightOf = (page: Page): Promise<number> => page.evaluate<number>('document.documentElement.scrollHeight');

/** Charts are loaded on demand, and drawn again in the frame after a change of size. */
const drawn = async (page: Page): Promise<void> => {
  await page.locator('.chart:not(:has(canvas))').first().waitFor({ state: 'detached' });
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
};

const shoot = async (): Promise<number> => {
  const place = await openService();
  const scene = lifecycle.add('the scene', await setScene(place), (set) => set.close());
  const browser = lifecycle.add('the browser', await launchBrowser(), (opened) => opened.close());
  let count = 0;
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const colorScheme of COLOURS) {
      for (const { name, path, after } of SHOWN) {
        const complain = (complaint: string): void => void complaints.push(`${name}: ${complaint}`);
        const page = await openPage(browser, place.url, complain, { cookie: scene.cookie, viewport, colorScheme });
        await go(page, path(scene));
        await after?.(page);
        await page.setViewportSize({ ...viewport, height: Math.max(viewport.height, await heightOf(page)) });
        await drawn(page);
        const own = { path: join(FOLDER, `${name}-${size}-${colorScheme}.png`) };
        const isOfReadme = isReadme && size === 'wide' && colorScheme === 'light';
        await page.screenshot({ ...(isOfReadme ? README : own), animations: 'disabled' });
        await page.context().close();
        count += 1;
      }
    }
  }
  return count;
};

rmSync(FOLDER, { recursive: true, force: true });
mkdirSync(FOLDER, { recursive: true });
try {
  console.log(`${await shoot()} pictures in ${FOLDER}`);
  for (const complaint of complaints) console.error(complaint);
  if (complaints.length > 0) process.exitCode = 1;
} finally {
  await lifecycle.close();
}
