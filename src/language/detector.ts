import { createRequire } from 'node:module';
import type { detectAll } from 'tinyld/heavy';

type Detector = { detectAll: typeof detectAll };

const require = createRequire(import.meta.url);
let loaded: Detector | undefined;

/** Loads the detector on the first call. That takes 0.3 s, as long as half of a process's start. */
export const loadDetector = (): Detector => {
  loaded ??= require('tinyld/heavy') as Detector; // `require` has no types
  return loaded;
};
