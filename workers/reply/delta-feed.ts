import { type Publish, streamChannels } from '../../src/turns/replies.ts';

/** Pieces that arrive within this time are published together. */
const COALESCE_MS = 30;
/** How often the channels of newly waiting callers are read. */
const REFRESH_EVERY_MS = 1_000;

type Options = {
  turnId: string;
  attempt: number;
  /** Channels of the waiting callers, as read when the attempt began. */
  replyTo: string[];
  /** Reads the current channels. */
  findReplyTo: () => Promise<string[]>;
  publish: Publish;
};

/** The length of the text, without a surrogate pair that is cut in half at the end. */
const endOfWhole = (text: string): number => {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff ? text.length - 1 : text.length;
};

/**
 * Publishes a reply to streaming callers while the reply is being written. A lost piece does no harm, because the
 * committed reply has the whole text. Each piece has its offset, so that a caller can notice a missed piece.
 */
export const createDeltaFeed = ({ turnId, attempt, replyTo, findReplyTo, publish }: Options) => {
  let channels = streamChannels(replyTo);
  let text = '';
  let published = 0;
  let publishedAt = Number.NEGATIVE_INFINITY;
  let channelsReadAt = performance.now();
  let timer: NodeJS.Timeout | null = null;
  let ended = false;

  const publishDelta = (): void => {
    timer = null;
    const end = endOfWhole(text);
    if (end <= published) return;
    publish(channels, { turnId, attempt, from: published, delta: text.slice(published, end) });
    published = end;
    publishedAt = performance.now();
  };

  const refreshChannels = async (): Promise<void> => {
    channelsReadAt = performance.now();
    const now = streamChannels(await findReplyTo());
    if (ended) return;
    const added = now.filter((channel) => !channels.includes(channel));
    if (published > 0) publish(added, { turnId, attempt, from: 0, delta: text.slice(0, published) });
    channels = now;
  };

  return {
    push: (piece: string): void => {
      if (ended) return;
      text += piece;
      const now = performance.now();
      if (now - channelsReadAt > REFRESH_EVERY_MS) refreshChannels().catch(() => undefined);
      if (now - publishedAt > COALESCE_MS) publishDelta();
      else timer ??= setTimeout(publishDelta, COALESCE_MS);
    },
    /** Publishes the remaining text. Call it before the reply is published. */
    end: (): void => {
      ended = true;
      if (timer) clearTimeout(timer);
      publishDelta();
    },
  };
};
