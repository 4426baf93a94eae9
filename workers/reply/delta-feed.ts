import { type Publish, streamChannels } from '../../src/turns/replies.ts';

/** Pieces that follow each other more closely go out together. */
const COALESCE_MS = 30;
/** How often those who joined meanwhile are looked for. */
const REFRESH_EVERY_MS = 1_000;

type Options = {
  turnId: string;
  attempt: number;
  /** Channels of those who wait, as read when the attempt began. */
  replyTo: string[];
  /** The same as they are now. */
  findReplyTo: () => Promise<string[]>;
  publish: Publish;
};

/** A surrogate pair stays together. */
const endOfWhole = (text: string): number => {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff ? text.length - 1 : text.length;
};

/**
 * Tells those who stream of a reply in the making. Nothing rests on it: what is lost here, they get with the committed
 * reply. Each piece says where it belongs, so that one who came late or missed one says nothing wrong.
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
    /** What was held back goes out before the reply does. */
    end: (): void => {
      ended = true;
      if (timer) clearTimeout(timer);
      publishDelta();
    },
  };
};
