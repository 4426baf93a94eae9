import type { Readable } from 'node:stream';
import type { ChildSpec } from './supervisor.ts';

/** Node's own watch mode: a saved file restarts the processes that have loaded it, and no other. */
export const WATCH_ARGS = ['--watch', '--watch-preserve-output'];

/** The pages from their sources, with hot reload. Vite says itself where. */
export const dashboardSpec = (apiUrl: string): ChildSpec => ({
  name: 'dashboard',
  kind: 'dashboard',
  args: [
    'node_modules/vite/bin/vite.js',
    'dashboard',
    '--config',
    'dashboard/vite.config.ts',
    '--clearScreen',
    'false',
  ],
  env: { PARLEY_API: apiUrl },
});

/**
 * Shows what a process logs as lines for people. The package is there only where the project is developed, so it is loaded
 * only when it is asked for.
 */
export const openPretty = async (): Promise<(logs: Readable) => void> => {
  const { build } = await import('pino-pretty');
  const colorize = process.stdout.isTTY || Boolean(process.env['FORCE_COLOR']);
  return (logs) => {
    const lines = build({
      colorize,
      colorizeObjects: colorize,
      translateTime: 'SYS:HH:MM:ss.l',
      ignore: 'pid,hostname',
      singleLine: true,
      destination: process.stdout,
    });
    logs.pipe(lines);
  };
};
