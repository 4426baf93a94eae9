import { mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { MongoBinary } from 'mongodb-memory-server';

// The last way: the vendor's own archive, found and unpacked by mongodb-memory-server (its postinstall is denied, so that
// nothing is downloaded unasked). Run as a process of its own, since it needs the packages and the right Node.
const [folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
process.env.MONGOMS_RUNTIME_DOWNLOAD = '1';
delete process.env.MONGOMS_SYSTEM_BINARY;
const path = await MongoBinary.getPath({ downloadDir: folder });
const link = join(folder, `mongod.${process.pid}`);
rmSync(link, { force: true });
symlinkSync(path, link);
renameSync(link, join(folder, 'mongod'));
