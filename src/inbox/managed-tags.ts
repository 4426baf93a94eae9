import { type Connection, Schema } from 'mongoose';
import type { Tag } from '../conversations/conversation.ts';
import type { Indexed } from '../mongo/mongo.ts';

/** The tags that an assistant's operators choose from, with their colours. Other tags stay possible. */
type StoredManagedTags = { _id: string; tags: Tag[] };

const managedTagsSchema = new Schema<StoredManagedTags>(
  { _id: { type: String, required: true }, tags: { type: [{ _id: false, tag: String, color: String }] } },
  { collection: 'managedTags', versionKey: false, strictQuery: 'throw' },
);

export type ManagedTags = {
  models: Indexed[];
  list: (assistantId: string) => Promise<Tag[]>;
  replace: (assistantId: string, tags: Tag[]) => Promise<Tag[]>;
  findColor: (assistantId: string, tag: string) => Promise<string | null>;
};

export const createManagedTags = (connection: Connection): ManagedTags => {
  const lists = connection.model<StoredManagedTags>('ManagedTags', managedTagsSchema);
  const list = async (assistantId: string): Promise<Tag[]> => {
    const stored = await lists.findById(assistantId).lean();
    return (stored?.tags ?? []).map(({ tag, color }) => ({ tag, color: color ?? null }));
  };
  return {
    models: [lists],
    list,

    replace: async (assistantId, tags) => {
      await lists.updateOne({ _id: assistantId }, { $set: { tags } }, { upsert: true });
      return tags;
    },

    findColor: async (assistantId, tag) => (await list(assistantId)).find((one) => one.tag === tag)?.color ?? null,
  };
};
