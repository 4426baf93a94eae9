import { setTimeout as sleep } from 'node:timers/promises';
import { eventOperations } from '../../src/events/http/events.ts';
import { addressOf, type AnswerOf } from './operations.ts';

export type EventPage = AnswerOf<typeof eventOperations.list>;

/** A reader without `wait` asks again after this time if the page was empty. */
const PAUSE_MS = 100;

type Ask = (url: string, options: { bearer: string }) => Promise<{ status: number; body: EventPage }>;
const askPlainly: Ask = async (url, { bearer }) => {
  const response = await fetch(url, { headers: { Authorization: `Bearer ${bearer}` } });
  return { status: response.status, body: (await response.json()) as EventPage };
};

/** Follows the list of events as a receiver does: page after page, from the beginning, without end. */
export async function* followEvents(
  { url, bearer, ask = askPlainly }: { url: string; bearer: string; ask?: Ask },
  query: Record<string, string> = {},
): AsyncGenerator<EventPage, never> {
  for (let cursor: string | null = null; ; ) {
    const search = new URLSearchParams({ ...query, ...(cursor !== null && { after: cursor }) });
    const address = addressOf(eventOperations.list, {}, `?${search.toString()}`);
    const { status, body }: Awaited<ReturnType<Ask>> = await ask(`${url}${address}`, { bearer });
    if (status !== 200) throw new Error(`the list of events answered ${status}`);
    yield body;
    ({ cursor } = body);
    if (body.events.length === 0 && query['wait'] === undefined) await sleep(PAUSE_MS);
  }
}
