import { run } from './command.js';

/** Pulls an image if a Docker engine is available. Returns null, or the reason for a failure. */
export const pullImage =
  (image) =>
  async ({ env }, onLine) => {
    const engine = await run('docker', ['version', '--format', '{{.Server.Version}}'], { env, timeoutMs: 5000 });
    if (!engine.ok) return 'no Docker engine answers';
    const present = await run('docker', ['image', 'inspect', image], { env });
    if (present.ok) return null;
    const pulled = await run('docker', ['pull', image], { env, onLine });
    return pulled.ok ? null : `docker pull ${image}: ${pulled.reason}`;
  };
