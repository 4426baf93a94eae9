import { setTimeout as sleep } from 'node:timers/promises';
import { describeSemanticStatus, type SemanticStatus } from '../../../src/assistants/knowledge/semantic-state.ts';
import { knowledgeOperations } from '../../../src/assistants/knowledge/http.ts';
import type { Api } from '../api.ts';
import { plain } from '../text.ts';

const LOOK_EVERY_MS = 250;
/**
 * After this time without progress, the command stops waiting. By then the entries are stored and can already be found
 * by their words.
 */
const STALLED_MS = 15_000;
/** The time between two lines of progress if the output is not a terminal. */
const LINE_EVERY_MS = 2_000;

export const readStatus = (api: Api, assistantId: string): Promise<SemanticStatus> =>
  api.call(knowledgeOperations.status, { id: assistantId, what: 'assistant' });

export const statusText = (status: SemanticStatus): string => plain(describeSemanticStatus(status));

const createLine = (to: NodeJS.WriteStream) => {
  let shownAt = Number.NEGATIVE_INFINITY;
  let shown = '';
  return {
    say: (text: string): void => {
      if (text === shown || (!to.isTTY && performance.now() - shownAt < LINE_EVERY_MS)) return;
      to.write(to.isTTY ? `\r\u001B[K${text}` : `${text}\n`);
      [shown, shownAt] = [text, performance.now()];
    },
    clear: (): void => void (to.isTTY && shown !== '' && to.write('\r\u001B[K')),
  };
};

/** Shows progress on standard error until all vectors are made or progress stops. */
export const followStatus = async (api: Api, assistantId: string): Promise<SemanticStatus> => {
  const line = createLine(process.stderr);
  let movedAt = performance.now();
  let last = '';
  for (;;) {
    const status = await readStatus(api, assistantId);
    const text = statusText(status);
    if (text !== last) [last, movedAt] = [text, performance.now()];
    if (status.state !== 'making' || performance.now() - movedAt > STALLED_MS) {
      line.clear();
      return status;
    }
    line.say(text);
    await sleep(LOOK_EVERY_MS);
  }
};
