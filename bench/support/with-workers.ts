import { withOwnService } from '../../test/kit/own-service.ts';
import { startRealProcess } from '../../test/kit/processes.ts';
import type { Service } from '../../src/service.ts';

/** Starts separate services and delivery workers for the time of `run`, and returns its result. */
export const withDeliveryWorkers = (count: number, run: (service: Service) => Promise<boolean>): Promise<boolean> =>
  withOwnService(async (service, env) => {
    await Promise.all(Array.from({ length: count }, () => startRealProcess('delivery', env)));
    return run(service);
  });
