import type { ChildProcess, Serializable } from 'node:child_process';
import { subscribe } from 'node:diagnostics_channel';
import { openReader } from '../src/reading.ts';
import { aFile } from './files.ts';

// A parent for a test to kill. It prints the id of its reading process once that has a file that takes half a minute.

subscribe('child_process', (message) => {
  const { process: child } = message as { process: ChildProcess }; // what Node publishes
  child.once('spawn', () => {
    const send = child.send.bind(child);
    const sendAndTell = (request: Serializable, told: (cause: Error | null) => void): boolean =>
      send(request, (cause) => {
        told(cause);
        process.stdout.write(`${child.pid}\n`);
      });
    child.send = sendAndTell as ChildProcess['send']; // the reader calls it in this way only
  });
});
const reader = openReader({ timeoutMs: 600_000 });
await reader.read(aFile(`<html>${'<i>'.repeat(9000)}${'</x>'.repeat(4_000_000)}`));
