import { createLogger } from '../../../src/platform/logger.ts';
import { openEmbedder } from '../../../workers/reply/embedder/embedder.ts';
import type { CommandContext } from '../session.ts';

/** Whether the model of these settings works on this machine, found out by opening it as a reply worker does. */
export const trySemantic = async ({
  config,
}: Pick<CommandContext, 'config'>): Promise<{ available: boolean; detail: string }> => {
  // What is found stands in the doctor's own report.
  const logger = createLogger({ name: 'doctor', level: 'silent' });
  const embedder = await openEmbedder({ config, logger });
  try {
    return embedder.status();
  } finally {
    await embedder.close();
  }
};
