import { randomUUID } from 'node:crypto';
import type { Page, Request } from 'playwright-core';
import { eventually } from './eventually.ts';
import { PASSWORD } from './operator-client.ts';
import type { Stack } from './stack.ts';

/** Creates an operator who has not signed in yet. */
export const anAccount = async (stack: Stack, role: 'owner' | 'agent' = 'owner') => {
  const email = `${role}-${randomUUID()}@example.com`;
  const { operatorId } = await stack.service.operators.createOperator({ email, role, password: PASSWORD });
  return { operatorId, email, password: PASSWORD };
};

export const signIn = async (page: Page, { email, password }: { email: string; password: string }): Promise<void> => {
  await page.getByLabel('Email').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
};

/** Waits until a page has loaded its data. */
export const settled = async (page: Page): Promise<void> => {
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.getByLabel('Loading', { exact: true }).first().waitFor({ state: 'detached' });
};

const loaded = async (page: Page, move: () => Promise<unknown>): Promise<void> => {
  const underWay = new Set<Request>();
  const begun = (request: Request): void => {
    if (!request.url().endsWith('/v1/live')) underWay.add(request); // live updates never end
  };
  const ended = (request: Request): boolean => underWay.delete(request);
  page.on('request', begun).on('requestfinished', ended).on('requestfailed', ended);
  await move();
  await settled(page);
  await eventually(() => {
    if (underWay.size > 0)
      throw new Error(`still in flight: ${[...underWay].map((request) => request.url()).join(' ')}`);
  });
  page.off('request', begun).off('requestfinished', ended).off('requestfailed', ended);
};

/** Loads a page. */
export const go = (page: Page, path: string): Promise<void> => loaded(page, () => page.goto(`/operator${path}`));

/**
 * Goes to another page as by one of the dashboard's links, which costs a fraction of loading it. The first page is loaded.
 * What the dashboard has read before (who is signed in, which assistants there are) is not read again.
 */
export const visit = async (page: Page, path: string): Promise<void> => {
  const to = `/operator${path}`;
  const { pathname = '' } = URL.parse(page.url()) ?? {};
  if (!pathname.startsWith('/operator') || pathname === to.split('?')[0]) return go(page, path);
  // The second frame is drawn with what the new page asks for at first.
  const drawn = 'new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))';
  await loaded(page, async () => {
    await page.evaluate(`history.pushState(null, '', ${JSON.stringify(to)})`);
    await page.evaluate(drawn);
  });
};

/** Opens a page through the menu. */
export const open = async (page: Page, name: string): Promise<void> => {
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { level: 1, name }).waitFor();
};

/** Returns the secret that a dialog shows once, and closes the dialog. */
export const takeSecret = async (page: Page, label: string): Promise<string> => {
  const value = await page.getByRole('group', { name: label }).textContent();
  await page.getByRole('button', { name: 'I have saved it' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  return value ?? '';
};
