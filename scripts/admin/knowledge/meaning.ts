import { setTimeout as sleep } from 'node:timers/promises';
import { type SemanticStatus, describeSemanticStatus } from '../../../src/assistants/semantic-status.ts';
import { knowledgeOperations } from '../../../src/operator-api/knowledge.ts';
import type { Api } from '../api.ts';
import { plain } from '../text.ts';

const LOOK_EVERY_MS = 250;
/** Nobody makes anything: the entries are stored, and found by their words. */
const STALLED_MS = 15_000;
/** Where lines cannot be written over, a line now and then. */
const LINE_EVERY_MS = 2_000;

export const meaningOf = (api: Api, assistantId: string): Promise<SemanticStatus> =>
  api.call(knowledgeOperations.status, { id: assistantId, what: 'assistant' });

export const sayMeaning = (meaning: SemanticStatus): string => plain(describeSemanticStatus(meaning));

const createLine = (to: NodeJS.WriteStream) => {
  let saidAt = Number.NEGATIVE_INFINITY;
  let said = '';
  return {
    say: (text: string): void => {
      if (text === said || (!to.isTTY && performance.now() - saidAt < LINE_EVERY_MS)) return;
      to.write(to.isTTY ? `\r\u001B[K${text}` : `${text}\n`);
      [said, saidAt] = [text, performance.now()];
    },
    clear: (): void => void (to.isTTY && said !== '' && to.write('\r\u001B[K')),
  };
};

/** Tells on standard error how far it is, until all of it is made or nothing more happens. */
export const followMeaning = async (api: Api, assistantId: string): Promise<SemanticStatus> => {
  const line = createLine(process.stderr);
  let movedAt = performance.now();
  let last = '';
  for (;;) {
    const meaning = await meaningOf(api, assistantId);
    const words = sayMeaning(meaning);
    if (words !== last) [last, movedAt] = [words, performance.now()];
    if (meaning.state !== 'making' || performance.now() - movedAt > STALLED_MS) {
      line.clear();
      return meaning;
    }
    line.say(words);
    await sleep(LOOK_EVERY_MS);
  }
};
