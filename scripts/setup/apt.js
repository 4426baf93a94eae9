import { existsSync } from 'node:fs';
import { run } from './command.js';

/** Installs a Debian package as root. Returns null, or the reason why the installation failed. */
export const aptInstall =
  (name) =>
  async ({ env }, onLine) => {
    if (process.getuid?.() !== 0) return 'needs root';
    if (!existsSync('/usr/bin/apt-get')) return 'no apt-get here';
    // With runlevel 1, the package does not start a system service.
    const quiet = { env: { ...env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' }, onLine };
    const updated = await run('apt-get', ['update'], quiet);
    if (!updated.ok) return `apt-get update: ${updated.reason}`;
    const installed = await run('apt-get', ['install', '-y', '--no-install-recommends', name], quiet);
    return installed.ok ? null : `apt-get install ${name}: ${installed.reason}`;
  };
