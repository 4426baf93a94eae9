import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { launchBrowser, openPage, type PageOptions } from './page.ts';

/**
 * A browser for a test file. A test fails if its pages complain (see `openPage`) and it does not expect that. Chromium
 * itself writes an error for every response with status 400 or higher.
 */
export const useBrowser = () => {
  let browser: Browser | undefined;
  let kept: Page | undefined;
  let complaints: string[] = [];
  let expected: RegExp[] = [];

  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterEach(async () => {
    const contexts = (browser?.contexts() ?? []).filter((context) => context !== kept?.context());
    await Promise.all(contexts.map((context) => context.close()));
    const unexpected = complaints.filter((one) => !expected.some((pattern) => pattern.test(one)));
    complaints = [];
    expected = [];
    expect(unexpected).toEqual([]);
  });
  afterAll(async () => browser?.close());

  const open = (url: string, options: PageOptions = {}): Promise<Page> => {
    if (!browser) throw new Error('the browser is not open yet');
    return openPage(browser, url, (complaint) => complaints.push(complaint), options);
  };
  return {
    open,
    /** One page for all tests that call this, with the options of the first call. Loading is faster in an open page. */
    openOnce: async (url: string, options: PageOptions = {}): Promise<Page> => {
      kept ??= await open(url, options);
      return kept;
    },
    complaints: () => complaints,
    expectComplaint: (...patterns: RegExp[]) => expected.push(...patterns),
  };
};
