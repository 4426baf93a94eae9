import mongoose from 'mongoose';

/** How long a command may take to reach a fail point. */
const REACHED_MS = 30_000;

/**
 * Lets a mongod that was started with `failPoints` fail or delay commands while `during` runs. `data` is the data of
 * MongoDB's fail point `failCommand`, `mode` which commands it meets: all of them, or for example `{ times: 1 }`.
 * `reached` resolves once the first command has met it. A command that is only running has not.
 */
export const withFailPoint = async (
  url: string,
  data: Record<string, unknown>,
  during: (reached: () => Promise<unknown>) => Promise<void>,
  mode: string | object = 'alwaysOn',
): Promise<void> => {
  const client = await mongoose.mongo.MongoClient.connect(url);
  const admin = client.db('admin');
  const set = (wanted: string | object) => admin.command({ configureFailPoint: 'failCommand', mode: wanted, data });
  const { count } = (await set(mode)) as unknown as { count: number };
  const reached = () =>
    admin.command({ waitForFailPoint: 'failCommand', timesEntered: count + 1, maxTimeMS: REACHED_MS });
  try {
    await during(reached);
  } finally {
    await set('off');
    await client.close();
  }
};
