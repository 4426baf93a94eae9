import { expect, test } from 'vitest';
import { useBrowser } from '../support/browser.ts';
import { anAssistant, aTurn } from '../support/builders.ts';
import { go } from '../support/dashboard.ts';
import { eventually } from '../support/eventually.ts';
import { anOperator } from '../support/operator-client.ts';
import { barriersIn, overflowOf } from '../support/page.ts';
import { openReceiver } from '../kit/receiver.ts';
import { useStack } from '../support/stack.ts';

const stack = useStack({ timing: { endWrittenWithinMs: 1_000 } });
const browser = useBrowser();

test('an owner counts what an endpoint missed, sends it again, pauses and resumes', async () => {
  const { assistantId, chat } = await anAssistant(stack);
  const hold = Promise.withResolvers<object>();
  const receiver = await openReceiver({
    respond: (_, nth) => (nth <= 2 ? { status: 500 } : nth === 3 ? hold.promise : {}),
  });
  const events = ['message.received' as const];
  const { endpoint } = await stack.service.endpoints.addEndpoint(assistantId, { url: receiver.url, events });
  for (const session_id of ['one', 'two']) await chat(aTurn({ session_id }));
  await eventually(async () => {
    const { deliveries } = await stack.service.deliveries.listRecords({ assistantId, outcome: 'rejected' });
    expect(deliveries).toHaveLength(2);
  });
  const owner = await anOperator(stack);
  const page = await browser.open(stack.url, { cookie: owner.cookie() });
  await go(page, `/assistants/${assistantId}/webhooks/${endpoint.endpointId}`);

  await page.getByRole('button', { name: 'Recover missed events…' }).press('Enter');
  await page.getByRole('button', { name: 'Count events' }).click();
  await page.getByText('There is nothing to send again.').waitFor();
  await page.getByLabel('Rejected').check();
  await page.getByRole('button', { name: 'Count events' }).click();
  await page.getByText('2 events of 2 conversations: 2 rejected. The oldest: ').waitFor();
  expect(await barriersIn(page)).toEqual([]);
  await page.getByRole('button', { name: 'Send 2 events again' }).click();
  await receiver.waitFor((received) => received.length >= 3);
  await page.getByRole('button', { name: 'Pause' }).click();
  const recoveries = page.getByRole('list', { name: 'Recoveries' });
  await recoveries.getByText('Paused').waitFor();
  expect(await barriersIn(page)).toEqual([]);
  await page.setViewportSize({ width: 390, height: 844 });
  // The menu closes in some frames.
  await eventually(async () => expect(await overflowOf(page)).toBe(0));
  hold.resolve({});
  await page.getByRole('button', { name: 'Resume' }).click();
  await recoveries.getByText('Done').waitFor();

  await recoveries.getByText('2 of 2 events sent again: 2 delivered').waitFor();
  expect(receiver.received).toHaveLength(4);
});
