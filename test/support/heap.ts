import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
/** Collects garbage, so that what is measured afterwards is in use. */
export const collect = runInNewContext('gc') as () => void;

/** What values take, in MB. */
export const heapMb = (): number => {
  collect();
  return process.memoryUsage().heapUsed / 1_000_000;
};
