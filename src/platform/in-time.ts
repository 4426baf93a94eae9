/** What `work` gives, or, once the time is up, a rejection with what `late` makes. The work itself goes on unheard. */
export const inTime = async <Value>(
  work: Promise<Value>,
  ms: number,
  late: () => Error = () => new Error(`no answer within ${ms} ms`),
): Promise<Value> => {
  let timer: NodeJS.Timeout | undefined;
  const timeIsUp = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), ms);
  });
  return Promise.race([work, timeIsUp]).finally(() => clearTimeout(timer));
};
