import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, type BrowserContext, chromium, type Page, type ViewportSize } from 'playwright-core';
import { findBrowser } from '../../scripts/services/installed.ts';
import { eventually } from './eventually.ts';

const FLAGS = [
  '--disable-gpu',
  // Fewer processes and threads: the pages are small, and other test files run beside them.
  '--num-raster-threads=1',
  '--renderer-process-limit=1',
  '--disable-site-isolation-trials',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1', // a request to another host fails and is reported
];
const PATIENCE_MS = 60_000;

export type PageOptions = {
  cookie?: string | null;
  colorScheme?: 'light' | 'dark';
  viewport?: ViewportSize;
  reducedMotion?: 'reduce' | 'no-preference';
};

export const launchBrowser = (): Promise<Browser> => {
  const { program, sandbox, env } = findBrowser();
  return chromium.launch({
    executablePath: program,
    chromiumSandbox: sandbox,
    args: FLAGS,
    env: { ...process.env, ...env },
  });
};

const cookieOf = (pair: string, url: string) => {
  const [name = '', ...value] = pair.split('=');
  return { name, value: value.join('='), url };
};

/** A page with an empty profile. `complain` receives hidden faults: errors, refused content, calls to other hosts. */
export const openPage = async (
  browser: Browser,
  url: string,
  complain: (complaint: string) => void,
  { cookie, ...options }: PageOptions = {},
): Promise<Page> => {
  const { origin } = new URL(url);
  const context: BrowserContext = await browser.newContext({
    baseURL: url,
    reducedMotion: 'reduce',
    locale: 'en-GB',
    ...options,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  if (cookie) await context.addCookies([cookieOf(cookie, url)]);

  await context.exposeBinding('tellViolation', (_source, violation: string) =>
    complain(`content security policy: ${violation}`),
  );
  await context.addInitScript(`addEventListener('securitypolicyviolation', (event) =>
    tellViolation(event.effectiveDirective + ' ' + event.blockedURI + ' ' + event.sample))`);
  context.on('console', (message) => {
    if (message.type() === 'error') complain(`console: ${message.text()}`);
  });
  context.on('weberror', (failure) => complain(`error in the page: ${failure.error().message}`));
  context.on('request', (request) => {
    const to = URL.parse(request.url());
    if (to?.origin !== origin && !['data:', 'blob:'].includes(to?.protocol ?? '')) {
      complain(`asked outside: ${request.url()}`);
    }
  });
  return context.newPage();
};

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

type AxeViolation = { id: string; impact: string; help: string; nodes: { target: string[]; failureSummary: string }[] };

/**
 * Serious and critical findings of axe-core, each with its element. With `only: 'colour'`, other rules are not tried; `in`
 * selects a part of the page.
 */
export const barriersIn = async (
  page: Page,
  { only, in: part }: { only?: 'colour'; in?: string } = {},
): Promise<string[]> => {
  if (!(await page.evaluate<boolean>(`'axe' in window`))) await page.evaluate(axeSource);
  const runOnly = only === 'colour' ? `, runOnly: ['color-contrast', 'link-in-text-block']` : '';
  const { violations } = await page.evaluate<{ violations: AxeViolation[] }>(
    `axe.run(${part ? JSON.stringify(part) : 'document'}, { resultTypes: ['violations']${runOnly} }).then(({ violations }) => ({ violations }))`,
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, help, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id} (${help}) at ${target.join(' ')}: ${failureSummary}`),
    );
};

/**
 * Waits for the transitions and animations that end, such as a change of colours. It asks again and again, because the
 * promise of an animation may never settle.
 */
export const animated = (page: Page): Promise<void> =>
  eventually(async () => {
    const moving = await page.evaluate<number>(`document.getAnimations()
      .filter(({ effect, playState }) => playState === 'running' && effect.getComputedTiming().endTime !== Infinity).length`);
    if (moving > 0) throw new Error(`${moving} animations go on`);
  });

/** The horizontal overflow of the page in pixels. */
export const overflowOf = (page: Page): Promise<number> =>
  page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');

/** The words of buttons that are cut off. One pixel is a rounded fraction. */
export const cutButtonsOf = (page: Page): Promise<string[]> =>
  page.evaluate<string[]>(
    `[...document.querySelectorAll('.mantine-Button-label')].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)`,
  );
