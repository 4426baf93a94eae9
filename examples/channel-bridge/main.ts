import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openOperatorApi } from './set-up.ts';
import { simulate } from './simulate.ts';

// Runs the simulator against the quickstart of this clone.

const file = join(import.meta.dirname, '../../.local/quickstart.json');
const { baseUrl, operatorToken } = JSON.parse(readFileSync(file, 'utf8')) as { baseUrl: string; operatorToken: string };
const { history, chat, counts } = await simulate(baseUrl, openOperatorApi(baseUrl, operatorToken), console.log);
console.log(`\nThe chat shows the ${chat.length} messages of the history, in its order.`);
console.log(`Events passed: ${counts.passed}, lost: ${counts.lost}, repeated: ${counts.repeated}.`);
console.log(`Restarts of the bridge: ${counts.restarts}.\n`);
for (const { role, text } of history) console.log(`${role.padEnd(10)} ${text.slice(0, 90)}`);
