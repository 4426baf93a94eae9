export type TextKind = 'query' | 'passage';
export type Priority = 'turn' | 'background';
export type Status = { available: boolean; detail: string };

/** What one request to a model may hold, and how much of a long text is read. */
export type Limits = {
  texts: number;
  concurrency: number;
  /** A longer text is embedded in pieces, so that a turn never waits for a whole page; so many of them are read. */
  pieceBytes: number;
  pieces: Record<TextKind, number>;
};

/** One opened model: works until `ended` tells why it does no more. */
export type OpenModel = {
  /** Name and version; another name means that stored vectors are made again. */
  model: string;
  dimensions: number;
  embed: (texts: string[], kind: TextKind) => Promise<Float32Array[]>;
  ended: Promise<string>;
  /** Ends it, for this reason. */
  end: (reason: string) => void;
};

export type ModelBackend = {
  limits: Limits;
  /** Throws with the reason where it cannot be opened; gives up when the signal comes. */
  open: (signal: AbortSignal) => Promise<OpenModel>;
};

/** A failure whose words are for the log and the operator: no address, no key, no text of a visitor. */
export class ModelError extends Error {
  override name = 'SourceError';
}
