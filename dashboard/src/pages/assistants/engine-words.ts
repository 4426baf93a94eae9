import type { Engine } from '../../types.ts';

export const engineWords = (engine: Engine): string =>
  engine.kind === 'retrieval' ? 'Answers from its knowledge' : `Writes with ${engine.model}`;
