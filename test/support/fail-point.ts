import mongoose from 'mongoose';

/**
 * Lets a mongod that was started with `failPoints` fail or delay commands while `during` runs. `data` is the data of
 * MongoDB's fail point `failCommand`, `mode` which commands it meets: all of them, or for example `{ times: 1 }`.
 */
export const withFailPoint = async (
  url: string,
  data: Record<string, unknown>,
  during: () => Promise<void>,
  mode: string | object = 'alwaysOn',
): Promise<void> => {
  const client = await mongoose.mongo.MongoClient.connect(url);
  const set = (wanted: string | object) =>
    client.db('admin').command({ configureFailPoint: 'failCommand', mode: wanted, data });
  await set(mode);
  try {
    await during();
  } finally {
    await set('off');
    await client.close();
  }
};
