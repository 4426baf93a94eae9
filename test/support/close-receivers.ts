import { afterAll } from 'vitest';
import { closeReceivers } from '../kit/receiver.ts';

// Loaded before each file, so that no test closes its receivers, providers and websites itself.
afterAll(closeReceivers);
