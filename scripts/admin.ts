import { enableCompileCache } from 'node:module';
import { join } from 'node:path';
import { requireNode } from '../src/platform/lifecycle.ts';
import { ROOT } from './services/found.ts';

requireNode();
// Drivers and stores are most of a short command's time; compiled once, they load in half of it.
enableCompileCache(join(ROOT, '.local/compile-cache'));

const { main } = await import('./admin/program.ts');
await main(process.argv);
