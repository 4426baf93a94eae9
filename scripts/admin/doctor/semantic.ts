import { createLogger } from '../../../src/platform/process/logger.ts';
import { openChosenEmbedder } from '../../../src/embedder.ts';
import type { CommandContext } from '../stores.ts';

/** Opens the configured model as a reply worker does, and reports whether the model works on this machine. */
export const trySemantic = async ({
  config,
}: Pick<CommandContext, 'config'>): Promise<{ available: boolean; detail: string }> => {
  // The log is silent, because the doctor's report already contains the result.
  const logger = createLogger({ name: 'doctor', level: 'silent' });
  const embedder = await openChosenEmbedder({ config, logger });
  try {
    // A large model takes longer to start than a worker waits for it. Its start is bounded.
    while (embedder.status().detail === 'starting') await embedder.firstTry();
    return embedder.status();
  } finally {
    await embedder.close();
  }
};
