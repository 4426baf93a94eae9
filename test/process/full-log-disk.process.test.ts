import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { expect, test } from 'vitest';

const PROGRAM = `
  import { createLogger } from './src/platform/process/logger.ts';
  const logger = createLogger({ name: 'test', level: 'info' });
  for (let nth = 0; nth < 3; nth += 1) {
    logger.error({ nth }, 'a line');
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  }
  process.stderr.write('goes on');
`;

test('a process goes on while its log cannot be written, because the disk is full', async () => {
  const full = openSync('/dev/full', 'w');

  const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM], { stdio: ['ignore', full, 'pipe'] });
  let said = '';
  child.stderr?.on('data', (data: Buffer) => (said += data.toString()));
  const [status] = await once(child, 'close');

  expect([status, said]).toEqual([0, 'goes on']);
});
