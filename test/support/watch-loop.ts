import { writeFileSync } from 'node:fs';
import { type Step, watchLoop } from './loop.ts';

// Loaded into a process before its own code (`node --import`). SIGUSR2 begins to watch its loop, and the next SIGUSR2
// ends it and writes the longest step to the file that WATCH_LOOP names.

let stop: (() => Step) | undefined;
process.on('SIGUSR2', () => {
  if (!stop) {
    stop = watchLoop();
    return;
  }
  writeFileSync(process.env['WATCH_LOOP'] ?? '', JSON.stringify(stop()));
  stop = undefined;
});
