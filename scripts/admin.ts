import { requireNode } from '../src/process/lifecycle.ts';

requireNode();

const { main } = await import('./admin/program.ts');
await main(process.argv);
