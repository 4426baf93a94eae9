import { ModelError, type OpenModel, type ModelBackend } from './backend.ts';
import { startModelProcess } from './model-process.ts';
import { MODEL } from './model-files.ts';

const PROBE = 'Can I bring my dog?';
/** The first values of the vector that the model must return for the probe text. */
const PROBE_VECTOR = [
  0.0424, -0.0372, -0.014, -0.0617, 0.0832, -0.0674, 0.0624, 0.0171, 0.0365, 0.0354, 0.0134, 0.027, 0.0876, -0.07,
  -0.0373, 0.0401, 0.0661, -0.0469, -0.0058, -0.0549, 0.0025, -0.0008, -0.0539, 0.0833,
];
/** The largest allowed difference from each of these values, because processors round differently. */
const TOLERANCE = 0.005;

const isProbeVector = (vector: Float32Array): boolean =>
  PROBE_VECTOR.every((value, at) => Math.abs(value - (vector[at] ?? Number.NaN)) <= TOLERANCE);

/**
 * multilingual-e5-small in a separate process. Before the model is used, it must return the known vector of a probe
 * text.
 */
export const localModel = (folder: string): ModelBackend => ({
  // Limited, because a turn may wait for a text that is already being embedded. 320 bytes are about 85 tokens and take
  // 0.1 s.
  limits: { texts: 1, concurrency: 1, pieceBytes: 320, pieces: { query: 3, passage: 7 } },

  open: async (signal): Promise<OpenModel> => {
    const { embed, ended, end } = await startModelProcess(folder, signal);
    const probe = await embed(PROBE, 'query');
    if (!isProbeVector(probe)) {
      end('a wrong vector');
      throw new ModelError('the engine gives a wrong vector for a known text');
    }
    return {
      model: MODEL,
      dimensions: probe.length,
      embed: (texts, kind) => Promise.all(texts.map((text) => embed(text, kind))),
      ended,
      end,
    };
  },
});
