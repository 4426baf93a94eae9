import { createProjection } from './token-vectors.ts';
import { CHOSEN, ModelError } from './backend.ts';
import { findDamage, openSession } from './model-files.ts';
import { openModelFolder, projectionIn } from './model-folder.ts';
import type { ModelMessage, ModelRequest } from './model-process.ts';

/**
 * The process that runs the local model, started by `model-process.ts`. onnxruntime is native code and blocks the event
 * loop while it runs. Here a crash loses a vector, but never a worker. The process runs until its parent disconnects or
 * kills it.
 */

const send = (message: ModelMessage): void => void process.send?.(message);

const openModel = async (folder: string, isChosen: boolean) => {
  const { run, dimensions, model, tokenKind } = isChosen ? await openModelFolder(folder) : await openSession(folder);
  let tokenVectorsOf: ReturnType<typeof createProjection> | undefined; // most installations never ask for them
  const embed = async ({ text, isQuery, withTokens }: ModelRequest) => {
    const { vector, states, from, to } = await run(text, isQuery ? 'query' : 'passage', withTokens);
    if (!states) return { vector };
    tokenVectorsOf ??= createProjection(dimensions, ...(isChosen ? [projectionIn(folder)] : []));
    return { vector, tokens: tokenVectorsOf(states, from, to) };
  };
  return { embed, model, tokenKind };
};

const main = async (folder: string, isChosen: boolean): Promise<void> => {
  const damage = isChosen ? null : await findDamage(folder);
  if (damage !== null) return send({ type: 'unusable', reason: damage });
  let opened: Awaited<ReturnType<typeof openModel>>;
  try {
    opened = await openModel(folder, isChosen);
  } catch (cause) {
    const [reason = ''] = (cause as Error).message.split('\n');
    return send({
      type: 'unusable',
      reason: cause instanceof ModelError ? reason : `the model does not run here: ${reason}`,
    });
  }
  const { embed, model, tokenKind } = opened;
  process.on('message', (request: ModelRequest) => {
    const { id } = request;
    embed(request).then(
      (answer) => send({ type: 'vector', id, ...answer }),
      () => send({ type: 'failed', id }),
    );
  });
  send({ type: 'ready', model, tokenKind });
};

// SIGKILL is used, because nothing here needs an orderly end, and native code must not delay it.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
// These signals are ignored: Ctrl-C reaches the whole process group, but the worker first finishes its turns and may
// need vectors for them.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
await main(process.argv[2] ?? '', process.argv[3] === CHOSEN);
