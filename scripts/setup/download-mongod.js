import { mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { MongoBinary } from 'mongodb-memory-server';

// The last way to get MongoDB: downloads and unpacks MongoDB's own archive with mongodb-memory-server. The postinstall
// script of that package is disabled, so that nothing is downloaded without need. This script runs in a separate
// process, because it needs the installed packages and the right Node.
const [folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
process.env.MONGOMS_RUNTIME_DOWNLOAD = '1';
delete process.env.MONGOMS_SYSTEM_BINARY;
const path = await MongoBinary.getPath({ downloadDir: folder });
const link = join(folder, `mongod.${process.pid}`);
rmSync(link, { force: true });
symlinkSync(path, link);
renameSync(link, join(folder, 'mongod'));
