import { spawn } from 'node:child_process';
import { programFor, type ServiceName } from './installed.ts';

export type ServiceLocation = { port: number; dir: string; bind: string };
export type StartCommand = { command: string[]; kill?: () => void };

/**
 * The command that starts a service, either as a program or as a container in the foreground. The container uses the
 * same port inside and outside, because a replica set member must have one address. A container has its own `kill`,
 * because SIGKILL would reach only the `docker run` client.
 */
export const startCommand = (
  {
    service,
    program,
    settings,
  }: { service: ServiceName; program: string; settings: (place: ServiceLocation) => string[] },
  { port, dataDir }: { port: number; dataDir: string },
): StartCommand => {
  const found = programFor(service);
  if ('program' in found) return { command: [found.program, ...settings({ port, dir: dataDir, bind: '127.0.0.1' })] };
  const name = `parley-${service}-${process.pid}-${port}`;
  const user = process.getuid && process.getgid ? ['--user', `${process.getuid()}:${process.getgid()}`] : [];
  const shared = ['--volume', `${dataDir}:/data`, '--publish', `127.0.0.1:${port}:${port}`];
  const run = ['docker', 'run', '--rm', '--name', name, ...user, ...shared, '--entrypoint', program, found.image];
  return {
    command: [...run, ...settings({ port, dir: '/data', bind: '0.0.0.0' })],
    kill: () => void spawn('docker', ['kill', name], { stdio: 'ignore' }).on('error', () => undefined),
  };
};
