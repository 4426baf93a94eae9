import * as z from 'zod';

/** What the worker asks of the process with the engine. Trusted there: that process comes from the same files, and is kept small. */
export type ModelRequest = { id: number; text: string; isQuery: boolean };

/** What comes back from a process with native code in it. */
export const ModelMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready') }),
  z.object({ type: z.literal('unusable'), reason: z.string() }),
  z.object({ type: z.literal('vector'), id: z.int(), vector: z.instanceof(Float32Array) }),
  z.object({ type: z.literal('failed'), id: z.int() }),
]);
export type ModelMessage = z.infer<typeof ModelMessage>;
