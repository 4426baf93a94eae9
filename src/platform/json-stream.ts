import { createSlices } from './slices.ts';

/** A piece of JSON is sent when it has about this many characters. */
const PIECE = 64 * 1024;

/**
 * Writes an object as JSON, with last fields whose lists are never whole in memory. Other work of the process runs in
 * between.
 */
export async function* toJson(head: object, lists: Record<string, AsyncIterable<object[]>>): AsyncGenerator<string> {
  const slices = createSlices();
  let piece = JSON.stringify(head).slice(0, -1);
  for (const [name, pages] of Object.entries(lists)) {
    piece += `${piece === '{' ? '' : ','}${JSON.stringify(name)}:[`;
    let separator = '';
    for await (const page of pages) {
      for (const one of page) {
        piece += `${separator}${JSON.stringify(one)}`;
        separator = ',';
        if (piece.length >= PIECE) {
          yield piece;
          piece = '';
        }
        if (slices.isOver()) await slices.next();
      }
    }
    piece += ']';
  }
  yield `${piece}}`;
}
