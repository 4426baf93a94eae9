import { requireNode } from '../src/platform/lifecycle.ts';

requireNode();

const { main } = await import('./admin/program.ts');
await main(process.argv);
