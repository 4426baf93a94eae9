import { Status } from '../../parts/status.tsx';

export const LIVE_MS = 2_500;

/** Whether what is shown keeps itself up to date. */
export const Live = ({ on, failed }: { on: boolean; failed: boolean }) => {
  if (failed) return <Status tone="warn">Trying again</Status>;
  return on ? <Status tone="good">Live</Status> : <Status tone="calm">Still</Status>;
};
