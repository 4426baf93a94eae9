import { type Audit, boundedLine } from '../../src/operators/audit.ts';
import { newId } from '../../src/platform/process/ids.ts';

type LocalChange = { action: string; target: string | null; details: Record<string, string> };

/** The operator id in audit entries of local changes, because no operator is signed in for them. */
const COMMAND_ID = '00000000-0000-0000-0000-000000000000';

/** Records a change that the command itself makes, without the API. */
export const recordLocal = (audit: Audit, done: LocalChange): Promise<void> =>
  audit.record(
    boundedLine({ actor: 'command', operatorId: COMMAND_ID, email: 'admin command', requestId: newId(), ...done }),
  );
