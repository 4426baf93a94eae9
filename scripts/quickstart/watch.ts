import type { Readable } from 'node:stream';
import type { ChildSpec } from './supervisor.ts';

/** Arguments for Node's watch mode, in which a saved file restarts only the processes that have loaded this file. */
export const WATCH_ARGS = ['--watch', '--watch-preserve-output'];

/** The command that serves the dashboard from its sources, with hot reload. Vite prints its address. */
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

/** Formats logs for people. The formatter is a development dependency, so it is imported only when it is needed. */
export const openPretty = async (): Promise<(logs: Readable) => void> => {
  const { build } = await import('pino-pretty');
  const colorize = process.stdout.isTTY || Boolean(process.env['FORCE_COLOR']);
  process.stdout.setMaxListeners(0); // each process has a formatter of its own
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
