import { setTimeout as sleep } from 'node:timers/promises';
import type { Crew } from '../service/crew.ts';
import { isReady } from '../support/process.ts';
import type { Random } from '../support/random.ts';

const CHECK_EVERY_MS = 250;

/** Chooses among the API processes that were ready at the last check, as a load balancer does. */
export const openBalancer = ({ crew, random, isOver }: { crew: Crew; random: Random; isOver: () => boolean }) => {
  let ready = crew.apis();

  const check = async (): Promise<void> => {
    while (!isOver()) {
      const answers = await Promise.all(crew.apis().map(async (url) => ((await isReady({ url })) ? [url] : [])));
      ready = answers.flat();
      await sleep(CHECK_EVERY_MS);
    }
  };
  void check();

  return (): string => {
    const some = ready.length > 0 ? ready : crew.apis();
    return some[random.below(some.length)] as string;
  };
};
