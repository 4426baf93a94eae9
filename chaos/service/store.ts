/** Called when MongoDB was told to refuse writes. */
export type Refused = (at: number) => void;

export type StoreFault = { name: string; run: (refused: Refused) => Promise<void> };

export type Store = {
  /** The address for the processes. */
  url: string;
  /** The address for the checker. No fault makes it silent, except the death of the store. */
  directUrl: string;
  /** More settings of the processes. */
  env?: Record<string, string>;
  /** What can happen to this store, apart from FLUSHALL. */
  faults: StoreFault[];
  dispose: () => Promise<void>;
};
