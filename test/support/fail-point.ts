import mongoose from 'mongoose';

/**
 * Lets a mongod that was started with `failPoints` fail or delay commands while `during` runs. `data` is the data of
 * MongoDB's fail point `failCommand`.
 */
export const withFailPoint = async (
  url: string,
  data: Record<string, unknown>,
  during: () => Promise<void>,
): Promise<void> => {
  const client = await mongoose.mongo.MongoClient.connect(url);
  const set = (mode: string) => client.db('admin').command({ configureFailPoint: 'failCommand', mode, data });
  await set('alwaysOn');
  try {
    await during();
  } finally {
    await set('off');
    await client.close();
  }
};
