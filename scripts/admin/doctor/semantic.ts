import { openEmbedder } from '../../../workers/reply/embedder/embedder.ts';
import type { Bench } from '../session.ts';

/** Whether the model of these settings works on this machine, found out by opening it as a reply worker does. */
export const trySemantic = async ({ config, logger }: Bench): Promise<{ available: boolean; detail: string }> => {
  const embedder = await openEmbedder({ config, logger });
  try {
    return embedder.status();
  } finally {
    await embedder.close();
  }
};
