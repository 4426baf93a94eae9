/** What a person does to a page. A page that only asks again and again is left alone, and its session may end. */
const ACTS = ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchstart'] as const;
/** An act counts for what the page asks within this time: clicks lead to calls, and those to others. */
const LASTS_MS = 60_000;

let lastAct = 0;

export const watchForActs = (): void => {
  const note = (): void => {
    lastAct = Date.now();
  };
  note(); // somebody opened it
  for (const act of ACTS) addEventListener(act, note, { capture: true, passive: true });
};

export const isAttended = (): boolean => Date.now() - lastAct < LASTS_MS;
