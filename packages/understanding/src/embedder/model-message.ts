import * as z from 'zod';

/** A request to the model process. The process does not validate it, because both sides come from the same release. */
export type ModelRequest = { id: number; text: string; isQuery: boolean };

/** A message from the model process. The worker validates it, because native code runs in that process. */
export const ModelMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready') }),
  z.object({ type: z.literal('unusable'), reason: z.string() }),
  z.object({ type: z.literal('vector'), id: z.int(), vector: z.instanceof(Float32Array) }),
  z.object({ type: z.literal('failed'), id: z.int() }),
]);
export type ModelMessage = z.infer<typeof ModelMessage>;
