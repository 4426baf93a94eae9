import type { Assistant } from '../../../src/assistants/assistant.ts';
import { toEngineView } from '../../../src/assistants/engine-settings.ts';

/** Without the keys it is protected by. */
export const toShown = ({
  sessionKey: _key,
  channel,
  engine,
  version: _version,
  semantic: _semantic,
  ...assistant
}: Assistant) => {
  const { connected, tokenHash, limitPerMinute } = channel;
  return {
    ...assistant,
    engine: toEngineView(engine),
    channel: { connected, open: connected && tokenHash === null, limitPerMinute },
  };
};
