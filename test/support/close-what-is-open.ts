import { afterAll } from 'vitest';
import { killAll } from '../kit/processes.ts';
import { closeReceivers } from '../kit/receiver.ts';

// Loaded before each file, so that no test closes its receivers, providers and websites itself, and none that fails leaves
// a process behind.
afterAll(closeReceivers);
afterAll(killAll);
