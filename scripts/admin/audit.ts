import { type Audit, boundedLine } from '../../src/operators/audit.ts';
import { newId } from '../../src/platform/ids.ts';

type LocalChange = { action: string; target: string; details: Record<string, string> };

/** Nobody is signed in on the service's own machine: the trail says that it was the command. */
const COMMAND_ID = '00000000-0000-0000-0000-000000000000';

/** The line of a change that the command makes without the API. */
export const recordLocal = (audit: Audit, done: LocalChange): Promise<void> =>
  audit.record(
    boundedLine({ actor: 'command', operatorId: COMMAND_ID, email: 'admin command', requestId: newId(), ...done }),
  );
