import { setTimeout as sleep } from 'node:timers/promises';
import type { Crew } from '../service/crew.ts';
import { isReady } from '../../test/kit/processes.ts';
import type { Random } from '../../test/kit/random.ts';

const CHECK_EVERY_MS = 250;

/** Chooses among the API processes that were ready at the last check, as a load balancer does. */
export const openBalancer = ({ crew, random, isOver }: { crew: Crew; random: Random; isOver: () => boolean }) => {
  const unready = new Set<string>();

  /** Each process has its own checks, because one that is starting answers late. */
  const check = async (url: string): Promise<void> => {
    while (!isOver()) {
      if (await isReady({ url })) unready.delete(url);
      else unready.add(url);
      await sleep(CHECK_EVERY_MS);
    }
  };
  for (const url of crew.apis()) void check(url);

  return (): string => {
    const ready = crew.apis().filter((url) => !unready.has(url));
    const some = ready.length > 0 ? ready : crew.apis();
    return some[random.below(some.length)] as string;
  };
};
