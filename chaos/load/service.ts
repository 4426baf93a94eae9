import { openParley, QUESTIONS } from '../../test/kit/parley.ts';
import { closeAll } from '../../test/kit/services.ts';
import { openSink } from '../../test/kit/sink.ts';
import type { LoadSettings } from './settings.ts';

const UNLIMITED = 1_000_000;
/** All events go to one endpoint, which gets more of them than the default allows (docs/deliveries.md, What to watch). */
const ENDPOINT_CONCURRENCY = '128';
const CHANNEL_TOKEN = 'channel-token-of-the-load-run';

/**
 * The smallest whole service as operators start it: one API, one reply worker, one delivery worker, with a Redis and a
 * MongoDB on disk, and one assistant with 200 entries, all ways in and an endpoint.
 */
export const openLoadedService = async (part: string) => {
  const parley = await openParley(part);
  const sink = await openSink();
  const { assistantId, apiKey } = await parley.addAssistant([sink.url]);
  await parley.service.assistants.setChannel(assistantId, {
    connected: true,
    token: CHANNEL_TOKEN,
    limitPerMinute: UNLIMITED,
  });
  const api = await parley.start('API');
  const replyWorker = await parley.start('reply worker');
  const deliveryWorker = await parley.start('delivery worker', { ENDPOINT_CONCURRENCY });
  const door: Pick<LoadSettings, 'port' | 'apiKey' | 'assistantId' | 'channelToken' | 'questions' | 'language'> = {
    port: api.port,
    apiKey,
    assistantId,
    channelToken: CHANNEL_TOKEN,
    questions: QUESTIONS,
    language: 'en',
  };
  return {
    service: parley.service,
    sink,
    door,
    api,
    replyWorker,
    deliveryWorker,
    mongodPid: parley.services.pids.mongod,
    close: closeAll,
  };
};

export type LoadedService = Awaited<ReturnType<typeof openLoadedService>>;
