import { requireNode } from '../src/platform/process/lifecycle.ts';

requireNode();

const { main } = await import('./admin/program.ts');
await main(process.argv);
