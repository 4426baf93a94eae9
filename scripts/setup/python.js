import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './command.js';
import { SetupError } from './report.js';

const PROGRAMS = ['python3', 'python'];
const VERSION = 'import sys; print("%d.%d" % sys.version_info[:2]) if sys.version_info >= (3, 10) else sys.exit(1)';

const findProgram = async (env) => {
  for (const program of PROGRAMS) {
    const asked = await run(program, ['-c', VERSION], { env });
    if (asked.ok) return { program, version: asked.output.trim() };
  }
  return undefined;
};

/**
 * Installs what `requirements` names into a folder of its own, with pip. No virtual environment is made, because some
 * systems lack the module for it. Nothing that is not a test needs Python, so it may be missing.
 */
const pipStep = ({ name, key, requirements }) => {
  const folderIn = (root) => join(root, '.local', key);
  const stampFile = (root) => join(folderIn(root), 'installed');
  const stampText = (root, { version }) => {
    const hash = createHash('sha256').update(readFileSync(join(root, requirements)));
    return `${hash.digest('hex')} ${version} ${process.platform} ${process.arch}`;
  };
  return {
    name,
    key,
    optional: true,
    doing: `installing ${requirements}`,

    find: async ({ root, env }) => {
      const stamp = stampFile(root);
      if (!existsSync(stamp)) return undefined;
      const python = await findProgram(env);
      if (!python || readFileSync(stamp, 'utf8') !== stampText(root, python)) return undefined;
      const { program, version } = python;
      return { text: version, env, found: { program, folder: folderIn(root) } };
    },

    make: async ({ root, env }, onLine) => {
      const python = await findProgram(env);
      if (!python) throw new SetupError('Python 3.10 or later is not installed');
      const folder = folderIn(root);
      rmSync(folder, { recursive: true, force: true });
      mkdirSync(folder, { recursive: true });
      const quiet = [
        '--disable-pip-version-check',
        '--no-warn-conflicts',
        '--root-user-action=ignore',
        '--no-cache-dir',
      ];
      const args = ['-m', 'pip', 'install', '--target', folder, '--require-hashes', '-r', join(root, requirements)];
      const installed = await run(python.program, [...args, ...quiet], { env, onLine });
      if (!installed.ok) throw new SetupError(`pip could not install ${requirements}: ${installed.reason}`);
      writeFileSync(stampFile(root), stampText(root, python));
    },
  };
};

/** What the tests of the Python package and of OpenAI’s protocol import. */
export const pythonStep = pipStep({
  name: 'Python',
  key: 'python',
  requirements: 'packages/python/requirements-test.txt',
});

/** What draws requests from the API document. */
export const schemathesisStep = pipStep({
  name: 'schemathesis',
  key: 'schemathesis',
  requirements: 'fuzz/requirements.txt',
});
