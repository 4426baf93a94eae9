/** Runs work one after the other, in order of the calls. Work that fails does not stop the work after it. */
export const createSerial = () => {
  let last: Promise<unknown> = Promise.resolve();

  return <Value>(work: () => Promise<Value>): Promise<Value> => {
    const result = last.then(work);
    last = result.catch(() => undefined);
    return result;
  };
};
